// Package longtest says which tests belong to the long form alone: those that show again, in another way or on a larger scale, what the
// short form shows already, and those that need a program which the short form does without: an engine, a browser, npm.
// `go test ./...` skips them, `make test` lists them at its end, and the suites of `make help` that are called long-… run them.
package longtest

import (
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

const (
	form = "SANDJET_TESTS" // "long" asks for the long form
	seed = "SANDJET_SEED"  // repeats a run of the long form
)

// SideBySide lets four tests of a package run at a time where the command line does not say how many: for packages whose tests wait for
// other processes most of their time. TestMain calls it first.
func SideBySide() {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
}

// Asked reports whether the long form is asked for: SANDJET_TESTS=long.
func Asked() bool { return os.Getenv(form) == "long" }

// Only skips a test that belongs to the long form unless that is asked for. The text says what the test shows beyond the
// short form, or what it costs.
func Only(tb testing.TB, what string) {
	tb.Helper()
	if !Asked() {
		tb.Skipf("only in the long form (%s=long, as make long-…): %s", form, what)
	}
}

// Sample skips a case of a table in the short form, but for about one in n, always the same ones: by their names.
func Sample(tb testing.TB, name string, n uint32) {
	tb.Helper()
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	if !Asked() && h.Sum32()%n != 0 {
		tb.Skipf("only in the long form (%s=long, as make long-…): the short form has some cases of this table", form)
	}
}

// Scale returns how often or how much: less in the short form, more in the long one.
func Scale(short, long int) int {
	if Asked() {
		return long
	}
	return short
}

// Missing skips a test because this machine lacks what it needs. It fails the test instead where CI=true, for what the short form needs,
// and in the long form: .ci/run and the long suites install what they need. What such a machine may lack, because it is its kernel's or
// its file system's or another system's, is skipped without this, and CONTRIBUTING names it.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("CI") == "true" || Asked() {
		tb.Fatalf("needed with CI=true and in the long form: "+format, args...)
	}
	tb.Skipf(format, args...)
}

// Seed returns the seed of a test with random input, and logs it. The short form has always the same one, so that it gives the same
// answer each time; the long form has a new one each time. SANDJET_SEED sets it in either.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	n := uint64(1)
	if v := os.Getenv(seed); v != "" {
		var err error
		if n, err = strconv.ParseUint(v, 10, 64); err != nil {
			tb.Fatalf("%s: %v", seed, err)
		}
	} else if Asked() {
		n = rand.Uint64()
	}
	tb.Logf("%s=%d", seed, n)
	return n
}
