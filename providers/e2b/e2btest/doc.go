// Package e2btest is a service that answers as E2B does, for tests and for trying things out without an account: the control
// plane and the daemon in sandboxes (envd, Connect with JSON), on one address.
//
// It keeps state as the service does: ids, states, the end of a sandbox's time, pause, quota, volumes. Commands are real processes, each
// sandbox's in namespaces of their own (bubblewrap), so that a provider can be held to all that it promises. What the service does that
// surprises is there too: a closed connection ends no process, what a process prints without an attached client is lost, values that are
// zero are left out of messages, and a list may lag behind.
//
// The service's own client for JavaScript is run against it (package e2b).
package e2btest
