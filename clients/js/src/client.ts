import { Attachment, type AttachOptions } from "./attachment.js";
import { pauseBefore, type Backoff } from "./backoff.js";
import { SandjetError } from "./errors.js";
import { newID, Operations, type Accepted, type Answer, type Request } from "./operations.js";
import { CLOSE, decodeFrame, KEY_PROTOCOL, SUBPROTOCOL, type Frame } from "./wire.js";

/** Status is what the connection does: hold on to it for a light in a corner of the page. */
export type Status = "connecting" | "open" | "waiting" | "closed";

/** Token is an account's key or an attach token; a function is asked anew for each connection and before one expires. */
export type Token = string | (() => string | Promise<string>);

/** Options of a client. Times are milliseconds. */
export interface Options {
  /** url is the gateway's, such as https://sandjet.example.com or http://127.0.0.1:8080. */
  url: string;
  token: Token;
  /** backoff bounds the pauses between connections: 500 doubling to 30,000 by default, with full jitter. */
  backoff?: Partial<Backoff>;
  /** idle is how long nothing may come before the gateway is asked for a sign of life, 20,000 by default. */
  idle?: number;
  /** patience is how long that sign, or an open connection, may take, 10,000 by default. */
  patience?: number;
  /** signal closes the client. */
  signal?: AbortSignal;
  /** onStatus hears of every change, and for `waiting` why the last connection ended. */
  onStatus?: (status: Status, why?: string) => void;
  /** WebSocket is the class to use where there is no global one: Node before 22. */
  WebSocket?: new (url: string, protocols: string[]) => WebSocket;
  /** fetch asks why a connection was refused, which a WebSocket cannot say. */
  fetch?: typeof fetch;
}

/** connect makes a client and begins to connect. It never throws for the network's sake: it goes on trying. */
export function connect(options: Options): Client {
  return new Client(options);
}

/**
 * Client is one connection to a gateway, made anew whenever it ends, with any number of conversations on it. It stops
 * for good by `close`, or by an error that will not pass, which then ends every loop and every open question.
 */
export class Client {
  readonly #options: Options;
  readonly #backoff: Backoff;
  readonly #url: string;
  readonly #attachments = new Map<string, Attachment>();
  readonly #operations = new Operations();
  #socket: WebSocket | undefined;
  #open = false;
  #lastID = 0;
  #attempt = 0;
  #refused = 0; // connections in a row that never opened
  #comeBack: number | undefined; // the pause that the gateway asked for
  #timer: ReturnType<typeof setTimeout> | undefined; // of the next connection
  #watchdog: ReturnType<typeof setTimeout> | undefined;
  #error: SandjetError | undefined;
  #status: Status | undefined;

  constructor(options: Options) {
    this.#options = options;
    this.#backoff = { first: options.backoff?.first ?? 500, most: options.backoff?.most ?? 30_000 };
    this.#url = options.url.replace(/\/+$/, "").replace(/^http/, "ws") + "/v1/ws";
    if (options.signal?.aborted) this.close();
    else void this.#connect();
    options.signal?.addEventListener("abort", () => this.close(), { once: true });
  }

