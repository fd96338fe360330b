// Package denotest is a service that answers as Deno Sandbox does, for tests and for trying things out without an account: the
// console's API (lists, volumes, snapshots) and the API of sandboxes (JSON-RPC over WebSockets), on one address.
//
// It keeps state as the service does: ids that have a region, the end of a sandbox's time, which is its own clock's and is put off by half
// an hour at most, one that ends with the connection that made it, quota, volumes that are in one sandbox at a time, and lists that lag
// behind and have what has stopped too. Commands are real processes, each sandbox's in namespaces of their own (bubblewrap), so that a
// provider can be held to all that it promises. What a connection has started continues without it, and its output is lost then.
//
// The root of a sandbox is this host's, whichever volume or snapshot was named; a sandbox with a list of hosts reaches none; what stands
// for a secret is never replaced. What the vendor does not say is made up: the codes of refusals but INVALID_TOKEN.
//
// The service's own client for JavaScript is run against it (package deno).
package denotest
