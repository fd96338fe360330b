/**
 * Sandjet in browsers and Node: conversations with every event once, in order, through reconnects; files, artifacts and sandboxes.
 *
 * @packageDocumentation
 */
export { API, api, type Artifact } from "./api.js";
export type { Attachment, AttachOptions, Item } from "./attachment.js";
export type { Backoff } from "./backoff.js";
export { Client, connect, type Options, type Status, type Token } from "./client.js";
export type { Download } from "./download.js";
export { SandjetError } from "./errors.js";
export type { Content, DownloadOptions, FileInfo, FileList, Files, Unpacked, UploadOptions } from "./files.js";
export type { HTTPOptions } from "./http.js";
export { newID, type Accepted, type Answer, type Request } from "./operations.js";
export type { Entry, GlobPath, Match, Run, RunOptions, Sandbox, SandboxArtifact, SandboxSession } from "./sandbox.js";
export type { Event, Gap, Snapshot } from "./wire.js";
