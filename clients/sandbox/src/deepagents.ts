/**
 * A backend of Deep Agents: `createDeepAgent({ model, backend: new SandjetBackend() })`.
 *
 * @packageDocumentation
 */
import type { Sandbox } from "@sandjet/client";
import { BaseSandbox } from "deepagents";
import { exitOf, longest, pathError, read, sandbox, write, type PathError, type SandboxOptions } from "./index.js";

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
    this.#timeout = options.timeout ?? longest;
  }

  async execute(command: string): Promise<{ output: string; exitCode: number | null; truncated: boolean }> {
    const r = await this.sandbox.bash(command, { timeout: this.#timeout });
    return { output: r.stdout + r.stderr, exitCode: exitOf(r), truncated: r.truncated };
  }

  async uploadFiles(files: [string, Uint8Array][]): Promise<{ path: string; error: PathError | null }[]> {
    const done: { path: string; error: PathError | null }[] = [];
    for (const [path, content] of files) {
      const error = await write(this.sandbox, path, content).then(() => null, pathError);
      done.push({ path, error });
    }
    return done;
  }

  async downloadFiles(paths: string[]): Promise<{ path: string; content: Uint8Array | null; error: PathError | null }[]> {
    const done: { path: string; content: Uint8Array | null; error: PathError | null }[] = [];
    for (const path of paths) {
      try {
        const content = (await read(this.sandbox, path)) ?? null;
        done.push({ path, content, error: content === null ? "file_not_found" : null });
      } catch (e) {
        done.push({ path, content: null, error: pathError(e) });
      }
    }
    return done;
  }
}
