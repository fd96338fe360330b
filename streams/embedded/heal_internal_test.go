package embedded

import (
	"testing"
	"time"
)

// TestTheNurseDecides walks through what happens to a server.
//
//guarantee:a-log-that-could-not-write-continues-when-it-can
func TestTheNurseDecides(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	n := nurse{}
	now := time.Duration(0)
	step := func(broken bool, possible func() bool, want healing) {
		t.Helper()
		now += time.Second
		if got := n.look(now, broken, possible); got != want {
			t.Fatalf("at %s: %d, want %d", now, got, want)
		}
	}
	step(false, yes, healNothing)
	step(true, yes, healNothing) // it may be for a moment
	step(false, yes, healNothing)
	step(true, no, healNothing)
	step(true, no, healFirst)
	for range 59 {
		step(true, no, healNothing)
	}
	step(true, no, healWait)
	step(true, yes, healRestart)
	step(true, yes, healNothing)
	step(true, yes, healRestart)
	for range 61 {
		step(false, yes, healNothing)
	}
	if n.tries != 0 {
		t.Errorf("%d tries after a minute of health", n.tries)
	}
	for tries := 0; ; {
		now += time.Second
		switch n.look(now, true, yes) {
		case healRestart:
			tries++
		case healFail:
			if tries != healTries {
				t.Errorf("given up after %d tries, want %d", tries, healTries)
			}
			return
		case healNothing, healFirst, healWait:
		}
		if now > time.Hour {
			t.Fatal("it is never given up")
		}
	}
}
