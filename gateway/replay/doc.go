// Package replay shows conversations to any number of readers at the price of one.
//
// A [Hub] follows each conversation that has readers once, keeps its latest events as a ring of immutable frames, and reads older ones from
// the log in pages that all readers share. A [Reader] holds little more than its place in a conversation: it is notified when there may
// be something new, and takes it when it can. Nothing is queued for it, so a slow reader costs nothing and delays no other.
//
// # Compression
//
// "batch":true of an attach makes the gateway send its replay in messages of many frames, up to 48 KiB and a little: copies of the shared
// frames behind one another. It needs no setting. Where the operator says --replay-compression and the client offers permessage-deflate
// (RFC 7692), replayed messages of 4 KiB and more, batches or a single large event, are compressed if that makes them smaller; what is live
// never is. No window is kept on either side, so a socket costs what it did. A compressor takes 1.2 MB: there are as many as processors,
// and one is used only while a message is compressed in memory, never while a client is waited for. Messages of clients may be compressed
// too, as browsers do unasked; 64 KiB holds before and after they are unpacked. An offer that demands a smaller window is declined.
package replay
