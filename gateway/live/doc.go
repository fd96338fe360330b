// Package live shows conversations to clients while they happen: over WebSockets, which also take calls, cancels and answers, over
// server-sent events, and by long polls. A client is let in by a key or an attach token, and goes with it.
//
// [Server] keeps nothing that cannot be lost: what a client has not read stays in the ring of package replay or on the log, and
// nothing is queued for it. An idle connection is one goroutine that reads; whatever there is to write is taken from the readers by a
// goroutine that lives until nothing is left.
package live
