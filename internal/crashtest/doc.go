// Package crashtest kills the processes of Sandjet and checks that its promises hold. It has tests only: go test ./internal/crashtest runs
// the short form, make long-crash the long one.
package crashtest
