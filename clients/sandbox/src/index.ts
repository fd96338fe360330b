/**
 * Sandboxes of Sandjet for frameworks of agents: one subpath each, of which the framework is an optional peer.
 *
 * @packageDocumentation
 */
import { api, newID, SandjetError, type HTTPOptions, type Run, type Sandbox } from "@sandjet/client";

/** SandboxOptions say which sandbox is meant, and whose. */
export interface SandboxOptions extends Partial<HTTPOptions> {
  /** session is the sandbox's name, 1 to 64 letters, digits, _, . and -: a process that names it again gets the same files. Default: a new one. */
  session?: string;
}

/** gatewayOf completes options from the environment: SANDJET_URL and SANDJET_KEY, as `sandjet info --shell` prints them. */
export function gatewayOf(options: Partial<HTTPOptions> = {}): HTTPOptions {
  const env = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {};
  const url = options.url ?? env["SANDJET_URL"];
  const token = options.token ?? env["SANDJET_KEY"];
  if (!url || !token) {
    throw new SandjetError("invalid", "there is no url or no token: give both, or set SANDJET_URL and SANDJET_KEY", url ? "token" : "url");
  }
  return { ...options, url, token };
}

/** sandbox is one session. It is made by its first use. */
export function sandbox(options: SandboxOptions = {}): Sandbox {
  return api(gatewayOf(options)).sandbox(options.session ?? newID());
}

/** root is where the files of a sandbox are, to its commands and to all paths. */
export const root = "/workspace";

/** inside makes a path relative to the workspace. Codes: invalid (it is outside). */
export function inside(path: string): string {
  const parts = path.split("/").filter((p) => p !== "" && p !== ".");
  if (path.startsWith("/") && parts.shift() !== "workspace") {
    throw new SandjetError("invalid", `${JSON.stringify(path)} is outside of the workspace: use a relative path, or one below ${root}`, "path");
  }
  if (parts.includes("..") || path.includes("\0")) {
    throw new SandjetError("invalid", `${JSON.stringify(path)}: .. and NUL are not allowed`, "path");
  }
  return parts.join("/");
}

/** quoted is a path as one word of bash, from the root of the workspace. */
export function quoted(path: string): string {
  return `'./${inside(path).replaceAll("'", `'\\''`)}'`;
}

/** exitOf is a run's exit code: 124 for one that its timeout ended, as timeout(1) has it. */
export function exitOf(run: Run): number {
  return run.timed_out ? 124 : run.exit_code;
}

const mostByRequest = 3 << 20;
const mostRead = 8 << 20;

/** write stores a file of any size, with its folders. What is larger than one request goes by the routes of files. */
export async function write(box: Sandbox, path: string, content: string | Uint8Array, signal?: AbortSignal): Promise<void> {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  const at = inside(path);
  if (bytes.length <= mostByRequest) {
    await box.write(at, bytes, signal === undefined ? {} : { signal });
    return;
  }
  if ((await box.info(signal)) === undefined) await box.bash("true", signal === undefined ? {} : { signal }); // which makes the session
  await (await box.files(signal)).upload(at, bytes, signal === undefined ? {} : { signal });
}

/** read reads a whole file of any size, or undefined where there is none. */
export async function read(box: Sandbox, path: string, signal?: AbortSignal): Promise<Uint8Array | undefined> {
  const at = inside(path);
  try {
    return await box.readBytes(at, signal);
  } catch (e) {
    if (!(e instanceof SandjetError)) throw e;
    if (e.code === "not_found") return undefined;
    if (e.code !== "invalid" || !e.message.includes(String(mostRead))) throw e;
  }
  return (await (await box.files(signal)).download(at, signal === undefined ? {} : { signal })).bytes();
}

/** fails throws what a helper's command says on its standard error. */
export function fails(run: Run, path: string): SandjetError {
  return new SandjetError("invalid", run.stderr.trim() || `${path}: exit code ${exitOf(run)}`, "path");
}
