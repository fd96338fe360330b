// Package clienttest lets the real clients follow conversations of the real gateway through a
// network that does not hold, and judges what they saw: the JavaScript client in Node and in
// Chromium, and the Go client. It is all tests.
package clienttest
