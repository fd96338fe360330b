import { Chain } from "./chain.js";
import { fromProblem, isPassing, SandjetError } from "./errors.js";
import type { Event, Frame, Gap, Snapshot } from "./wire.js";

/** Item is one event of a conversation. */
export interface Item {
  event: Event;
  /** cursor resumes after this event: keep it with what you made of the event. */
  cursor: string;
  /** replay says that the event was history when it was sent. */
  replay: boolean;
}

/** AttachOptions say where a conversation is taken up and what else is wanted of it. */
export interface AttachOptions {
  /** after is the cursor to resume after, "-1" (the default) for the beginning, "now" for the present end. */
  after?: string;
  /** compact leaves out of the history what a later event of it tells whole, such as the output of a finished call. */
  compact?: boolean;
  /** batch asks for the history in messages of many events, true by default: quicker, and what a gateway may compress. */
  batch?: boolean;
  /** signal detaches; the loop then ends without an error. */
  signal?: AbortSignal;
  /** buffer is how many events may wait to be taken, 1,024 by default, of about 8 MiB together; what is beyond stays in the log. */
  buffer?: number;
  /** onGap hears of events that are no longer kept, in order with the events around them. */
  onGap?: (gap: Gap) => void;
  /** onLive hears, once, that the history has been told. */
  onLive?: () => void;
  /** onSnapshot hears what a call had printed, where a compact replay begins in the middle of it. After a reconnect it may be told again. */
  onSnapshot?: (snapshot: Snapshot) => void;
}

/** Wire is what an attachment needs of its connection. */
export interface Wire {
  attach(a: Attachment): void;
  detach(a: Attachment): void;
  /** retry attaches again after a while. */
  retry(a: Attachment): void;
  /** gone is told once the attachment needs nothing any more. */
  gone(a: Attachment): void;
}

type Step = Item | (() => void);

const MOST = 8 << 20; // characters of what waits, about: one event more may be there
const LOW = 4; // a conversation that was left for want of room is taken up again when a quarter of the room is used

/**
 * Attachment is one followed conversation, over as many connections as it takes. Iterate over it once:
 * `for await (const { event, cursor } of attachment)`. Breaking out of the loop detaches.
 *
 * Events wait in a buffer that is bounded in number and size. A browser cannot stop reading a socket, so when the buffer is full the
 * conversation is detached, and attached again after the last event in the buffer when there is room.
 */
export class Attachment implements AsyncIterableIterator<Item> {
  readonly conversation: string;
  readonly compact: boolean;
  readonly batch: boolean;
  /** cursor is that of the last event handed out: resume after it. */
  cursor: string;
  /** request is the number of the attach that is in force: 0 while there is none. Frames before its answer are old. */
  request = 0;
  /** answered says that the attach in force has been answered. */
  answered = false;

  readonly #wire: Wire;
  readonly #options: AttachOptions;
  readonly #room: number;
  readonly #chain: Chain;
  readonly #steps: Step[] = [];
  readonly #sizes: number[] = []; // of #steps, in characters
  #size = 0; // of all that wait
  #head = 0; // of #steps: shifting a long array is slow
  #waiting: { resolve: (r: IteratorResult<Item>) => void; reject: (e: unknown) => void } | undefined;
  #full = false;
  #live = false;
  #holeAt = "";
  #over = false;
  #error: SandjetError | undefined;
  readonly #abort = (): void => void this.return();

