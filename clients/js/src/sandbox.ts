import { SandjetError } from "./errors.js";
import { Files } from "./files.js";
import type { HTTP } from "./http.js";

/** SandboxSession is a session as the list has it. */
export interface SandboxSession {
  tenant_id: string;
  session_id: string;
  backend: string;
  state: string;
  created_at: string;
  last_used_at: string;
  expires_at?: string;
  workspace: string;
  conversation: string;
}

/** Run is what became of a command. */
export interface Run {
  /** execution_id is the call's: /v1/calls/{id} shows it. */
  execution_id: string;
  session_id: string;
  ok: boolean;
  exit_code: number;
  timed_out: boolean;
  truncated: boolean;
  duration_ms: number;
  stdout: string;
  stderr: string;
  artifacts: SandboxArtifact[];
}

/** SandboxArtifact is a file that a run left in `outputs/`, as it was when the run ended: its bytes are at url. */
export interface SandboxArtifact {
  artifact_id: string;
  path: string;
  name: string;
  mime_type: string;
  size: number;
  sha256: string;
  kind: string;
  url: string;
  call_id: string;
}

/** RunOptions of one run. */
export interface RunOptions {
  /** timeout is of the run, in milliseconds: at most 600,000, and the sandbox's own (30,000) if there is none. */
  timeout?: number;
  /** env are variables of the run. */
  env?: Record<string, string>;
  /**
   * key makes it once: the same request with the same key is one run for a day, through failures of everything between. A run with
   * a key continues when the signal ends the waiting; one without is cancelled, and a failure of the network leaves it unknown.
   */
  key?: string;
  signal?: AbortSignal;
}

/** Entry is a name in a folder. */
export interface Entry {
  /** path is relative to the workspace. */
  path: string;
  type: string;
  size?: number;
  modified_at?: string;
}

/** Match is a line that a search found. */
export interface Match {
  path: string;
  line: number;
  text: string;
}

interface Pending {
  execution_id: string;
  status_url: string;
}

const mostWritten = 3 << 20; // by one request

/** Sandbox is one session: a workspace with a sandbox that comes back when it is used. Paths are relative, or below /workspace. */
export class Sandbox {
  readonly #http: HTTP;
  readonly session: string;

  constructor(http: HTTP, session: string) {
    this.#http = http;
    this.session = session;
  }

  /** bash runs a command, in a folder of the workspace. */
  async bash(command: string, options: RunOptions & { cwd?: string } = {}): Promise<Run> {
    return this.#run("bash", { command, cwd: options.cwd }, options);
  }

  /** execute runs code: python (the default), bash or node. `result` prints the value of Python's last expression. */
  async execute(code: string, options: RunOptions & { language?: "python" | "bash" | "node"; result?: boolean } = {}): Promise<Run> {
    return this.#run("execute", { code, language: options.language, result: options.result }, options);
  }

