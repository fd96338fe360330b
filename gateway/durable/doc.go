// Package durable serves durable streams over HTTP: append-only sequences of bytes or JSON values that
// clients make, append to, read again from any point, follow live, fork, close and delete. It speaks
// the public Durable Streams protocol 1.0, whose conformance suite runs in this package's tests.
//
// A stream is a record (settings, and the id under which its data lies) and messages on the log. Each
// message carries the stream's state after it: what follows from all messages before. An append is
// one conditional write of data and state, so gateways agree without talking to one another, a crash
// leaves nothing half done, and the log itself recognises a producer's append that is sent again.
//
// # Appends
//
// All streams lie in one JetStream stream, DURABLE, under sandjet.durable.<account>.<id>.<writer>. Each message has in a header what
// follows from all before it: closed, the last Stream-Seq, bytes, number of producers, and the place of the producer that wrote it. It is
// published on the condition that the last message under <id>.* is still the one that the state was computed from. A producer's place is
// the last message of its own subject. The offset is the sequence of DURABLE, so a fork's own messages sort behind what it inherits, and a
// fork is stored as a list of ids, each with a place. A bucket maps the path to the id; the first message is written before that record.
package durable
