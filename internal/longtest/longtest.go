// Package longtest says which tests belong to the long form alone: those that repeat, on another way or a larger
// scale, what the short form shows already. `go test ./...` passes over them, `make test` lists them at its end,
// and the gate and `make test-long` run them.
package longtest

import (
	"os"
	"testing"
)

// Asked reports whether the long form is asked for: CI=true, and not -short.
func Asked() bool { return os.Getenv("CI") == "true" && !testing.Short() }

// Only skips a test that belongs to the long form unless that is asked for. What says what it shows beyond the
// short form, or what it costs.
func Only(tb testing.TB, what string) {
	tb.Helper()
	if !Asked() {
		tb.Skipf("only in the long form (CI=true, as make test-long): %s", what)
	}
}
