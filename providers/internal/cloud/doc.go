// Package cloud is how the leaves of vendors' services speak HTTP: one way to send a request, to read its answer, to try
// again, and to say what went wrong without a secret in it.
//
// # What is tried again
//
// Nothing, unless a row of the leaf's table says so ([Retry]): a route, the statuses that mean "try again", and whether a
// connection that broke may be tried again, which holds for reads and for what does nothing the second time. A request
// that was certainly not sent is another matter ([Error.Sent]). The route that starts a command has no row.
//
// # What is never said
//
// The values of [Client.Auth] and [Call.Auth] are secrets: errors and log lines, which repeat what a service says, have
// [redacted] in their place.
package cloud
