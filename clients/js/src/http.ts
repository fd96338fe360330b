import { pauseBefore, type Backoff } from "./backoff.js";
import type { Token } from "./client.js";
import { fromProblem, SandjetError } from "./errors.js";
import type { Problem } from "./wire.js";

/** HTTPOptions say where the gateway is and who asks. Times are milliseconds. */
export interface HTTPOptions {
  /** url is the gateway's, such as https://sandjet.example.com or http://127.0.0.1:8080. */
  url: string;
  token: Token;
  /** backoff bounds the pauses between tries: 500 doubling to 30,000 by default, with full jitter. */
  backoff?: Partial<Backoff>;
  /** tries is how often a request is sent before its failure is the caller's, 8 by default. */
  tries?: number;
  fetch?: typeof fetch;
}

/** Ask is one request. */
export interface Ask {
  method?: string;
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string>;
  /** json is sent as such; body as it is. A stream can be sent once only. */
  json?: unknown;
  body?: BodyInit;
  /** once: a failure of the connection is the caller's, because the request may have had its effect. */
  once?: boolean;
  /** final is a code after which it is not asked again, though others would be. */
  final?: string;
  signal?: AbortSignal | undefined;
}

/** HTTP sends requests, again where that is safe and may help. */
export class HTTP {
  readonly #options: HTTPOptions;
  readonly #url: string;
  readonly #backoff: Backoff;

  constructor(options: HTTPOptions) {
    this.#options = options;
    this.#url = options.url.replace(/\/+$/, "");
    this.#backoff = { first: options.backoff?.first ?? 500, most: options.backoff?.most ?? 30_000 };
  }

  /** ask returns an answer that says yes, with a body that nobody has read. Others are errors. */
  async ask(path: string, ask: Ask = {}): Promise<Response> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(ask.query ?? {})) if (value !== undefined) query.set(name, String(value));
    const url = this.#url + path + (query.size > 0 ? `?${query}` : "");
    for (let attempt = 0; ; attempt++) {
      let failure: SandjetError;
      let pause = pauseBefore(attempt, this.#backoff, Math.random);
      try {
        const r = await this.#send(url, ask);
        if (r.ok) return r;
        failure = await problemOf(r);
        const later = Number(r.headers.get("Retry-After"));
        if (later > 0) pause = Math.max(pause, later * 1000);
        if (![429, 502, 503, 504].includes(r.status) || failure.code === ask.final || (failure.code === "unavailable" && failure.field !== undefined)) throw failure;
      } catch (e) {
        if (ask.signal?.aborted) throw ask.signal.reason;
        if (e instanceof SandjetError) throw e;
        failure = new SandjetError("unavailable", `${ask.method ?? "GET"} ${path}: ${reasonOf(e)}`);
        if (ask.once) throw failure;
      }
      if (ask.body instanceof ReadableStream || attempt + 1 >= (this.#options.tries ?? 8)) throw failure;
      await sleep(pause, ask.signal);
    }
  }

  /** json is the answer's value. */
  async json<T>(path: string, ask: Ask = {}): Promise<T> {
    return (await (await this.ask(path, ask)).json()) as T;
  }

  /** pause waits before a try. */
  async pause(attempt: number, signal: AbortSignal | undefined): Promise<void> {
    await sleep(pauseBefore(attempt, this.#backoff, Math.random), signal);
  }

  /** tries is how often something is tried without any progress. */
  get tries(): number {
    return this.#options.tries ?? 8;
  }

  async #send(url: string, ask: Ask): Promise<Response> {
    const token = typeof this.#options.token === "string" ? this.#options.token : await this.#options.token();
    const headers: Record<string, string> = { Authorization: `Bearer ${token}`, ...ask.headers };
    let body = ask.body;
    if (ask.json !== undefined) {
      headers["Content-Type"] = "application/json";
      body = JSON.stringify(ask.json);
    }
    const init: RequestInit & { duplex?: string } = { method: ask.method ?? "GET", headers };
    if (ask.signal !== undefined) init.signal = ask.signal;
    if (body !== undefined) init.body = body;
    if (body instanceof ReadableStream) init.duplex = "half";
    return (this.#options.fetch ?? globalThis.fetch)(url, init);
  }
}

/** problemOf reads why the gateway says no. */
export async function problemOf(r: Response): Promise<SandjetError> {
  let problem: Problem | undefined;
  try {
    problem = ((await r.json()) as { error?: Problem }).error;
  } catch {
    // a proxy's page, or none at all: the status says what there is
  }
  if (problem?.code !== undefined) return fromProblem(problem);
  const code = { 401: "denied", 403: "denied", 404: "not_found", 409: "conflict", 412: "conflict", 429: "exhausted" }[r.status];
  return new SandjetError(code ?? (r.status >= 500 ? "unavailable" : "invalid"), `HTTP status ${r.status}`);
}

function reasonOf(e: unknown): string {
  const cause = e instanceof Error && e.cause instanceof Error ? `: ${e.cause.message}` : "";
  return (e instanceof Error ? e.message : String(e)) + cause;
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const done = (): void => {
      signal?.removeEventListener("abort", abort);
      resolve();
    };
    const timer = setTimeout(done, ms);
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
  });
}
