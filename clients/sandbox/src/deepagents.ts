/**
 * A backend of Deep Agents: `createDeepAgent({ model, backend: new SandjetBackend() })`.
 *
 * @packageDocumentation
 */
import { SandjetError, type Sandbox } from "@sandjet/client";
import { BaseSandbox } from "deepagents";
import { exitOf, read, sandbox, write, type SandboxOptions } from "./index.js";

type FileError = "file_not_found" | "permission_denied" | "is_directory" | "invalid_path";

/** BackendOptions of a backend. */
export interface BackendOptions extends SandboxOptions {
  /** timeout is of each command, in milliseconds: 600,000 by default, which is the most. */
  timeout?: number;
}

/**
 * SandjetBackend runs the commands of an agent, and keeps its files below /workspace. Nothing is sent twice when the network fails in
 * the middle of a command: that is an error, because the command may have run.
 */
export class SandjetBackend extends BaseSandbox {
  readonly id: string;
  /** sandbox is Sandjet's own side of it. */
  readonly sandbox: Sandbox;
  readonly #timeout: number;

  constructor(options: BackendOptions = {}) {
    super();
    this.sandbox = sandbox(options);
    this.id = this.sandbox.session;
    this.#timeout = options.timeout ?? 600_000;
  }

  async execute(command: string): Promise<{ output: string; exitCode: number | null; truncated: boolean }> {
    const r = await this.sandbox.bash(command, { timeout: this.#timeout });
    return { output: r.stdout + r.stderr, exitCode: exitOf(r), truncated: r.truncated };
  }

  async uploadFiles(files: [string, Uint8Array][]): Promise<{ path: string; error: FileError | null }[]> {
    const done: { path: string; error: FileError | null }[] = [];
    for (const [path, content] of files) {
      const error = await write(this.sandbox, path, content).then(() => null, errorOf);
      done.push({ path, error });
    }
    return done;
  }

  async downloadFiles(paths: string[]): Promise<{ path: string; content: Uint8Array | null; error: FileError | null }[]> {
    const done: { path: string; content: Uint8Array | null; error: FileError | null }[] = [];
    for (const path of paths) {
      try {
        const content = (await read(this.sandbox, path)) ?? null;
        done.push({ path, content, error: content === null ? "file_not_found" : null });
      } catch (e) {
        done.push({ path, content: null, error: errorOf(e) });
      }
    }
    return done;
  }
}

/** errorOf is the framework's word for what is wrong with a path. Other errors are thrown. */
function errorOf(e: unknown): FileError {
  if (!(e instanceof SandjetError)) throw e;
  if (e.code === "not_found") return "file_not_found";
  if (e.code === "denied" && e.field === "path") return "permission_denied";
  if (e.code === "invalid") return e.message.includes("folder") && !e.message.includes("part that is a file") ? "is_directory" : "invalid_path";
  throw e;
}