  constructor(wire: Wire, conversation: string, options: AttachOptions) {
    this.conversation = conversation;
    this.compact = options.compact ?? false;
    this.batch = options.batch ?? true;
    this.#wire = wire;
    this.#options = options;
    this.#room = Math.max(1, options.buffer ?? 1024);
    this.#chain = new Chain(options.after ?? "-1");
    this.cursor = this.#chain.at;
    options.signal?.addEventListener("abort", this.#abort, { once: true });
  }

  /** after is where a new connection takes up the conversation. */
  get after(): string {
    return this.#chain.at;
  }

  /** wanted says that a connection should attach it. */
  get wanted(): boolean {
    return !this.#over && !this.#full;
  }

  /** take hears one frame of the conversation from the attach in force, which was sent in so many characters. */
  take(f: Frame, size = 0): void {
    if (this.#over || this.#full) return;
    switch (f.op) {
      case "attached":
        this.#chain.begin(f.head);
        this.#gap(f);
        break;
      case "gap":
        this.#gap(f);
        break;
      case "ev":
        this.#gap(f);
        this.#event(f, size);
        break;
      case "live":
        this.#gap(f);
        this.#chain.caughtUp(f.cur);
        if (!this.#live) this.#push(() => this.#options.onLive?.());
        this.#live = true;
        break;
      case "snapshot":
        if (f.snapshot !== undefined) {
          const snapshot = f.snapshot;
          this.#push(() => this.#options.onSnapshot?.(snapshot), size);
        }
        break;
      case "eof":
        this.#finish(undefined);
        break;
      case "error":
        if (isPassing(f.error?.code)) this.#wire.retry(this);
        else this.#finish(fromProblem(f.error));
        break;
    }
  }

  /** fail ends the loop with an error, after what is in the buffer. */
  fail(e: SandjetError): void {
    this.#finish(e);
  }

  async next(): Promise<IteratorResult<Item>> {
    while (this.#head < this.#steps.length) {
      this.#size -= this.#sizes[this.#head] as number;
      const step = this.#steps[this.#head++] as Step;
      this.#shrink();
      if (typeof step === "function") {
        step();
        continue;
      }
      this.cursor = step.cursor;
      return { done: false, value: step };
    }
    if (this.#error !== undefined) {
      const e = this.#error;
      this.#error = undefined;
      throw e;
    }
    if (this.#over) return { done: true, value: undefined };
    if (this.#waiting !== undefined) throw new SandjetError("conflict", "the attachment is being read already");
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  /** return detaches; what was not taken is dropped. */
  async return(): Promise<IteratorResult<Item>> {
    this.#steps.length = this.#sizes.length = this.#head = this.#size = 0;
    this.#finish(undefined);
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #gap(f: Frame): void {
    if (f.recovered !== false) return;
    const gap = f.gap ?? { from: this.#chain.at, to: this.#chain.at };
    this.#chain.skip(f.gap?.to, f.gap?.from);
    this.#push(() => this.#options.onGap?.(gap));
  }

  #event(f: Frame, size: number): void {
    const verdict = this.#chain.judge(f);
    if (verdict === "again") return;
    if (verdict === "hole") {
      const before = this.#chain.at;
      if (this.#holeAt !== before) { // what was lost on the way is in the log: ask for it
        this.#holeAt = before;
        this.#wire.attach(this);
        return;
      }
      const gap = { from: before, to: f.prev ?? before }; // the log has the same hole: own up to it
      this.#chain.skip(f.prev);
      this.#push(() => this.#options.onGap?.(gap));
      this.#chain.judge(f);
    }
    this.#push({ event: f.data as Event, cursor: f.cur as string, replay: f.replay ?? false }, size);
    if (this.#steps.length - this.#head >= this.#room || this.#size >= MOST) {
      this.#full = true;
      this.#wire.detach(this);
    }
  }

  #push(step: Step, size = 0): void {
    this.#steps.push(step);
    this.#sizes.push(size);
    this.#size += size;
    this.#wake();
  }

  #wake(): void {
    const waiting = this.#waiting;
    if (waiting === undefined) return;
    this.#waiting = undefined;
    this.next().then(waiting.resolve, waiting.reject);
  }

  #shrink(): void {
    if (this.#head >= 256 || this.#head === this.#steps.length) {
      this.#steps.splice(0, this.#head);
      this.#sizes.splice(0, this.#head);
      this.#head = 0;
    }
    if (this.#full && !this.#over && (this.#steps.length - this.#head) * LOW <= this.#room && this.#size * LOW <= MOST) {
      this.#full = false;
      this.#wire.attach(this);
    }
  }

  #finish(error: SandjetError | undefined): void {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#options.signal?.removeEventListener("abort", this.#abort);
    this.#wire.detach(this);
    this.#wire.gone(this);
    this.#wake();
  }
}
