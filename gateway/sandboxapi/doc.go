// Package sandboxapi serves /v1/sandbox: code, commands and files of sessions, in the shape that clients of other sandbox services
// know. A session is a workspace with a sandbox, made when it is first named; each request is a call on the log, so what holds for
// calls holds for it. Calls, records and instances reach it as interfaces; what it decides is in pure functions.
//
// # Sessions
//
// A session is a workspace record of its own and the sandbox record that all sessions of an account on one backend share. What they are to
// each other stands in one record for each account, a list of its sessions with active or not. It is changed by compare and set.
//
//   - The limit is exact: becoming active and being counted are one write, at any number of gateways.
//   - A request writes only when something changes: an active session is marked as used every 30 seconds, also while a run is in it.
//     Only one that was not marked for a minute may make room, so the mark of a request is never older than that of who ends the
//     session.
//   - Active means that there may be an instance. Its own idle end is the registry's. Who finds no place looks which active sessions
//     have none any more, and then ends the one that was unused for the longest time and has nothing in it. Files stay in both cases.
//   - A new session has a new workspace: the name of one that was destroyed leads to other files. While it is being destroyed it is
//     marked, with who has the turn to do it: two at once would cancel each other's calls. A turn ends after 30 seconds unless it is
//     extended; each step can be done again, and none makes what another removed.
//   - Bytes go by calls too, as base64 in commands, on every provider alike. What is larger than a few MiB goes by the file routes.
//   - A client that leaves cancels its run unless it has a key: without one no request can ask for the answer, with one a request will.
package sandboxapi
