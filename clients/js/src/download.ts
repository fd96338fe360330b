import { SandjetError } from "./errors.js";
import type { DownloadOptions } from "./files.js";
import type { HTTP } from "./http.js";

/**
 * Download is the bytes of one version of a file: an iteration that can be gone through once. When the connection breaks it continues
 * where it was; when the file was replaced meanwhile it ends with the code conflict.
 */
export class Download implements AsyncIterable<Uint8Array> {
  readonly #http: HTTP;
  readonly #path: string;
  readonly #options: DownloadOptions;
  #response: Response | undefined;
  #at: number; // of the next byte
  readonly #end: number;
  /** size is that of the whole file, in bytes. */
  readonly size: number;
  readonly etag: string;
  /** disposition is what the gateway says of the file's name. */
  readonly disposition: string;

  private constructor(http: HTTP, path: string, options: DownloadOptions, r: Response) {
    this.#http = http;
    this.#path = path;
    this.#options = options;
    this.#response = r;
    this.etag = (r.headers.get("ETag") ?? "").replaceAll('"', "");
    this.disposition = r.headers.get("Content-Disposition") ?? "";
    const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(r.headers.get("Content-Range") ?? "");
    this.size = Number(range?.[3] ?? r.headers.get("Content-Length"));
    this.#at = Number(range?.[1] ?? 0);
    this.#end = range === null ? this.size : Number(range[2]) + 1;
  }

  /** begin asks for a file. */
  static async begin(http: HTTP, path: string, options: DownloadOptions): Promise<Download> {
    const headers: Record<string, string> = {};
    if (options.ifMatch !== undefined) headers["If-Match"] = `"${options.ifMatch}"`;
    if (options.start !== undefined || options.end !== undefined) {
      headers["Range"] = `bytes=${options.start ?? 0}-${options.end === undefined ? "" : options.end - 1}`;
    }
    return new Download(http, path, options, await http.ask(path, { headers, signal: options.signal }));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (let attempt = 0; this.#at < this.#end; attempt++) {
      const before = this.#at;
      const r = this.#response ?? (await this.#again());
      this.#response = undefined;
      const reader = r.body?.getReader();
      try {
        for (;;) {
          let piece: ReadableStreamReadResult<Uint8Array> | undefined;
          try {
            piece = await reader?.read();
          } catch (e) {
            if (this.#options.signal?.aborted) throw this.#options.signal.reason;
            break; // the connection broke: the rest is asked for
          }
          if (piece === undefined || piece.done) break;
          this.#at += piece.value.length;
          yield piece.value;
        }
      } finally {
        void reader?.cancel().catch(() => undefined); // of an iteration that is left
      }
      if (this.#at >= this.#end) return;
      if (this.#at > before) attempt = 0;
      else if (attempt + 1 >= this.#http.tries) throw new SandjetError("unavailable", `${this.#path}: it breaks off at byte ${this.#at}`);
      await this.#http.pause(attempt, this.#options.signal);
    }
  }

  async #again(): Promise<Response> {
    const headers = { "If-Match": `"${this.etag}"`, Range: `bytes=${this.#at}-${this.#end - 1}` };
    return this.#http.ask(this.#path, { headers, signal: this.#options.signal });
  }

  /** bytes reads all of it into memory. */
  async bytes(): Promise<Uint8Array> {
    const all = new Uint8Array(this.#end - this.#at);
    let n = 0;
    for await (const piece of this) {
      all.set(piece, n);
      n += piece.length;
    }
    return all;
  }

  /** text reads all of it as UTF-8. */
  async text(): Promise<string> {
    return new TextDecoder().decode(await this.bytes());
  }

  /** stream is the same as a stream. */
  stream(): ReadableStream<Uint8Array> {
    const from = this[Symbol.asyncIterator]();
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
}
