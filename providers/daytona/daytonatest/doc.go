// Package daytonatest is a service that answers as Daytona does, for tests and for trying things out without an account: the
// control plane and the toolboxes of sandboxes, on one address.
//
// It keeps state as the service does: ids, names that are given once, states that change only after some looks, sandboxes that stop when
// they are unused and are deleted after that, quota, volumes with folders. Commands are real processes, each sandbox's in namespaces of
// their own (bubblewrap), so that a provider can be held to all that it promises. What the service does that surprises is there too: a
// command gets its text on its standard input, both of its outputs come as one, a command that takes too long is ended and its output lost,
// "exit" in a session ends the session, and a list may lag behind.
//
// The service's own client for JavaScript is run against it (package daytona).
package daytonatest
