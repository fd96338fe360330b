/**
 * The experimental sandbox of the AI SDK (`experimental_sandbox` of generateText, streamText and tools), and a tool for models.
 *
 * @packageDocumentation
 */
import { SandjetError, type Sandbox } from "@sandjet/client";
import { exitOf, fails, inside, quoted, read, root, sandbox, write, type SandboxOptions } from "./index.js";

interface PathOptions {
  path: string;
  abortSignal?: AbortSignal;
}

interface RunOptions {
  command: string;
  workingDirectory?: string;
  env?: Record<string, string>;
  abortSignal?: AbortSignal;
}

interface Process {
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  wait(): Promise<{ exitCode: number }>;
  kill(): Promise<void>;
}

/** SandboxSession is what the AI SDK calls a sandbox session, of version 7. */
export interface SandboxSession {
  readonly description: string;
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;
  run(options: RunOptions): Promise<{ exitCode: number; stdout: string; stderr: string }>;
  spawn(options: RunOptions & { stdin?: boolean }): Promise<any>; // a process; one with a standard input is refused
  readFile(options: PathOptions): Promise<ReadableStream<Uint8Array> | null>;
  readBinaryFile(options: PathOptions): Promise<Uint8Array | null>;
  readTextFile(options: PathOptions & { encoding?: string; startLine?: number; endLine?: number }): Promise<string | null>;
  writeFile(options: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void>;
  writeBinaryFile(options: PathOptions & { content: Uint8Array }): Promise<void>;
  writeTextFile(options: PathOptions & { content: string; encoding?: string }): Promise<void>;
  stat(options: PathOptions): Promise<{ type: "file" | "directory" | "other"; size: number } | null>;
  listDirectory(options: PathOptions): Promise<{ name: string; type: "file" | "directory" | "symlink" | "other" }[] | null>;
  deleteFile(options: PathOptions): Promise<boolean>;
}

/**
 * sandjetSandbox is a sandbox for `experimental_sandbox`. A signal that aborts a run cancels its command. A failure of the network
 * in the middle of a run is an error, because the command may have run.
 */
export function sandjetSandbox(options: SandboxOptions = {}): SandboxSession {
  const box = sandbox(options);
  const whole = async (path: string, signal: AbortSignal | undefined): Promise<Uint8Array | null> => (await read(box, path, signal)) ?? null;
  const run = (o: RunOptions) =>
    box.bash(o.command, {
      timeout: 600_000,
      ...(o.workingDirectory !== undefined && { cwd: inside(o.workingDirectory) || "." }),
      ...(o.env !== undefined && { env: o.env }),
      ...(o.abortSignal !== undefined && { signal: o.abortSignal }),
    });
  const spawn = async (o: RunOptions & { stdin?: boolean }): Promise<Process> => {
    if (o.stdin) throw new SandjetError("unsupported", "commands have no standard input here: write a file and redirect it", "stdin");
    const stop = new AbortController();
    const signal = o.abortSignal === undefined ? stop.signal : AbortSignal.any([o.abortSignal, stop.signal]);
    const ended = run({ ...o, abortSignal: signal });
    ended.catch(() => undefined); // whoever waits hears of it
    const stream = (of: "stdout" | "stderr"): ReadableStream<Uint8Array> =>
      new ReadableStream({
        async start(to) {
          try {
            to.enqueue(new TextEncoder().encode((await ended)[of]));
            to.close();
          } catch (e) {
            to.error(e);
          }
        },
      });
    return {
      stdout: stream("stdout"),
      stderr: stream("stderr"),
      wait: async () => {
        try {
          return { exitCode: exitOf(await ended) };
        } catch (e) {
          if (stop.signal.aborted && !o.abortSignal?.aborted) return { exitCode: 143 }; // as of SIGTERM
          throw e;
        }
      },
      kill: async () => stop.abort(new SandjetError("cancelled", "the process was killed")),
    };
  };
  return {
    sandbox: box,
    description:
      `A Linux sandbox with bash. Commands start in ${root}, where all files are that stay; relative paths begin there. ` +
      "Each command is a new process: files stay, variables and the working directory do not.",
    run: async (o) => {
      const r = await run(o);
      return { exitCode: exitOf(r), stdout: r.stdout, stderr: r.stderr };
    },
    spawn,
    readFile: async (o) => {
      const bytes = await whole(o.path, o.abortSignal);
      return bytes === null ? null : new Blob([bytes as BlobPart]).stream();
    },
    readBinaryFile: (o) => whole(o.path, o.abortSignal),
    readTextFile: async (o) => {
      const bytes = await whole(o.path, o.abortSignal);
      if (bytes === null) return null;
      const text = new TextDecoder(o.encoding ?? "utf-8").decode(bytes);
      if (o.startLine === undefined && o.endLine === undefined) return text;
      return text.split(/(?<=\n)/).slice((o.startLine ?? 1) - 1, o.endLine).join("");
    },
    writeFile: async (o) => write(box, o.path, new Uint8Array(await new Response(o.content).arrayBuffer()), o.abortSignal),
    writeBinaryFile: (o) => write(box, o.path, o.content, o.abortSignal),
    writeTextFile: async (o) => {
      if (!/^utf-?8$/i.test(o.encoding ?? "utf-8")) {
        throw new SandjetError("unsupported", `text is written as UTF-8, not ${o.encoding}: encode it, and write bytes`, "encoding");
      }
      await write(box, o.path, o.content, o.abortSignal);
    },
    stat: async (o) => {
      const at = quoted(o.path);
      const r = await run({ command: `[ -e ${at} ] || exit 44; stat -Lc '%s %F' -- ${at}`, ...(o.abortSignal && { abortSignal: o.abortSignal }) });
      if (r.exit_code === 44) return null;
      const found = /^(\d+) (.*)\n$/.exec(r.stdout);
      if (found === null) throw fails(r, o.path);
      const type = found[2]!.startsWith("regular") ? "file" : found[2] === "directory" ? "directory" : "other";
      return { type, size: Number(found[1]) };
    },
    listDirectory: async (o) => {
      try {
        const found = await box.list(inside(o.path), { limit: 2000, ...(o.abortSignal && { signal: o.abortSignal }) });
        if (found.truncated) throw new SandjetError("exhausted", `${o.path} has ${found.total} entries: 2,000 are listed`, "path");
        return found.entries.map((e) => ({ name: e.path.slice(e.path.lastIndexOf("/") + 1), type: typeOf(e.type) }));
      } catch (e) {
        if (e instanceof SandjetError && e.code === "not_found") return null;
        throw e;
      }
    },
    deleteFile: async (o) => {
      const at = quoted(o.path);
      const command = `[ -e ${at} ] || [ -L ${at} ] || exit 44; if [ -d ${at} ] && [ ! -L ${at} ]; then echo 'it is a directory' >&2; exit 45; fi; rm -f -- ${at}`;
      const r = await run({ command, ...(o.abortSignal && { abortSignal: o.abortSignal }) });
      if (exitOf(r) !== 0 && r.exit_code !== 44) throw fails(r, o.path);
      return r.exit_code === 0;
    },
  };
}

function typeOf(type: string): "file" | "directory" | "symlink" | "other" {
  return type === "link" ? "symlink" : type === "file" || type === "directory" ? type : "other";
}
