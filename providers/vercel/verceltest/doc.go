// Package verceltest is a service that answers as Vercel Sandbox does, for tests and for trying things out without an account.
//
// It keeps state as the service does: sandboxes with names that a project gives once, sessions with ids of their own that end at their
// time, snapshots from which a persistent sandbox is resumed, drives that one sandbox writes to, quota, states that change only after some
// looks, and lists that may lag behind. Commands are real processes, each session's in namespaces of their own (bubblewrap), so that a
// provider can be held to all that it promises. What the service does that surprises is there too: logs are text, in which bytes that are
// no UTF-8 are lost, and begin at their start with each request; files since the last snapshot are lost when a session fails; and a
// command's time limit kills one process.
//
// Forks, ports and interactive shells are not there. The service's own client for JavaScript is run against it (package vercel).
package verceltest
