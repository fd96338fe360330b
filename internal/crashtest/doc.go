// Package crashtest kills the processes of Sandjet and looks at what is left of its promises. It is
// all tests: go test ./internal/crashtest runs the short form, and make long-crash the long
// one.
package crashtest
