import { Download } from "./download.js";
import { SandjetError } from "./errors.js";
import type { HTTP } from "./http.js";
import { newID } from "./operations.js";

/** FileInfo is something in a workspace. */
export interface FileInfo {
  /** path is from the root of the workspace; "." is the root. */
  path: string;
  type: string;
  /** size is in bytes, of a file. */
  size: number;
  modified: string;
  /** etag changes with a file's content; listings have none. */
  etag?: string;
  executable?: boolean;
}

/** FileList is a page of a folder, in the order of the paths' bytes. */
export interface FileList {
  entries: FileInfo[];
  /** more: ask again with `after`, the path of the last one. */
  more: boolean;
  /** unnamed is how many entries are left out because their names are not UTF-8. */
  unnamed?: number;
}

/** Unpacked is what was written of an archive. */
export interface Unpacked {
  files: number;
  folders: number;
  bytes: number;
  last?: string;
}

/** Content is what can be uploaded. Streams and iterations are read once, and held in parts of 8 MiB. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

export interface UploadOptions {
  /** ifMatch is the ETag that the file must have. */
  ifMatch?: string;
  /** create: there must be no such file. */
  create?: boolean;
  /** id names the upload, by at most 64 letters, digits, - and _: within a day another process continues it, from the same content. */
  id?: string;
  /** onProgress hears how many bytes are stored. */
  onProgress?: (stored: number) => void;
  signal?: AbortSignal;
}

export interface DownloadOptions {
  /** start is the first byte, and end the first one that is not wanted. */
  start?: number;
  end?: number;
  /** ifMatch is the ETag that the file must have. */
  ifMatch?: string;
  signal?: AbortSignal;
}

const part = 8 << 20;

/** Files are the files of one workspace. */
export class Files {
  readonly #http: HTTP;
  readonly #base: string;

  constructor(http: HTTP, workspace: string) {
    this.#http = http;
    this.#base = `/v1/workspaces/${encodeURIComponent(workspace)}`;
  }

  /** page lists a folder, "" for the root: at most 1,000 entries. */
  async page(folder = "", options: { recursive?: boolean; after?: string; limit?: number; signal?: AbortSignal } = {}): Promise<FileList> {
    const { signal, ...query } = options;
    return this.#http.json(`${this.#base}/files`, { query: { path: folder || undefined, ...query }, signal });
  }

