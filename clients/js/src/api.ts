import { Download } from "./download.js";
import { SandjetError } from "./errors.js";
import { Files, type DownloadOptions } from "./files.js";
import { HTTP, type HTTPOptions } from "./http.js";
import { Sandbox, type SandboxSession } from "./sandbox.js";

/** Artifact is a file that a call has left for people, as it was when the call ended. */
export interface Artifact {
  id: string;
  call: string;
  conversation: string;
  /** path is from the root of the call's workspace. */
  path: string;
  name: string;
  mime_type: string;
  kind: string;
  size: number;
  /** sha256 is of the content, in hexadecimal digits. */
  sha256: string;
  /** url is of the content, below that of the gateway. */
  url: string;
  created: string;
}

/** api asks a gateway by HTTP: files, archives, artifacts, sandbox sessions. Conversations are followed by `connect`. */
export function api(options: HTTPOptions): API {
  return new API(options);
}

/** API is a gateway by HTTP. Requests that are safe to repeat are, when the gateway or the network fails for a while. */
export class API {
  readonly #http: HTTP;

  constructor(options: HTTPOptions) {
    this.#http = new HTTP(options);
  }

  /** files are those of a workspace, by its id. */
  files(workspace: string): Files {
    return new Files(this.#http, workspace);
  }

  /** sandbox is a session of /v1/sandbox, by a name of your choice: 1 to 64 letters, digits, _, . and -. It is made by its first use. */
  sandbox(session: string): Sandbox {
    return new Sandbox(this.#http, session);
  }

  /** sandboxes goes through the account's sessions. */
  async *sandboxes(signal?: AbortSignal): AsyncGenerator<SandboxSession, void, undefined> {
    for (let after: string | undefined; ; ) {
      const page = await this.#http.json<{ sessions: SandboxSession[]; next?: string }>("/v1/sandbox/sessions", { query: { after }, signal });
      yield* page.sessions;
      after = page.next;
      if (!after) return;
    }
  }

  /** artifacts goes through those of a conversation, in the order in which they were stored. */
  async *artifacts(conversation: string, options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<Artifact, void, undefined> {
    const path = `/v1/conversations/${encodeURIComponent(conversation)}/artifacts`;
    for (let after = options.after; ; ) {
      const page = await this.#http.json<{ artifacts: Artifact[]; next?: string }>(path, { query: { after }, signal: options.signal });
      yield* page.artifacts;
      after = page.next;
      if (!after) return;
    }
  }

  /** artifact begins to read one. Its ETag is the SHA-256 of its content. Code: not_found. */
  artifact(id: string, options: DownloadOptions = {}): Promise<Download> {
    return Download.begin(this.#http, `/v1/artifacts/${encodeURIComponent(id)}`, options);
  }

  /** artifactBytes reads a whole one, and returns it only if the bytes are those that the call left. */
  async artifactBytes(id: string, options: { signal?: AbortSignal } = {}): Promise<Uint8Array> {
    const d = await this.artifact(id, options);
    const all = await d.bytes();
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", all as BufferSource));
    if (Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("") !== d.etag) {
      throw new SandjetError("internal", `${all.length} bytes came, and they are not those of the artifact`);
    }
    return all;
  }

  /** removeArtifact removes one from the lists and from its URL. Code: not_found. */
  async removeArtifact(id: string, signal?: AbortSignal): Promise<void> {
    await this.#http.ask(`/v1/artifacts/${encodeURIComponent(id)}`, { method: "DELETE", signal });
  }
}
