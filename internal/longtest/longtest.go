// Package longtest marks the tests of the long form: those that prove again, in another way or on a larger scale, what the short form
// proves, and those that need a program which the short form does without: an engine, a browser, npm. `go test ./...` skips them, `make
// test` lists them at its end, and the suites named long-… in `make help` run them.
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
	form = "SANDJET_TESTS" // "long" enables the long form
	seed = "SANDJET_SEED"  // repeats a run of the long form
)

// SideBySide runs four tests of a package in parallel unless the command line sets a number: for packages whose tests mostly wait for
// other processes. TestMain calls it first.
func SideBySide() {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
}

// Asked reports whether the long form is enabled: SANDJET_TESTS=long.
func Asked() bool { return os.Getenv(form) == "long" }

// Only skips a test unless the long form is enabled. The text says what the test proves beyond the short form, or what it costs.
func Only(tb testing.TB, what string) {
	tb.Helper()
	if !Asked() {
		tb.Skipf("only in the long form (%s=long, as make long-…): %s", form, what)
	}
}

// Sample skips a case of a table in the short form, except for about one in n. Names determine which, so they are always the same.
func Sample(tb testing.TB, name string, n uint32) {
	tb.Helper()
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	if !Asked() && h.Sum32()%n != 0 {
		tb.Skipf("only in the long form (%s=long, as make long-…): the short form has some cases of this table", form)
	}
}

// Scale returns short in the short form, and long in the long form.
func Scale(short, long int) int {
	if Asked() {
		return long
	}
	return short
}

// Missing skips a test because this host lacks a program that it needs. With CI=true, for programs of the short form, and in the long form
// it fails the test instead: .ci/run and the long suites install what they need. A test that needs a certain kernel, file system or
// operating system is skipped without this function; CONTRIBUTING lists those.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("CI") == "true" || Asked() {
		tb.Fatalf("needed with CI=true and in the long form: "+format, args...)
	}
	tb.Skipf(format, args...)
}

// Seed returns the seed of a test with random input, and logs it. It is the same in every run of the short form, so that the result is
// reproducible, and random in the long form. SANDJET_SEED sets it in both.
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
