// The frames of the protocol, close codes and cursors. Everything here is pure.

/** Subprotocol is what the gateway selects; the key travels beside it, because a browser cannot set headers. */
export const SUBPROTOCOL = "sandjet.v1";

/** KEY_PROTOCOL begins the subprotocol that carries an account's key or an attach token. */
export const KEY_PROTOCOL = "sandjet.key.";

/** The gateway's close codes. From FINAL on, coming back would end the same way. */
export const CLOSE = { drain: 4001, auth: 4002, behind: 4008, limit: 4009, protocol: 4503, final: 4500 } as const;

/** Event is one event of a conversation: a CloudEvent. Pass over types that you do not know. */
export interface Event {
  id: string;
  type: string;
  time: string;
  data?: unknown;
  [attribute: string]: unknown;
}

/** Gap is a part of a conversation that is no longer kept: what lay after `from`, up to `to`. */
export interface Gap {
  from: string;
  to: string;
}

/** Snapshot is what a call had printed before the place where a compact reader meets it. */
export interface Snapshot {
  call: string;
  attempt: number;
  /** output has an entry for each stream that printed: the next piece of it begins at offset + bytes. */
  output: { stream: string; offset: number; bytes: number; text: string }[];
}

/** Problem is how the gateway tells what is wrong. */
export interface Problem {
  code: string;
  message: string;
  field?: string;
}

/** Frame is one frame from the gateway; `op` says which of the fields are there. */
export interface Frame {
  op: string;
  id?: number;
  conv?: string;
  cur?: string;
  prev?: string;
  head?: string;
  recovered?: boolean;
  gap?: Gap;
  snapshot?: Snapshot;
  replay?: boolean;
  data?: Event;
  code?: number;
  retry_ms?: number;
  error?: Problem;
  /** frames are those of a batch, in order. */
  frames?: Frame[];
  [field: string]: unknown;
}

/** decodeFrame reads one frame, or returns undefined for what is none. */
export function decodeFrame(text: string): Frame | undefined {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isFrame(frame) || (frame.frames !== undefined && !(Array.isArray(frame.frames) && frame.frames.every(isFrame)))) return undefined;
  return frame;
}

function isFrame(frame: unknown): frame is Frame {
  return typeof frame === "object" && frame !== null && typeof (frame as Frame).op === "string";
}

/** epochOf is the part of a cursor that names the incarnation of the log; "" for -1, now and what is no cursor. */
export function epochOf(cursor: string): string {
  const at = cursor.indexOf("_");
  return at < 0 ? "" : cursor.slice(0, at);
}

/** isAfter reports whether a lies behind b. Within an epoch cursors sort as text; "-1" is before everything. */
export function isAfter(a: string, b: string): boolean {
  if (a === "" || a === "-1") return false;
  if (b === "" || b === "-1") return !/_0+$/.test(a);
  return epochOf(a) === epochOf(b) && a > b;
}
