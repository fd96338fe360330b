/**
 * A sandbox session of the OpenAI Agents SDK: `run(agent, task, { sandbox: { session: sandjetSession() } })`, and what its shell and
 * apply_patch tools need.
 *
 * @packageDocumentation
 */
import { SandjetError, type Sandbox } from "@sandjet/client";
import { applyDiff, type Editor, type Shell } from "@openai/agents";
import { Manifest, SandboxWorkspaceReadNotFoundError, type ExecCommandArgs, type MaterializeEntryArgs, type SandboxExecResult, type SandboxSession } from "@openai/agents/sandbox";
import { command, exitOf, helper, inside, list, longest, quoted, read, removeFile, sandbox, stat, unsupported, word, write, type SandboxOptions } from "./index.js";

/** SessionOptions of a session. */
export interface SessionOptions extends SandboxOptions {
  /** env are variables of all commands. */
  env?: Record<string, string>;
}

/** SandjetSession is a session that belongs to the program: the framework neither makes nor ends it. */
export interface SandjetSession extends SandboxSession {
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;
  /** shell is for `shellTool({ shell })`. */
  readonly shell: Shell;
  /** editor is for `applyPatchTool({ editor })`. */
  readonly editor: Editor;
}

/**
 * sandjetSession is a sandbox for SandboxAgent, for shellTool and for applyPatchTool. Each command runs to its end, ten minutes at most.
 * A failure of the network in the middle of a command is an error, because the command may have run.
 */
