import { epochOf, isAfter, type Frame } from "./wire.js";

/** Verdict is what the chain says of an event: take it, pass over it, or something is missing before it. */
export type Verdict = "next" | "again" | "hole";

/**
 * Chain proves that a conversation is whole. Every event names the cursor of the one before it; whoever is told the
 * two can tell a repeat and a hole from what comes next, whatever happened on the way.
 */
export class Chain {
  /** at is the cursor of the last event taken: what a new connection resumes after. */
  at: string;
  #owned = false; // a gap was told and nothing came since: the next event need not prove itself

  constructor(after: string) {
    this.at = after === "" ? "-1" : after;
  }

  /** begin takes the answer to an attach. With "now", or behind a gap, the place is the gateway's to say. */
  begin(head: string | undefined): void {
    if (this.at === "now" && head !== undefined) this.at = head;
  }

  /**
   * skip goes on behind a gap that the gateway has owned up to. One that leads back is that of a log that has lost its
   * end: what is told next has places that were there before.
   */
  skip(to: string | undefined, from?: string): void {
    this.#owned = true;
    if (to !== undefined && from !== undefined && epochOf(to) !== "" && epochOf(from) === epochOf(to) && isAfter(from, to)) {
      this.at = to;
      return;
    }
    if (to !== undefined && (epochOf(to) !== epochOf(this.at) || isAfter(to, this.at))) this.at = to;
  }

  /** caughtUp goes to the place where the replay ended: a compacted one leaves events out, also the last ones. */
  caughtUp(cur: string | undefined): void {
    if (cur !== undefined && isAfter(cur, this.at)) this.at = cur;
  }

  /** judge says what an event is, and takes it when it is the next one. */
  judge(f: Frame): Verdict {
    const { cur = "", prev = "" } = f;
    if (!this.#owned && !this.#proven(cur, prev)) {
      return epochOf(cur) === epochOf(this.at) && !isAfter(cur, this.at) ? "again" : "hole";
    }
    if (epochOf(cur) === epochOf(this.at) && !isAfter(cur, this.at)) return "again";
    this.#owned = false;
    this.at = cur;
    return "next";
  }

  // Nothing lies between prev and cur, by the gateway's word. So nothing is missed when prev is not behind us.
  #proven(cur: string, prev: string): boolean {
    if (this.at === "-1") return prev === "-1" || /_0+$/.test(prev);
    if (epochOf(cur) !== epochOf(this.at)) return false; // a new epoch is told as a gap first
    return prev === "-1" || (epochOf(prev) === epochOf(this.at) && !isAfter(prev, this.at));
  }
}
