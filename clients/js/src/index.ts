/**
 * Conversations of Sandjet in browsers and Node: every event once, in order, through reconnects.
 *
 * @packageDocumentation
 */
export type { Attachment, AttachOptions, Item } from "./attachment.js";
export type { Backoff } from "./backoff.js";
export { Client, connect, type Options, type Status, type Token } from "./client.js";
export { SandjetError } from "./errors.js";
export type { Accepted, Answer, Request } from "./operations.js";
export type { Event, Gap, Snapshot } from "./wire.js";
