// Package chatapi is the HTTP client of the adapters of chat services: a call sends one request, and returns a definite response or a
// [channel.Error] that says what is known of its outcome.
//
// It never sends a request again, follows no redirect, and reads at most 1 MiB of a response. In its errors, the secrets that a call names
// are replaced, even if the service repeats them.
package chatapi
