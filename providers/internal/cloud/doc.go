// Package cloud is the HTTP client of the providers of vendors' services: it sends requests, reads responses, retries, and returns errors
// without secrets.
//
// # Retries
//
// A request is retried only if a row of the provider's table ([Retry]) says so: for a route, the row lists the statuses after which to
// retry, and whether to retry after a broken connection, which is safe for reads and idempotent requests. A request that was certainly not
// sent is a case of its own ([Error] Sent). The route that starts a command has no row.
//
// # Secrets
//
// The values of [Client.Auth] and [Call.Auth] are secrets: in errors and logs, which repeat messages of a service, they are replaced by
// [redacted].
package cloud
