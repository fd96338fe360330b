// Package clienttest tests the real clients against the real gateway over an unreliable network: the JavaScript client in Node and in
// Chromium, and the Go client follow conversations, and what they received is compared with the log. It has tests only.
package clienttest
