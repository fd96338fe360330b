/**
 * A backend of Deep Agents: `createDeepAgent({ model, backend: new SandjetBackend() })`.
 *
 * @packageDocumentation
 */
import { SandjetError, type Sandbox } from "@sandjet/client";
import { BaseSandbox, SandboxError, type EditResult, type GlobResult, type GrepResult, type LsResult } from "deepagents";
import { command, exitOf, inside, isFolder, list, longest, pathError, read, root, sandbox, write, type PathError, type SandboxOptions } from "./index.js";

/** BackendOptions of a backend. */
export interface BackendOptions extends SandboxOptions {
  /** timeout is of each command, in milliseconds: 600,000 by default, which is the most. */
  timeout?: number;
  /** initialFiles are written by initialize: contents by their paths. */
  initialFiles?: Record<string, string | Uint8Array>;
}

/**
 * SandjetBackend runs the commands of an agent, and keeps its files below /workspace. Nothing is sent twice when the network fails in
 * the middle of a command: that is an error, because the command may have run.
 *
 * Its sandbox is made by its first use, or by initialize. It ends when it is idle and comes back with its files; close ends it for good.
 */
export class SandjetBackend extends BaseSandbox {
  readonly id: string;
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;
  readonly #timeout: number;
  readonly #initialFiles: Record<string, string | Uint8Array>;
  #state: "new" | "running" | "closed" = "new";

  constructor(options: BackendOptions = {}) {
    super();
    this.sandbox = sandbox(options);
    this.id = this.sandbox.session;
    this.#timeout = options.timeout ?? longest;
    this.#initialFiles = options.initialFiles ?? {};
  }

  /** create makes a backend and its sandbox. */
  static async create(options: BackendOptions = {}): Promise<SandjetBackend> {
    const made = new SandjetBackend(options);
    await made.initialize();
    return made;
  }

  /** isRunning reports whether the backend was used and is not closed. */
  get isRunning(): boolean {
    return this.#state === "running";
  }

  /** initialize makes the sandbox and writes the initial files. */
  async initialize(): Promise<void> {
    if (this.#state === "running") throw new SandboxError("the sandbox is initialized already: use it", "ALREADY_INITIALIZED", undefined);
    await this.sandbox.bash("true"); // which makes it
    this.#state = "running";
    const files = Object.entries(this.#initialFiles).map(([path, content]): [string, Uint8Array] => [
      path, typeof content === "string" ? new TextEncoder().encode(content) : content,
    ]);
    for (const { path, error } of await this.uploadFiles(files)) {
      if (error !== null) throw new SandboxError(`the initial file ${path} was not written: ${error}`, "FILE_OPERATION_FAILED", undefined);
    }
  }

