import { fromProblem, isPassing, SandjetError } from "./errors.js";
import type { Frame } from "./wire.js";

/** Request is a tool call. With an `id` of your own, sending it again for a day is the same call. */
export interface Request {
  id?: string;
  tool: string;
  input: unknown;
  conversation?: string;
  [field: string]: unknown;
}

/** Accepted is the answer to a call: it is on the log and has exactly one result, which comes as an event. */
export interface Accepted {
  call: string;
  conversation: string;
  /** existing says that the id was known: nothing new was begun. */
  existing: boolean;
  /** approval is set when a person has to allow the call first. */
  approval?: string;
}

/** Answer is what a person says to a call that waits for one. */
export interface Answer {
  approved: boolean;
  reason?: string;
  [field: string]: unknown;
}

interface Pending {
  frame: { op: string; id: number; [field: string]: unknown };
  sent: number;
  resolve: (f: Frame) => void;
  reject: (e: unknown) => void;
}

/**
 * Operations are the questions that have no answer yet. After a reconnect all of them are sent again: each is safe to
 * repeat, calls because they carry an id.
 */
export class Operations {
  readonly #pending = new Map<number, Pending>();

  /** ask returns the answer to a frame, however many connections it takes. */
  ask(frame: Pending["frame"], write: (frame: object) => boolean, signal?: AbortSignal): Promise<Frame> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const done = (): void => {
        this.#pending.delete(frame.id);
        signal?.removeEventListener("abort", abort);
      };
      const abort = (): void => {
        done();
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", abort, { once: true });
      const p: Pending = {
        frame,
        sent: 0,
        resolve: (f) => (done(), resolve(f)),
        reject: (e) => (done(), reject(e)),
      };
      this.#pending.set(frame.id, p);
      if (write(frame)) p.sent++;
    });
  }

  /** answer hears a frame that bears a number; false: nobody asked, or it is to be asked again after a while. */
  answer(f: Frame): "taken" | "again" | "unknown" {
    const p = this.#pending.get(f.id ?? 0);
    if (p === undefined) return "unknown";
    if (f.op !== "error") p.resolve(f);
    else if (isPassing(f.error?.code)) return "again";
    else if (p.frame.op === "cancel" && p.sent > 1 && f.error?.code === "conflict") {
      p.resolve({ op: "cancelling" }); // the first try ended it, and its answer was lost
    } else p.reject(fromProblem(f.error));
    return "taken";
  }

  /** resend writes one question, or all that are open, again. */
  resend(write: (frame: object) => boolean, id?: number): void {
    for (const p of this.#pending.values()) {
      if ((id === undefined || p.frame.id === id) && write(p.frame)) p.sent++;
    }
  }

  /** fail ends all with an error. */
  fail(e: SandjetError): void {
    for (const p of [...this.#pending.values()]) p.reject(e);
  }
}

/** newID makes the id of a call. It works on pages without TLS too, where crypto.randomUUID is missing. */
export function newID(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "js_" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