export function sandjetSession(options: SessionOptions = {}): SandjetSession {
  const box = sandbox(options);
  const run = (text: string, more: { cwd?: string | undefined; timeout?: number } = {}) =>
    command(box, text, { timeout: longest, ...more, env: options.env });
  const exec = async (args: ExecCommandArgs): Promise<SandboxExecResult> => {
    asTheSandbox(args.runAs);
    if (args.tty) throw unsupported("commands have no terminal here: run it without tty", "tty");
    const r = await run(args.shell === undefined ? args.cmd : `${word(args.shell)} -c ${word(args.cmd)}`, { cwd: args.workdir });
    return { ...shortened(r.stdout + r.stderr, args.maxOutputTokens), stdout: r.stdout, stderr: r.stderr, wallTimeSeconds: r.duration_ms / 1000, exitCode: exitOf(r) };
  };
  const bytesOf = async (path: string): Promise<Uint8Array> => {
    const bytes = await read(box, path);
    if (bytes === undefined) throw new SandboxWorkspaceReadNotFoundError(`${path}: not found`);
    return bytes;
  };
  const materialize = async ({ path, entry, runAs }: MaterializeEntryArgs): Promise<void> => {
    asTheSandbox(runAs);
    if (entry.group !== undefined) throw unsupported("files belong to the user of the sandbox: leave group out", "group");
    if (entry.permissions !== undefined) throw unsupported("permissions are not set here: change them with a command", "permissions");
    if (entry.type === "file") {
      await write(box, path, (entry as { content: string | Uint8Array }).content);
    } else if (entry.type === "dir") {
      await helper(box, path, `mkdir -p -- ${quoted(path)}`);
      for (const [name, child] of Object.entries((entry as { children?: Record<string, MaterializeEntryArgs["entry"]> }).children ?? {})) {
        await materialize({ path: `${path}/${name}`, entry: child });
      }
    } else {
      throw unsupported(`${path}: entries of type ${entry.type} are not supported: use file and dir, or fetch it with a command`, "entry");
    }
  };
  const editor: Editor = {
    createFile: async ({ path, diff }) => {
      if ((await stat(box, path)) !== undefined) return { status: "failed", output: `${path} exists already: update it, or delete it first` };
      await write(box, path, applyDiff("", diff, "create"));
      return { status: "completed", output: `Created ${path}` };
    },
    updateFile: async ({ path, diff, moveTo }) => {
      const bytes = await read(box, path);
      if (bytes === undefined) return { status: "failed", output: `${path} does not exist: create it` };
      const to = moveTo ?? path;
      await write(box, to, applyDiff(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), diff));
      if (inside(to) !== inside(path)) await removeFile(box, path);
      return { status: "completed", output: to === path ? `Updated ${path}` : `Updated ${path}, which is now ${to}` };
    },
    deleteFile: async ({ path }) =>
      (await removeFile(box, path)) ? { status: "completed", output: `Deleted ${path}` } : { status: "failed", output: `${path} does not exist` },
  };
  return {
    sandbox: box,
    state: { manifest: new Manifest({ environment: options.env ?? {} }) },
    editor,
    shell: {
      run: async (action) => {
        const output = [];
        for (const text of action.commands) {
          const r = await run(text, { timeout: Math.min(action.timeoutMs ?? longest, longest) });
          const outcome = r.timed_out ? ({ type: "timeout" } as const) : ({ type: "exit", exitCode: r.exit_code } as const);
          output.push({ stdout: r.stdout, stderr: r.stderr, outcome });
          if (r.timed_out) break; // what follows may need it
        }
        return { output, ...(action.maxOutputLength !== undefined && { maxOutputLength: action.maxOutputLength }) };
      },
    },
    exec,
    execCommand: async (args) => {
      try {
        const r = await exec(args);
        const cut = r.originalTokenCount === undefined ? "" : `Original token count: ${r.originalTokenCount}\n`;
        return `Wall time: ${r.wallTimeSeconds.toFixed(4)} seconds\nProcess exited with code ${r.exitCode}\n${cut}Output:\n${r.output}`;
      } catch (e) {
        if (e instanceof SandjetError) return `Error: ${e.message}`; // of one that is thrown the model reads only that it should try again
        throw e;
      }
    },
    createEditor: (runAs) => {
      asTheSandbox(runAs);
      return editor;
    },
    readFile: async ({ path, runAs, maxBytes }) => {
      asTheSandbox(runAs);
      return (await bytesOf(path)).subarray(0, maxBytes);
    },
    viewImage: async ({ path, runAs }) => {
      asTheSandbox(runAs);
      const bytes = await bytesOf(path);
      if (bytes.length > 10 << 20) throw new SandjetError("invalid", `${path} exceeds the 10 MB limit: make it smaller`, "path");
      return { type: "image", image: { data: Uint8Array.from(bytes), mediaType: imageType(path, bytes) } };
    },
    listDir: async ({ path, runAs }) => {
      asTheSandbox(runAs);
      const found = await list(box, path);
      if (found === undefined) throw new SandboxWorkspaceReadNotFoundError(`${path}: not found`);
      return found.map((e) => ({ name: e.name, path: e.path, type: e.type === "file" ? "file" : e.type === "directory" ? "dir" : "other" }));
    },
    pathExists: async (path, runAs) => {
      asTheSandbox(runAs);
      return (await stat(box, path)) !== undefined;
    },
    directoryExists: async (path, runAs) => {
      asTheSandbox(runAs);
      return (await stat(box, path))?.type === "directory";
    },
    materializeEntry: materialize,
    applyManifest: async (manifest, runAs) => {
      for (const field of ["users", "groups", "extraPathGrants"] as const) {
        if (manifest[field].length > 0) throw unsupported(`sandboxes have one user and one workspace: leave ${field} out of the manifest`, field);
      }
      for (const [path, entry] of Object.entries(manifest.entries)) await materialize({ path, entry, ...(runAs !== undefined && { runAs }) });
    },
    supportsPty: () => false,
  };
}

function asTheSandbox(runAs: string | undefined): void {
  if (runAs !== undefined) throw unsupported("commands and files have the sandbox's own user: leave runAs out", "runAs");
}

/** shortened keeps the beginning and the end of an output, at four bytes a token. */
function shortened(output: string, tokens: number | undefined): { output: string; originalTokenCount?: number } {
  const bytes = new TextEncoder().encode(output);
  if (tokens === undefined || bytes.length <= tokens * 4) return { output };
  const half = tokens * 2;
  const text = (part: Uint8Array) => new TextDecoder().decode(part).replace(/^\uFFFD+|\uFFFD+$/g, ""); // runes that are cut in two
  const left = Math.ceil((bytes.length - 2 * half) / 4);
  return { output: `${text(bytes.subarray(0, half))}…${left} tokens truncated…${text(bytes.subarray(bytes.length - half))}`, originalTokenCount: Math.ceil(bytes.length / 4) };
}

/** imageType is the type of an image by its first bytes. */
function imageType(path: string, bytes: Uint8Array): string {
  const head = String.fromCharCode(...bytes.subarray(0, 12));
  if (head.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (head.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (/^GIF8[79]a/.test(head)) return "image/gif";
  if (/^RIFF[^]{4}WEBP/.test(head)) return "image/webp";
  throw new SandjetError("invalid", `${path}: unsupported image format: PNG, JPEG, GIF and WebP are known`, "path");
}
