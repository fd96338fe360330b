// Package records keeps accounts, sandboxes, workspaces, agents, models, variables, webhook endpoints and chat channels, resolves a
// request with their help into a call that any worker can run, and makes them what a manifest says.
//
// The records live in one key-value bucket of the log. A [Store] holds a copy of all of them in memory and follows the bucket's changes, so
// that authenticating a key and resolving a request cost no round trip; only a record that is asked for by id and is not in the copy yet is
// read from the bucket. What was written through a Store is in its copy at once, and in the copies of other processes as soon as their
// [Store.Run] receives it.
//
// Secrets, which are the variables of sandboxes and the keys of endpoints and channels, are plain in memory and sealed
// in the bucket, see package seal.
package records
