// Package durable serves durable streams over HTTP: append-only sequences of bytes or JSON values that
// clients make, append to, read again from any point, follow live, fork, close and delete. It speaks
// the public Durable Streams protocol 1.0, whose conformance suite runs in this package's tests.
//
// A stream is a record (settings, and the id under which its data lies) and messages on the log. Each
// message carries the stream's state after it: what follows from all messages before. An append is
// one conditional write of data and state, so gateways agree without talking to one another, a crash
// leaves nothing half done, and a retried append of a producer is found out by the log itself.
package durable
