// Package webhook sends deliveries to HTTP endpoints that accounts name.
//
// It is the part of Sandjet that connects to addresses of strangers' choosing, so three things are its whole subject. Receivers must be
// able to prove who sent: [Sign] and [Verify] are Standard Webhooks. No account may reach our own network through us: [Policy] is applied
// to the address that is really dialled, after every resolution. And one endpoint must not hold up another: each has a lane of its own,
// with a breaker, and lanes that did not prove themselves share a bounded part of the places.
package webhook
