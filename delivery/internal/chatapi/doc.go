// Package chatapi is how adapters of chat services speak HTTP: one request, and a definite answer or a [channel.Error] that says what is
// known of it.
//
// It sends a request once and never again, follows no redirect, and reads no more than a MiB of an answer. What it says in errors holds
// none of the secrets that a call names, also where the service repeats them.
package chatapi
