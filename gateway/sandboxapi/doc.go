// Package sandboxapi serves /v1/sandbox: code, commands and files of sessions, in the shape that clients of other sandbox services
// know. A session is a workspace with a sandbox, made when it is first named; each request is a call on the log, so what holds for
// calls holds for requests. The package takes calls, records and instances as interfaces, and decides in pure functions.
//
// # Sessions
//
// A session is a workspace record of its own and the sandbox record that all sessions of an account on one backend share. Each
// account has one record that lists its sessions and says which are active. It is changed by compare and set.
//
//   - The limit is exact: becoming active and being counted are one write, at any number of gateways.
//   - A request writes only when something changes: an active session is marked as used every 30 seconds, also while a run is in it.
//     Only one that was not marked for a minute may make room, so a session that a request has just marked is never
//     ended to make room.
//   - Active means that there may be an instance. The registry ends instances that are idle. A request that finds no free place
//     frees that of an active session that has no instance any more; if there is none, it ends the instance of the session that was
//     unused for the longest time and in which nothing runs. Files stay in both cases.
//   - A new session has a new workspace: the name of one that was destroyed leads to other files. While it is being destroyed its
//     record says so, and which request has the turn to do it: two at once would cancel each other's calls. A turn ends after 30 seconds
//     unless it is extended; each step can be done again, and none makes what another removed.
//   - Files are read and written by calls too, as base64 in commands, on every provider alike. Files larger than a few MiB need the
//     file routes.
//   - A client that leaves cancels its run unless the request has an idempotency key: without one no later request can ask for the
//     answer, with one a later request is expected to.
package sandboxapi
