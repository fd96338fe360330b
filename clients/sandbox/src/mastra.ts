/**
 * A sandbox and a filesystem of Mastra: `new Workspace(sandjetWorkspace())`.
 *
 * @packageDocumentation
 */
import { newID, SandjetError, type Sandbox } from "@sandjet/client";
import {
  DirectoryNotEmptyError, DirectoryNotFoundError, FileExistsError, FileNotFoundError, IsDirectoryError, MastraFilesystem, MastraSandbox,
  NotDirectoryError, PermissionError, StaleFileError, validateSandboxFileMode,
} from "@mastra/core/workspace";
import type {
  CommandResult, CopyOptions, ExecuteCommandOptions, FileContent, FileEntry, FileStat, ListOptions, MastraSandboxOptions, ProviderStatus,
  ReadOptions, RemoveOptions, SandboxFileInput, SandboxInfo, WorkspaceFilesystem, WriteFilesOptions, WriteOptions,
} from "@mastra/core/workspace";
import { command, description, exitOf, helper, inside, isFolder, list, longest, pathError, quoted, read, removeFile, root, sandbox, stat, word, write, type SandboxOptions, type Stat } from "./index.js";

/** WorkspaceOptions of a workspace. */
export interface WorkspaceOptions extends SandboxOptions, Omit<MastraSandboxOptions, "processes"> {}

/** sandjetWorkspace is the sandbox and the filesystem of one session, for `new Workspace(…)`. */
export function sandjetWorkspace(options: WorkspaceOptions = {}): { sandbox: SandjetSandbox; filesystem: SandjetFilesystem } {
  const made = new SandjetSandbox(options);
  return { sandbox: made, filesystem: new SandjetFilesystem(made.sandbox) };
}

/**
 * SandjetSandbox runs the commands of agents. A signal that aborts a command cancels it. A failure of the network in the middle of one is
 * an error, because the command may have run. `stop` leaves the session alone, which ends when it is idle; `destroy` ends it with its files.
 */
export class SandjetSandbox extends MastraSandbox<Sandbox> {
  readonly id: string;
  readonly name = "SandjetSandbox";
  readonly provider = "sandjet";
  status: ProviderStatus = "pending";
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;

  constructor(options: WorkspaceOptions = {}) {
    super({ ...options, name: "SandjetSandbox", workingDirectory: options.workingDirectory ?? root });
    this.sandbox = sandbox(options);
    this.id = this.sandbox.session;
  }

  protected override async find(): Promise<Sandbox | undefined> {
    return (await this.sandbox.info()) === undefined ? undefined : this.sandbox;
  }

  protected override connect(): void {} // a session comes back with its next command

  protected override async create(): Promise<void> {
    await this.sandbox.bash("true"); // which makes it
  }

  override async destroy(): Promise<void> {
    await this.sandbox.destroy();
  }

  override async executeCommand(name: string, args: string[] = [], options: ExecuteCommandOptions = {}): Promise<CommandResult> {
    await this.ensureRunning();
    const text = [name, ...args.map(word)].join(" ");
    const env = Object.entries({ ...this.getEnv(), ...options.env }).filter((e): e is [string, string] => e[1] !== undefined);
    const r = await command(this.sandbox, text, {
      cwd: options.cwd ?? this.workingDirectory, env: Object.fromEntries(env), timeout: Math.min(options.timeout ?? longest, longest), signal: options.abortSignal,
    });
    if (r.stdout !== "") options.onStdout?.(r.stdout);
    if (r.stderr !== "") options.onStderr?.(r.stderr);
    const [stdout, stderr] = [newest(r.stdout, options.maxRetainedBytes), newest(r.stderr, options.maxRetainedBytes)];
    return {
      success: exitOf(r) === 0, exitCode: exitOf(r), executionTimeMs: r.duration_ms, timedOut: r.timed_out, command: text,
      stdout: stdout.text, stdoutTruncated: stdout.dropped > 0, stdoutDroppedBytes: stdout.dropped,
      stderr: stderr.text, stderrTruncated: stderr.dropped > 0, stderrDroppedBytes: stderr.dropped,
    };
  }

