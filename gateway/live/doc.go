// Package live shows conversations to clients while they happen: over WebSockets, which also take calls, cancels and answers, over
// server-sent events, and by long polls. A client is let in by a key or an attach token, and its
// connection ends when that key or token does.
//
// [Server] keeps nothing that cannot be lost: what a client has not read stays in the ring of package replay or on the log, and
// nothing is queued for it. An idle connection costs one goroutine, which reads; when there is something to write, a second goroutine
// takes it from the connection's readers and ends when nothing is left.
package live