  /** list goes through all entries of a folder. */
  async *list(folder = "", options: { recursive?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<FileInfo, void, undefined> {
    for (let after: string | undefined; ; ) {
      const page = await this.page(folder, { ...options, ...(after !== undefined && { after }) });
      yield* page.entries;
      after = page.entries.at(-1)?.path;
      if (!page.more || after === undefined) return;
    }
  }

  /** stat describes a file or a folder; a folder's time is not known. Code: not_found. */
  async stat(path: string, signal?: AbortSignal): Promise<FileInfo> {
    const clean = path.replace(/^\/+|\/+$/g, "") || ".";
    if (clean !== ".") {
      try {
        const r = await this.#http.ask(this.#file(path), { method: "HEAD", signal });
        return {
          path: clean,
          type: "file",
          size: Number(r.headers.get("Content-Length")),
          modified: new Date(r.headers.get("Last-Modified") ?? 0).toISOString(),
          etag: (r.headers.get("ETag") ?? "").replaceAll('"', ""),
        };
      } catch (e) { // an answer to HEAD has no body that says why
        if (!(e instanceof SandjetError) || e.code !== "invalid") throw e;
      }
    }
    await this.page(clean === "." ? "" : clean, { limit: 1, ...(signal && { signal }) });
    return { path: clean, type: "directory", size: 0, modified: new Date(0).toISOString() };
  }

  /** upload stores a file, with its folders. It is there once all of it is. Codes: conflict, invalid, exhausted, unavailable. */
  async upload(path: string, content: Content, options: UploadOptions = {}): Promise<FileInfo> {
    const headers: Record<string, string> = { "Content-Type": "application/octet-stream" };
    if (options.ifMatch !== undefined) headers["If-Match"] = `"${options.ifMatch}"`;
    if (options.create) headers["If-None-Match"] = "*";
    const { signal } = options;
    const id = options.id ?? newID();
    const upload = `${this.#base}/uploads/${encodeURIComponent(id)}`;
    const from = options.id === undefined ? 0 : await this.#stored(upload, signal);
    let at = 0;
    let begun = false; // some of the file may be stored
    try {
      for await (const { bytes, last } of parts(content)) {
        if (last || at + bytes.length > from) {
          begun = at > 0 || !last;
          const query = begun ? { upload: id, offset: at, complete: last } : {};
          const r = await this.#http.ask(this.#file(path), { method: "PUT", query, headers, body: bytes as BodyInit, signal });
          if (last) {
            options.onProgress?.(at + bytes.length);
            return (await r.json()) as FileInfo;
          }
          await r.arrayBuffer();
        }
        at += bytes.length;
        options.onProgress?.(at);
      }
    } catch (e) {
      if (options.id === undefined && begun) void this.#http.ask(upload, { method: "DELETE" }).catch(() => undefined);
      throw e;
    }
    throw new SandjetError("internal", "the content has no last part");
  }

  async #stored(upload: string, signal: AbortSignal | undefined): Promise<number> {
    try {
      return (await this.#http.json<{ offset: number }>(upload, { signal })).offset;
    } catch (e) {
      if (e instanceof SandjetError && e.code === "not_found") return 0;
      throw e;
    }
  }

  /** download begins to read a file, or a part of it. Codes: not_found, invalid (it is no file), conflict (ifMatch). */
  async download(path: string, options: DownloadOptions = {}): Promise<Download> {
    return Download.begin(this.#http, this.#file(path), options);
  }

  /** move gives a file or a folder another name. Codes: not_found, conflict (there is something of that name). */
  async move(from: string, to: string, options: { overwrite?: boolean; signal?: AbortSignal } = {}): Promise<FileInfo> {
    const json = { from, to, overwrite: options.overwrite ?? false };
    return this.#http.json(`${this.#base}/move`, { method: "POST", json, once: true, signal: options.signal });
  }

  /** mkdir makes a folder with its parents. One that is there stays as it is. */
  async mkdir(path: string, signal?: AbortSignal): Promise<FileInfo> {
    return this.#http.json(`${this.#base}/mkdir`, { method: "POST", json: { path }, signal });
  }

  /** remove removes a file, or a folder: one that is not empty only where recursive says so. Codes: not_found, conflict. */
  async remove(path: string, options: { recursive?: boolean; ifMatch?: string; signal?: AbortSignal } = {}): Promise<void> {
    const headers: Record<string, string> = options.ifMatch === undefined ? {} : { "If-Match": `"${options.ifMatch}"` };
    await this.#http.ask(this.#file(path), { method: "DELETE", query: { recursive: options.recursive }, headers, signal: options.signal });
  }

  /**
   * archive reads a folder as a tar. It is not resumed: a stream that ends with an error was no whole archive.
   * Codes: not_found, exhausted (it has more than 10,000 entries).
   */
  async archive(folder = "", options: { format?: "tar" | "tar.gz"; signal?: AbortSignal } = {}): Promise<ReadableStream<Uint8Array>> {
    const query = { path: folder || undefined, format: options.format };
    const r = await this.#http.ask(`${this.#base}/archive`, { query, signal: options.signal });
    if (r.body === null) throw new SandjetError("internal", "the answer has no body");
    return r.body;
  }

  /** unpack writes a tar, which may be compressed by gzip, below a folder. Codes: invalid (an entry that is refused), exhausted. */
  async unpack(folder: string, tar: Content, options: { signal?: AbortSignal } = {}): Promise<Unpacked> {
    const headers = { "Content-Type": "application/x-tar" };
    return this.#http.json(`${this.#base}/archive`, {
      method: "PUT", query: { path: folder || undefined }, headers, body: asBody(tar), signal: options.signal,
    });
  }

  #file(path: string): string {
    const parts = path.replace(/^\/+|\/+$/g, "").split("/").filter((p) => p !== ".");
    if (parts.includes("..")) { // which URLs resolve: it would be another route
      throw new SandjetError("invalid", `${JSON.stringify(path)}: .. is not allowed, paths begin at the root of the workspace`, "path");
    }
    return `${this.#base}/files/${parts.map(encodeURIComponent).join("/")}`;
  }
}

function asBody(content: Content): BodyInit {
  if (typeof content === "object" && Symbol.asyncIterator in content && !(content instanceof ReadableStream)) {
    const from = content[Symbol.asyncIterator]();
    return new ReadableStream<Uint8Array>({
      async pull(to) {
        const { value, done } = await from.next();
        if (done) to.close();
        else to.enqueue(value);
      },
      async cancel() {
        await from.return?.();
      },
    });
  }
  return content as BodyInit;
}

/** parts cuts content into parts of one size; the last has less, or nothing. */
async function* parts(content: Content): AsyncGenerator<{ bytes: Uint8Array; last: boolean }, void, undefined> {
  let held = new Uint8Array(part);
  let n = 0;
  for await (const chunk of chunks(content)) {
    for (let at = 0; at < chunk.length; ) {
      const some = chunk.subarray(at, at + part - n);
      held.set(some, n);
      n += some.length;
      at += some.length;
      if (n === part) {
        yield { bytes: held, last: false };
        held = new Uint8Array(part);
        n = 0;
      }
    }
  }
  yield { bytes: held.subarray(0, n), last: true };
}

async function* chunks(content: Content): AsyncGenerator<Uint8Array, void, undefined> {
  if (typeof content === "string") yield new TextEncoder().encode(content);
  else if (content instanceof Uint8Array) yield content;
  else if (content instanceof ArrayBuffer) yield new Uint8Array(content);
  else if (Symbol.asyncIterator in content && !(content instanceof Blob)) yield* content as AsyncIterable<Uint8Array>;
  else {
    const reader = (content instanceof Blob ? content.stream() : (content as ReadableStream<Uint8Array>)).getReader();
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      reader.releaseLock();
    }
  }
}