  override async writeFiles(files: SandboxFileInput[], options: WriteFilesOptions = {}): Promise<void> {
    for (const { mode } of files) if (mode !== undefined) validateSandboxFileMode(mode);
    await this.ensureRunning();
    for (const { path, content, mode } of files) {
      await write(this.sandbox, path, content, options.abortSignal);
      if (mode !== undefined) await helper(this.sandbox, path, `chmod ${mode.toString(8)} -- ${quoted(path)}`, options.abortSignal);
    }
  }

  override getInstructions(): string {
    return description;
  }

  override async getInfo(): Promise<SandboxInfo> {
    const s = await this.sandbox.info();
    return {
      id: this.id, name: this.name, provider: this.provider, status: this.status,
      createdAt: s === undefined ? new Date() : new Date(s.created_at),
      ...(s !== undefined && { lastUsedAt: new Date(s.last_used_at), metadata: { workspace: s.workspace, conversation: s.conversation } }),
      ...(s?.expires_at !== undefined && { timeoutAt: new Date(s.expires_at) }),
    };
  }
}

/** newest is the end of an output, at most so many bytes of it. */
function newest(output: string, most = Infinity): { text: string; dropped: number } {
  const bytes = new TextEncoder().encode(output);
  if (bytes.length <= most) return { text: output, dropped: 0 };
  let from = bytes.length - most;
  while ((bytes[from]! & 0xc0) === 0x80) from++; // in the middle of a rune
  return { text: new TextDecoder().decode(bytes.subarray(from)), dropped: from };
}

const { Buffer } = globalThis as unknown as { Buffer: { from(bytes: ArrayBufferLike, offset: number, length: number): any } }; // of Node.js

/** SandjetFilesystem has the files of a session, the same ones that its commands see. */
export class SandjetFilesystem extends MastraFilesystem {
  readonly id: string;
  readonly name = "SandjetFilesystem";
  readonly provider = "sandjet";
  status: ProviderStatus = "pending";
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;

  constructor(box: Sandbox) {
    super({ name: "SandjetFilesystem" });
    this.sandbox = box;
    this.id = box.session;
  }

  getInstructions(): string {
    return `The files of the sandbox: paths are relative to ${root}, or below it.`;
  }

  async readFile(path: string, options: ReadOptions = {}): ReturnType<WorkspaceFilesystem["readFile"]> {
    const bytes = await named(path, "readFile", () => read(this.sandbox, path));
    if (bytes === undefined) throw new FileNotFoundError(path);
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return options.encoding === undefined ? buffer : buffer.toString(options.encoding);
  }

  async writeFile(path: string, content: FileContent, options: WriteOptions = {}): Promise<void> {
    if (options.recursive === false) await this.#folder(parentOf(path));
    if (options.expectedMtime !== undefined || options.overwrite === false) {
      const found = await this.#stat(path);
      if (found !== undefined && options.overwrite === false) throw new FileExistsError(path);
      if (found !== undefined && options.expectedMtime !== undefined && found.modified.getTime() !== options.expectedMtime.getTime()) {
        throw new StaleFileError(path, options.expectedMtime, found.modified);
      }
    }
    await named(path, "writeFile", () => write(this.sandbox, path, content));
  }

