// Package sandboxapi serves /v1/sandbox: code, commands and files of sessions, in the shape that clients of other sandbox services
// know. A session is a workspace with a sandbox, made when it is first named; each request is a call on the log, so what holds for
// calls holds for it. Calls, records and instances reach it as interfaces; what it decides is in pure functions.
package sandboxapi
