// Package schemas is the vocabulary of Sandjet: ids, calls, results, events, records and errors.
//
// It is the ground floor. Everything that crosses a wire or is kept in the log is a type of this
// package, and nothing here has an effect: no clock is read, no file opened, no connection made.
// Every other package may import it; it imports the standard library and one id generator.
//
// A [Request] is what a client asks for. Admission turns it into a [Call]: tenant, workspace,
// sandbox and provider resolved, deadline fixed. A worker answers a call with exactly one
// [Result]. What happens on the way is published as [Event]s on the call's conversation.
//
// Strict decoding ([DecodeRequest]) is for the edge; the Decode functions for messages that come
// from the log accept unknown fields, so that an older process can read what a newer one wrote.
package schemas
