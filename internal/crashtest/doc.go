// Package crashtest kills the processes of Sandjet and looks at what is left of its promises. It is
// all tests: go test ./internal/crashtest runs the short form, and with SANDJET_CRASH=long the long
// one.
package crashtest
