/**
 * Sandboxes of Sandjet for frameworks of agents: one subpath each, of which the framework is an optional peer.
 *
 * @packageDocumentation
 */
import { api, newID, SandjetError, type Entry, type HTTPOptions, type Run, type Sandbox } from "@sandjet/client";

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

/** description says to a model what a sandbox is. */
export const description =
  `A Linux sandbox with bash. Commands start in ${root}, where all files are that stay; relative paths begin there. ` +
  "Each command is a new process: files stay, variables and the working directory do not.";

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
  return word(`./${inside(path)}`);
}

/** word is a text as one word of bash. */
export function word(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** longest is how long a command may run, in milliseconds. */
export const longest = 600_000;

/** CommandOptions of one command. What is undefined is the sandbox's own. */
export interface CommandOptions {
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  timeout?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** command runs once, in a folder of the workspace. Where that failed on the way, the error says that it may have run: models read it. */
export async function command(box: Sandbox, text: string, options: CommandOptions = {}): Promise<Run> {
  const cwd = options.cwd === undefined ? undefined : inside(options.cwd) || ".";
  try {
    return await box.bash(text, {
      ...(cwd !== undefined && { cwd }),
      ...(options.env !== undefined && { env: options.env }),
      ...(options.timeout !== undefined && { timeout: options.timeout }),
      ...(options.signal !== undefined && { signal: options.signal }),
    });
  } catch (e) {
    if (!(e instanceof SandjetError) || (e.code !== "unavailable" && e.code !== "interrupted")) throw e;
    throw new SandjetError(e.code, `${e.message}. The command may have run: look before you run it again`, e.field);
  }
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

/** helper runs a command of an integration's own. It returns undefined where it ends with 44: there is nothing at the path. */
export async function helper(box: Sandbox, path: string, text: string, signal?: AbortSignal): Promise<Run | undefined> {
  const r = await command(box, text, { timeout: longest, signal });
  if (r.exit_code === 44 && !r.timed_out) return undefined;
  if (exitOf(r) !== 0) throw new SandjetError("invalid", r.stderr.trim() || `${path}: exit code ${exitOf(r)}`, "path");
  return r;
}

/** Stat is what a path names, through links. */
export interface Stat {
  type: "file" | "directory" | "other";
  size: number;
  modified: Date;
}

/** stat looks at a path, and returns undefined where nothing is. */
export async function stat(box: Sandbox, path: string, signal?: AbortSignal): Promise<Stat | undefined> {
  const at = quoted(path);
  const r = await helper(box, path, `[ -e ${at} ] || exit 44; TZ=UTC stat -Lc '%s %y %F' -- ${at}`, signal);
  if (r === undefined) return undefined;
  const found = /^(\d+) (\S+) (\d\d:\d\d:\d\d(?:\.\d{1,3})?)\d* (?:[+-]\d{4} )?(.*)\n$/.exec(r.stdout);
  if (found === null) throw new SandjetError("internal", `${path}: what stat printed is not understood: ${r.stdout.trim()}`, "path");
  const type = found[4]!.startsWith("regular") ? "file" : found[4] === "directory" ? "directory" : "other";
  return { type, size: Number(found[1]), modified: new Date(`${found[2]}T${found[3]}Z`) };
}

const mostListed = 2000;

/** list is what is in one folder, with names, or undefined where there is none. */
export async function list(box: Sandbox, path: string, signal?: AbortSignal): Promise<(Entry & { name: string })[] | undefined> {
  try {
    const found = await box.list(inside(path), { limit: mostListed, ...(signal !== undefined && { signal }) });
    if (found.truncated) {
      throw new SandjetError("exhausted", `${path} has ${found.total} entries, and ${mostListed} can be listed: list it with a command, or use folders`, "path");
    }
    return found.entries.map((e) => ({ ...e, name: e.path.slice(e.path.lastIndexOf("/") + 1) }));
  } catch (e) {
    if (e instanceof SandjetError && e.code === "not_found") return undefined;
    throw e;
  }
}

/** isFolder reports whether an entry of a list is a folder, or a link to one. */
export async function isFolder(box: Sandbox, entry: Entry): Promise<boolean> {
  return entry.type === "directory" || (entry.type === "link" && (await stat(box, entry.path))?.type === "directory");
}

/** removeFile removes a file or a link, not a folder. It reports whether there was one. */
export async function removeFile(box: Sandbox, path: string, signal?: AbortSignal): Promise<boolean> {
  const at = quoted(path);
  const text = `[ -e ${at} ] || [ -L ${at} ] || exit 44; if [ -d ${at} ] && [ ! -L ${at} ]; then echo 'it is a directory' >&2; exit 45; fi; rm -f -- ${at}`;
  return (await helper(box, path, text, signal)) !== undefined;
}

/** PathError is what is wrong with a path. */
export type PathError = "file_not_found" | "permission_denied" | "is_directory" | "invalid_path";

/** pathError classifies an error of a file operation. Errors that are not of a path are thrown. */
export function pathError(e: unknown): PathError {
  if (!(e instanceof SandjetError)) throw e;
  if (e.code === "not_found") return "file_not_found";
  if (e.code === "denied" && e.field === "path") return "permission_denied";
  if (e.code === "invalid") return /folder|is a directory/.test(e.message) && !e.message.includes("part that is a file") ? "is_directory" : "invalid_path";
  throw e;
}

/** unsupported is the error for what a framework asks for and sandboxes do not have. */
export function unsupported(message: string, field: string): SandjetError {
  return new SandjetError("unsupported", message, field);
}