  async appendFile(path: string, content: FileContent): Promise<void> {
    if ((await this.#stat(path))?.type === "directory") throw new IsDirectoryError(path);
    const part = `.append-${newID()}`;
    await write(this.sandbox, part, content);
    await this.#run(path, `mkdir -p -- ${quoted(parentOf(path))} && cat -- ${quoted(part)} >> ${quoted(path)}; was=$?; rm -f -- ${quoted(part)}; exit $was`);
  }

  async deleteFile(path: string, options: RemoveOptions = {}): Promise<void> {
    const found = await named(path, "deleteFile", () => removeFile(this.sandbox, path));
    if (!found && !options.force) throw new FileNotFoundError(path);
  }

  async copyFile(src: string, dest: string, options: CopyOptions = {}): Promise<void> {
    const folder = (await this.#source(src, dest, options)).type === "directory";
    if (folder && !options.recursive) throw new IsDirectoryError(src);
    const copy = folder
      ? `mkdir -p -- ${quoted(dest)} && cp -r -- ${quoted(src)}/. ${quoted(dest)}`
      : `mkdir -p -- ${quoted(parentOf(dest))} && cp -f -- ${quoted(src)} ${quoted(dest)}`;
    await this.#run(dest, copy);
  }

  async moveFile(src: string, dest: string, options: CopyOptions = {}): Promise<void> {
    const from = await this.#source(src, dest, options);
    if (from.type === "directory" && (await this.exists(dest))) throw new FileExistsError(dest);
    await this.#run(dest, `mkdir -p -- ${quoted(parentOf(dest))} && mv -f -- ${quoted(src)} ${quoted(dest)}`);
  }

  async mkdir(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const found = await this.#stat(path);
    if (found?.type === "directory") return;
    if (found !== undefined) throw new FileExistsError(path);
    if (options.recursive === false) await this.#folder(parentOf(path));
    await this.#run(path, `mkdir -p -- ${quoted(path)}`);
  }

  async rmdir(path: string, options: RemoveOptions = {}): Promise<void> {
    if (inside(path) === "") throw new SandjetError("invalid", "the workspace itself is not removed: destroy the sandbox", "path");
    if (options.force && (await this.#stat(path)) === undefined) return;
    await this.#folder(path);
    if (!options.recursive && (await list(this.sandbox, path))?.length !== 0) throw new DirectoryNotEmptyError(path);
    await this.#run(path, `rm -rf -- ${quoted(path)}`);
  }

  async readdir(path: string, options: ListOptions = {}): Promise<FileEntry[]> {
    await this.#folder(path);
    return this.#list(inside(path), "", options, options.maxDepth ?? 100);
  }

  async exists(path: string): Promise<boolean> {
    return (await this.#stat(path)) !== undefined;
  }

  async stat(path: string): Promise<FileStat> {
    const found = await this.#stat(path);
    if (found === undefined) throw new FileNotFoundError(path);
    const at = inside(path);
    const type = found.type === "directory" ? "directory" : "file";
    return { name: at.slice(at.lastIndexOf("/") + 1), path: at, type, size: type === "file" ? found.size : 0, createdAt: found.modified, modifiedAt: found.modified };
  }

  async #list(path: string, prefix: string, options: ListOptions, depth: number): Promise<FileEntry[]> {
    const wanted = options.extension === undefined ? undefined : [options.extension].flat().map((e) => `.${e.replace(/^\./, "")}`);
    const all: FileEntry[] = [];
    for (const e of (await list(this.sandbox, path)) ?? []) {
      const link = e.type === "link";
      const folder = await isFolder(this.sandbox, e);
      if (folder || link || wanted === undefined || wanted.some((w) => e.name.endsWith(w))) {
        all.push({
          name: prefix + e.name, type: folder ? "directory" : "file", ...(link && { isSymlink: true }),
          ...(!folder && !link && e.size !== undefined && { size: e.size }),
        });
      }
      if (options.recursive && folder && !link && depth > 0) all.push(...(await this.#list(e.path, `${prefix}${e.name}/`, options, depth - 1)));
    }
    return all;
  }

  #stat(path: string): Promise<Stat | undefined> {
    return named(path, "stat", () => stat(this.sandbox, path));
  }

  async #run(path: string, text: string): Promise<void> {
    await named(path, "write", () => helper(this.sandbox, path, text));
  }

  /** #folder wants a folder at a path. */
  async #folder(path: string): Promise<void> {
    const found = await this.#stat(path);
    if (found === undefined) throw new DirectoryNotFoundError(path);
    if (found.type !== "directory") throw new NotDirectoryError(path);
  }

  /** #source is what is copied or moved, to where nothing is in its way. */
  async #source(src: string, dest: string, options: CopyOptions): Promise<Stat> {
    const found = await this.#stat(src);
    if (found === undefined) throw new FileNotFoundError(src);
    const there = await this.#stat(dest);
    if (there !== undefined && options.overwrite === false) throw new FileExistsError(dest);
    if (there?.type === "directory" && found.type !== "directory") throw new IsDirectoryError(dest);
    return found;
  }
}

function parentOf(path: string): string {
  return inside(path).split("/").slice(0, -1).join("/");
}

/** named has an error of a path as the framework names it. */
async function named<T>(path: string, operation: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (e) {
    const what = pathError(e);
    if (what === "file_not_found") throw new FileNotFoundError(path);
    if (what === "is_directory") throw new IsDirectoryError(path);
    if (what === "permission_denied") throw new PermissionError(path, operation);
    throw e;
  }
}