  /** close ends the sandbox with its processes and files, also where another process uses it. */
  async close(): Promise<void> {
    if (this.#state !== "closed") await this.sandbox.destroy();
    this.#state = "closed";
  }

  async execute(text: string): Promise<{ output: string; exitCode: number | null; truncated: boolean }> {
    this.#use();
    const r = await command(this.sandbox, text, { timeout: this.#timeout });
    return { output: r.stdout + r.stderr, exitCode: exitOf(r), truncated: r.truncated };
  }

  async uploadFiles(files: [string, Uint8Array][]): Promise<{ path: string; error: PathError | null }[]> {
    this.#use();
    const done: { path: string; error: PathError | null }[] = [];
    for (const [path, content] of files) {
      const error = path.startsWith("/") ? await write(this.sandbox, path, content).then(() => null, pathError) : "invalid_path";
      done.push({ path, error });
    }
    return done;
  }

  async downloadFiles(paths: string[]): Promise<{ path: string; content: Uint8Array | null; error: PathError | null }[]> {
    this.#use();
    const done: { path: string; content: Uint8Array | null; error: PathError | null }[] = [];
    for (const path of paths) {
      try {
        const content = path.startsWith("/") ? await read(this.sandbox, path) : null;
        done.push({ path, content: content ?? null, error: content === null ? "invalid_path" : content === undefined ? "file_not_found" : null });
      } catch (e) {
        done.push({ path, content: null, error: pathError(e) });
      }
    }
    return done;
  }

  // The framework's own ls and grep return without notice what fits into the output of a command, and misread some names.

  override async ls(path: string): Promise<LsResult> {
    if (!ours(path)) return super.ls(path);
    this.#use();
    try {
      const files = [];
      for (const e of (await list(this.sandbox, path)) ?? []) {
        const folder = await isFolder(this.sandbox, e);
        files.push({
          path: `${root}/${e.path}${folder ? "/" : ""}`, is_dir: folder,
          ...(e.size !== undefined && { size: e.size }), ...(e.modified_at !== undefined && { modified_at: new Date(e.modified_at).toISOString() }),
        });
      }
      return { files };
    } catch (e) {
      return failure(e);
    }
  }

  override async grep(pattern: string, path: string | null = null, glob: string | null = null, maxCount: number | null = null): Promise<GrepResult> {
    const at = path === null || path === "/" ? root : path; // all files that stay
    if (!ours(at)) return super.grep(pattern, at, glob, maxCount);
    this.#use();
    try {
      const { matches, truncated } = await this.sandbox.grep(pattern, {
        path: inside(at), literal: true, maxCount: Math.min(maxCount ?? mostMatches, mostMatches), ...(glob !== null && { glob }),
      });
      return { matches: matches.map((m) => ({ ...m, path: `${root}/${m.path}` })), ...(truncated && { truncated }) };
    } catch (e) {
      if (e instanceof SandjetError && e.code === "not_found") return { matches: [] };
      return failure(e);
    }
  }

  override async glob(pattern: string, path?: string): Promise<GlobResult> {
    const found = await super.glob(pattern, path);
    return { ...found, files: (found.files ?? []).filter((f) => f.path !== path) }; // the folder itself is none of its files
  }

  /** edit replaces text as it is: no character has a meaning. Line endings are taken as the file has them. */
  override async edit(path: string, old: string, fresh: string, all = false): Promise<EditResult> {
    const [found] = await this.downloadFiles([path]);
    if (found?.content == null) {
      return { error: found?.error === "file_not_found" ? `Error: File '${path}' not found` : `Error: File '${path}' is not edited: ${found?.error}` };
    }
    let text: string;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(found.content);
    } catch {
      return { error: `Error: File '${path}' is not edited: it is not UTF-8 text` };
    }
    if (old === "" && text !== "") return { error: "oldString must not be empty unless the file is empty" };
    const as = text.includes(old) ? (s: string) => s : (s: string) => s.replace(/\r?\n/g, text.includes("\r\n") ? "\r\n" : "\n");
    const parts = old === "" ? ["", ""] : text.split(as(old));
    const occurrences = old === "" && fresh === "" ? 0 : parts.length - 1;
    if (parts.length === 1) return { error: `String not found in file '${path}'` };
    if (old === fresh) return { path, filesUpdate: null, occurrences: all ? occurrences : Math.min(occurrences, 1) };
    if (occurrences > 1 && !all) return { error: `Multiple occurrences found in '${path}'. Use replaceAll=true to replace all.` };
    const [written] = await this.uploadFiles([[path, new TextEncoder().encode(parts.join(as(fresh)))]]);
    if (written?.error != null) return { error: `Failed to write edited file '${path}': ${written.error}` };
    return { path, filesUpdate: null, occurrences };
  }

  #use(): void {
    if (this.#state === "closed") throw new SandboxError("the sandbox is closed: create another one, or initialize it", "NOT_INITIALIZED", undefined);
    this.#state = "running";
  }
}

const mostMatches = 10_000;

/** ours reports whether a path is absolute and in the workspace. */
function ours(path: string): boolean {
  try {
    inside(path);
    return path.startsWith("/");
  } catch {
    return false;
  }
}

/** failure is what the gateway refuses. Failures of the network are thrown. */
function failure(e: unknown): { error: string } {
  if (e instanceof SandjetError && ["invalid", "denied", "exhausted"].includes(e.code)) return { error: `Error: ${e.message}` };
  throw e;
}
