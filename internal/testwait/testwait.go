// Package testwait has what tests say again and again: a value or the end of the test, and what comes to hold in a while.
package testwait

import (
	"testing"
	"time"
)

// Patience is how long [Eventually] waits: far longer than anything takes on a busy machine, so that only what never
// happens fails a test.
const Patience = 2 * time.Minute

// between is the time between two looks, by how long one has waited and how long the last look took. It adds a twentieth at most to what
// takes long. Checks that start programs, as in a box, take a fifth of the time at most: else they slow down what they wait for.
func between(waited, look time.Duration) time.Duration {
	return max(min(max(waited/20, 2*time.Millisecond), 100*time.Millisecond), min(4*look, time.Second))
}

// Eventually looks until f is true. It ends the test when that takes longer than [Patience]; what says what was waited
// for. It must be called by the test's own goroutine.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); ; {
		look := time.Now()
		if f() {
			return
		}
		now := time.Now()
		if now.Sub(begun) > Patience {
			t.Fatalf("not within %v: %s", Patience, what)
		}
		time.Sleep(between(now.Sub(begun), now.Sub(look)))
	}
}

// Rested looks until f has given the same a hundred times in a row, for about a second, and returns that. It ends the test when that
// takes longer than [Patience].
func Rested[T comparable](t testing.TB, what string, f func() T) T {
	t.Helper()
	const looks = 100
	last, same := f(), 0
	for end := time.Now().Add(Patience); same < looks; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: at rest: %s", Patience, what)
		}
		now := f()
		if same++; now != last {
			last, same = now, 0
		}
	}
	return last
}

// Must returns v, and ends the test where there is an error: testwait.Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// OK ends the test where there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
