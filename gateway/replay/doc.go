// Package replay shows conversations to any number of readers at the price of one.
//
// A [Hub] follows each conversation that has readers once, keeps its latest events as a ring of
// immutable frames, and reads older ones from the log in pages that all readers share. A [Reader]
// is a place in a conversation and little else: it is notified when there may be something new, and
// takes it when it can. Nothing is queued for it, so a slow reader costs nothing and delays nobody.
package replay
