// Package testwait has helpers that many tests need: values without errors, and waiting for a condition.
package testwait

import (
	"testing"
	"time"
)

// Patience is how long [Eventually] waits: much longer than anything takes on a busy host, so that a test fails only if the condition
// never holds.
const Patience = 2 * time.Minute

// between returns the pause between two checks, from the time waited so far and the duration of the last check. It adds a twentieth at
// most to a long wait. Checks that are slow, because they start programs, take a fifth of the time at most, else they would slow down what
// they wait for.
func between(waited, look time.Duration) time.Duration {
	return max(min(max(waited/20, 2*time.Millisecond), 100*time.Millisecond), min(4*look, time.Second))
}

// Eventually calls f until it returns true. It fails the test if that takes longer than [Patience]; what describes the condition. It must
// be called by the test's own goroutine.
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

// Rested calls f until it has returned the same value a hundred times in a row, for about a second, and returns that. It fails the test if
// that takes longer than [Patience].
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

// Must returns a function that returns v, and fails the test if there is an error: testwait.Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// OK fails the test if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
