// Package streams is the log: the one place that knows NATS JetStream.
//
// The topology is a table (tables.go) of streams, and over them typed topics: [Calls], [Events],
// [Cancels], [Intake] and [Dead]. [Open] connects a [Bus] to a server of its own process
// ([StartServer]) or to one outside, and creates or upgrades what is missing; any number of
// processes may do so at the same time.
//
// A topic is published to, consumed and replayed. [Topic.Consume] hands messages to a function
// whose return value is the verdict on the message: nil acknowledges it; [RetryAfter], a retryable
// code or a stop hands it out again; anything else ends it among the dead letters with its reason.
//
// A conversation is read with [Follow], which replays it from a [schemas.Cursor] and continues live without a gap, or with [Page].
// [Bus.Calls] finds and lists calls, [Bus.States] says how far they are, and [Bus.AwaitCall] waits for a result. A [Bucket] keeps small values by key.
//
// Payloads that are larger than the server's limit travel through an object store and are returned whole; packages above this one see no
// difference.
package streams