  async #run(what: string, body: object, options: RunOptions): Promise<Run> {
    const json = { ...body, session_id: this.session, timeout_ms: options.timeout, env: options.env };
    for (;;) {
      const r = await this.#ask(what, json, options);
      const answer = (await r.json()) as Run | Pending;
      if (r.status !== 202) return answer as Run;
      const { execution_id, status_url } = answer as Pending;
      if (options.key === undefined) {
        throw new SandjetError("interrupted", `the gateway stopped waiting for ${execution_id}: its result will be at ${status_url}`);
      }
    }
  }

  /** readBytes reads a whole file of at most 8 MiB. Codes: not_found, invalid (a folder, a link that leads out, too large). */
  async readBytes(path: string, signal?: AbortSignal): Promise<Uint8Array> {
    const r = await this.#ask("read_binary", { session_id: this.session, path }, { ...(signal && { signal }), again: true }, { Accept: "application/octet-stream" });
    return new Uint8Array(await r.arrayBuffer());
  }

  /** readText reads a whole file of at most 8 MiB as UTF-8. */
  async readText(path: string, signal?: AbortSignal): Promise<string> {
    return new TextDecoder().decode(await this.readBytes(path, signal));
  }

  /** write stores a file with its folders: text of at most 5 MiB, bytes of at most 3 MiB. It returns its ETag, for ifMatch. */
  async write(path: string, content: string | Uint8Array, options: { ifMatch?: string; signal?: AbortSignal } = {}): Promise<string> {
    if (typeof content !== "string" && content.length > mostWritten) {
      throw new SandjetError("invalid", `${content.length} bytes are more than ${mostWritten}: upload them with files()`, "content");
    }
    const json = {
      session_id: this.session, path, if_match: options.ifMatch,
      ...(typeof content === "string" ? { content } : { content_base64: base64(content) }),
    };
    const r = await this.#ask("write", json, { ...(options.signal && { signal: options.signal }), again: options.ifMatch === undefined });
    return ((await r.json()) as { etag: string }).etag;
  }

  /** list is what is in one folder, hidden names too, in the order of the names. Code: not_found. */
  async list(path = "", options: { limit?: number; signal?: AbortSignal } = {}): Promise<{ entries: Entry[]; total: number; truncated: boolean }> {
    const json = { session_id: this.session, path: path || undefined, limit: options.limit };
    return (await (await this.#ask("ls", json, { ...(options.signal && { signal: options.signal }), again: true })).json()) as never;
  }

  /** glob looks for names; ** crosses folders. */
  async glob(pattern: string, options: { path?: string; signal?: AbortSignal } = {}): Promise<{ paths: GlobPath[]; truncated: boolean }> {
    const json = { session_id: this.session, pattern, path: options.path };
    return (await (await this.#ask("glob", json, { ...(options.signal && { signal: options.signal }), again: true })).json()) as never;
  }

  /** grep looks for lines by a regular expression, or as they are with `literal`. */
  async grep(
    pattern: string,
    options: { path?: string; glob?: string; literal?: boolean; caseInsensitive?: boolean; maxCount?: number; signal?: AbortSignal } = {},
  ): Promise<{ matches: Match[]; truncated: boolean }> {
    const json = {
      session_id: this.session, pattern, path: options.path, glob: options.glob, mode: options.literal ? "literal" : undefined,
      case_insensitive: options.caseInsensitive, max_count: options.maxCount,
    };
    return (await (await this.#ask("grep", json, { ...(options.signal && { signal: options.signal }), again: true })).json()) as never;
  }

  /** info is the session as the list has it, or undefined before its first use. */
  async info(signal?: AbortSignal): Promise<SandboxSession | undefined> {
    for (let after: string | undefined; ; ) {
      const page = await this.#http.json<{ sessions: SandboxSession[]; next?: string }>("/v1/sandbox/sessions", { query: { after }, signal });
      const found = page.sessions.find((s) => s.session_id === this.session);
      if (found !== undefined || !page.next) return found;
      after = page.next;
    }
  }

  /** files are those of the session's workspace, of any size, where the provider has them. Code: not_found (it was never used). */
  async files(signal?: AbortSignal): Promise<Files> {
    const s = await this.info(signal);
    if (s === undefined) throw new SandjetError("not_found", `there is no session ${this.session}: it is made by its first use`, "session_id");
    return new Files(this.#http, s.workspace);
  }

  /**
   * destroy ends the session with its processes and files. It reports whether there was one. Where the end takes longer than the gateway
   * waits, the gateway finishes it by itself: until then the session is `ending`, and its name cannot be used.
   */
  async destroy(signal?: AbortSignal): Promise<boolean> {
    const path = `/v1/sandbox/sessions/me/${encodeURIComponent(this.session)}`;
    try {
      return (await this.#http.json<{ deleted: boolean }>(path, { method: "DELETE", signal, final: "timeout" })).deleted;
    } catch (e) {
      if (!(e instanceof SandjetError) || (e.code !== "timeout" && e.code !== "not_found")) throw e;
      return e.code === "timeout";
    }
  }

  // #ask sends a request again only if that has no second effect.
  #ask(what: string, json: object, options: { key?: string; signal?: AbortSignal; again?: boolean }, headers: Record<string, string> = {}): Promise<Response> {
    return this.#http.ask(`/v1/sandbox/${what}`, {
      method: "POST", json, signal: options.signal, once: options.key === undefined && !options.again,
      headers: { ...headers, ...(options.key !== undefined && { "Idempotency-Key": options.key }) },
    });
  }
}

/** GlobPath is a file or folder. What vanished since it was found has no size and no time. */
export interface GlobPath {
  path: string;
  size: number | null;
  modified_at: string | null;
  is_dir: boolean;
}

function base64(bytes: Uint8Array): string {
  let s = "";
  for (let at = 0; at < bytes.length; at += 0x8000) s += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(s);
}