  /** attach follows a conversation: every event after the cursor, once and in order, then what comes. */
  attach(conversation: string, options: AttachOptions = {}): Attachment {
    if (this.#attachments.has(conversation)) {
      throw new SandjetError("conflict", `this client follows ${conversation} already: detach first`);
    }
    const a = new Attachment(
      {
        attach: (a) => this.#attach(a),
        detach: (a) => this.#detach(a),
        retry: (a) => this.#later(() => this.#attach(a)),
        gone: (a) => {
          if (this.#attachments.get(a.conversation) === a) this.#attachments.delete(a.conversation);
        },
      },
      conversation,
      options,
    );
    this.#attachments.set(conversation, a);
    if (this.#error !== undefined) a.fail(this.#error);
    else if (options.signal?.aborted) void a.return();
    else this.#attach(a);
    return a;
  }

  /** send hands in a call. It has an id, made here unless given, so sending again after a reconnect never runs it twice. */
  async send(request: Request, signal?: AbortSignal): Promise<Accepted> {
    const f = await this.#ask({ op: "send", request: { ...request, id: request.id ?? newID() } }, signal);
    return {
      call: f["call"] as string,
      conversation: f["conversation"] as string,
      existing: f["existing"] === true,
      ...(typeof f["approval"] === "string" && { approval: f["approval"] }),
    };
  }

  /** cancel asks for the end of a call. Its result, an event, says whether that came in time. */
  async cancel(call: string, reason?: string, signal?: AbortSignal): Promise<void> {
    await this.#ask({ op: "cancel", call, ...(reason !== undefined && { reason }) }, signal);
  }

  /** approve answers a call that waits for a person. */
  async approve(approval: string, answer: Answer, signal?: AbortSignal): Promise<void> {
    await this.#ask({ ...answer, op: "approve", approval }, signal);
  }

  /** close ends the connection, every loop and every open question. */
  close(): void {
    this.#fail(new SandjetError("closed", "the client was closed"), true);
  }

  #ask(op: { op: string; [field: string]: unknown }, signal?: AbortSignal): Promise<Frame> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return this.#operations.ask({ ...op, id: ++this.#lastID }, (f) => this.#write(f), signal);
  }

  // One connection.

  async #connect(): Promise<void> {
    this.#timer = undefined;
    this.#say("connecting");
    let token: string;
    try {
      token = typeof this.#options.token === "string" ? this.#options.token : await this.#options.token();
    } catch (e) {
      this.#again(undefined, `no token: ${String(e)}`);
      return;
    }
    if (this.#error !== undefined) return;
    const Socket = this.#options.WebSocket ?? globalThis.WebSocket;
    let socket: WebSocket;
    try {
      socket = new Socket(this.#url, [SUBPROTOCOL, KEY_PROTOCOL + token]);
    } catch (e) { // a malformed URL or token, or no class: the next try would be no better
      this.#fail(new SandjetError("invalid", `no WebSocket can be opened: ${String(e)}`));
      return;
    }
    this.#socket = socket;
    this.#watch(socket, this.#options.patience ?? 10_000, () => this.#ended(socket, 1006, "it took too long to open", token));
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#open = true;
      this.#refused = 0;
      this.#say("open");
      this.#alive(socket);
      for (const a of this.#attachments.values()) this.#attach(a);
      this.#operations.resend((f) => this.#write(f));
    };
    socket.onmessage = (m: MessageEvent) => {
      if (socket !== this.#socket) return;
      this.#alive(socket);
      const f = typeof m.data === "string" ? decodeFrame(m.data) : undefined;
      if (f === undefined) {
        this.#fail(new SandjetError("invalid", "what came is not Sandjet's protocol: is the URL a gateway's?"));
        return;
      }
      this.#attempt = 0;
      this.#hear(f, (m.data as string).length);
    };
    socket.onclose = (c: CloseEvent) => this.#ended(socket, c.code, c.reason, token);
    socket.onerror = () => undefined; // close follows, and says as little
  }

  /** hear takes a frame that was sent in so many characters. */
  #hear(f: Frame, size: number): void {
    switch (f.op) {
      case "bye":
        this.#comeBack = f.retry_ms;
        return;
      case "expiring":
        void this.#renew();
        return;
      case "batch": {
        const frames = f.frames ?? [];
        for (const one of frames) this.#hear(one, size / frames.length);
        return;
      }
    }
    if (f.conv !== undefined) {
      const a = this.#attachments.get(f.conv);
      if (a === undefined) return;
      const own = f.id !== undefined && f.id === a.request;
      if (own && f.op === "attached") {
        a.answered = true;
        a.take(f, size);
      } else if (own && f.op === "error") { // the gateway has detached it
        a.request = 0;
        a.answered = false;
        a.take(f, size);
      } else if (a.answered && f.id === undefined && f.op !== "error") {
        a.take(f, size);
      }
      return;
    }
    if (f.id !== undefined && this.#operations.answer(f) === "again") {
      const id = f.id;
      this.#later(() => this.#operations.resend((frame) => this.#write(frame), id));
    }
  }

  #ended(socket: WebSocket, code: number, reason: string, token: string): void {
    if (socket !== this.#socket) return;
    const opened = this.#open;
    this.#drop();
    if (this.#error !== undefined) return;
    if (code >= CLOSE.final) {
      this.#fail(new SandjetError("invalid", `the gateway ended the connection for good: ${reason || code}`));
    } else if (code === CLOSE.auth && typeof this.#options.token === "string") {
      this.#fail(new SandjetError("denied", "the token is no longer good: give connect a function that gets another"));
    } else if (!opened && ++this.#refused > 1) {
      void this.#whyRefused(token).then((e) => (e === undefined ? this.#again(code, reason) : this.#fail(e)));
    } else {
      this.#again(code, reason);
    }
  }

  #again(code: number | undefined, why: string): void {
    if (this.#error !== undefined) return;
    const pause = this.#comeBack ?? pauseBefore(this.#attempt++, this.#backoff, Math.random);
    this.#comeBack = undefined;
    this.#say("waiting", why || (code === undefined ? "" : `close code ${code}`));
    this.#timer = setTimeout(() => void this.#connect(), pause);
  }

  // A WebSocket does not tell a wrong key from a broken network; a plain request does.
  async #whyRefused(token: string): Promise<SandjetError | undefined> {
    const [conversation] = this.#attachments.keys();
    const ask = this.#options.fetch ?? globalThis.fetch;
    if (conversation === undefined || ask === undefined) return undefined;
    const url = `${this.#options.url.replace(/\/+$/, "")}/v1/conversations/${encodeURIComponent(conversation)}/events?after=now&limit=1`;
    try {
      const r = await ask(url, {
        headers: { Authorization: `Bearer ${token}` },
        signal: AbortSignal.timeout(this.#options.patience ?? 10_000),
      });
      if (r.status === 401) return new SandjetError("denied", "the gateway refuses the token");
    } catch {
      // the network, or a page that may not ask: nothing is known
    }
    return undefined;
  }

  async #renew(): Promise<void> {
    if (typeof this.#options.token === "string") return;
    const socket = this.#socket;
    try {
      const token = await this.#options.token();
      if (socket === this.#socket) await this.#ask({ op: "auth", token });
    } catch {
      // the gateway closes with 4002 then, and the next connection asks again
    }
  }

  #attach(a: Attachment): void {
    if (!this.#open || !a.wanted || this.#attachments.get(a.conversation) !== a) return;
    if (a.request !== 0) this.#write({ op: "detach", conv: a.conversation });
    a.request = ++this.#lastID;
    a.answered = false;
    this.#write({ op: "attach", id: a.request, conv: a.conversation, after: a.after, ...(a.compact && { compact: true }), ...(a.batch && { batch: true }) });
  }

  #detach(a: Attachment): void {
    if (a.request !== 0) this.#write({ op: "detach", conv: a.conversation });
    a.request = 0;
    a.answered = false;
  }

  #write(frame: object): boolean {
    if (!this.#open || this.#socket === undefined) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  // #later does something on the connection of now, after a pause. A new connection does it by itself.
  #later(act: () => void): void {
    const socket = this.#socket;
    const pause = this.#backoff.first / 2 + pauseBefore(0, this.#backoff, Math.random);
    setTimeout(() => {
      if (socket === this.#socket && this.#open) act();
    }, pause);
  }

  // Pings of WebSockets are hidden from pages, so silence is broken with a question of our own.
  #alive(socket: WebSocket): void {
    this.#watch(socket, this.#options.idle ?? 20_000, () => {
      this.#write({ op: "ping" });
      this.#watch(socket, this.#options.patience ?? 10_000, () => this.#ended(socket, 1006, "the gateway fell silent", ""));
    });
  }

  #watch(socket: WebSocket, after: number, act: () => void): void {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => {
      if (socket === this.#socket) act();
    }, after);
  }

  #drop(): void {
    clearTimeout(this.#watchdog);
    const socket = this.#socket;
    this.#socket = undefined;
    this.#open = false;
    for (const a of this.#attachments.values()) {
      a.request = 0;
      a.answered = false;
    }
    if (socket !== undefined) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      try {
        socket.close();
      } catch {
        // it was closed, or it never opened
      }
    }
  }

  #fail(e: SandjetError, quietly = false): void {
    if (this.#error !== undefined) return;
    this.#error = e;
    clearTimeout(this.#timer);
    this.#drop();
    for (const a of [...this.#attachments.values()]) {
      if (quietly) void a.return();
      else a.fail(e);
    }
    this.#operations.fail(e);
    this.#say("closed", e.message);
  }

  #say(status: Status, why?: string): void {
    if (status === this.#status && status !== "waiting") return;
    this.#status = status;
    this.#options.onStatus?.(status, why);
  }
}
