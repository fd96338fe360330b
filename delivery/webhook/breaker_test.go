package webhook

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
)

func TestTheBreakerOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	var b breaker
	now := time.Unix(1_000_000, 0)
	for i := range tripAfter {
		if _, ok := b.allow(now); !ok {
			t.Fatalf("closed after %d failures", i)
		}
		b.record(now, false)
	}
	if wait, ok := b.allow(now); ok || wait != firstRest {
		t.Fatalf("after %d failures: %t, rest %s", tripAfter, ok, wait)
	}
	b.record(now, false) // one that began before
	if wait, _ := b.allow(now); wait != firstRest {
		t.Errorf("a straggler made the rest %s", wait)
	}
	// Each probe that fails doubles the rest, up to the longest.
	for want := 2 * firstRest; ; want = min(2*want, lastRest) {
		now = b.until
		if _, ok := b.allow(now); !ok {
			t.Fatal("after the rest there is no probe")
		}
		if wait, ok := b.allow(now); ok || wait <= 0 {
			t.Fatalf("a second probe beside the first: %t, %s", ok, wait)
		}
		b.record(now, false)
		if wait, ok := b.allow(now); ok || wait != want {
			t.Fatalf("after the probe: %t, rest %s, want %s", ok, wait, want)
		}
		if want == lastRest {
			break
		}
	}
	now = b.until
	if _, ok := b.allow(now); !ok {
		t.Fatal("no probe")
	}
	b.forget()
	if _, ok := b.allow(now); !ok {
		t.Fatal("a probe without an outcome was the last")
	}
	b.record(now, true)
	for range 10 {
		if _, ok := b.allow(now); !ok {
			t.Fatal("a probe that succeeds closes it")
		}
	}
	if b.record(now, false); !b.closed(now) {
		t.Error("one failure opened it anew")
	}
}

func TestTheBreakerOpensWhenMostTriesFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		step time.Duration
		fail int // of each four
		open bool
	}{
		{"three of four, close together", time.Second, 3, true},
		{"half of them", time.Second, 2, false},
		{"three of four, too far apart to be many", time.Minute, 3, false},
	} {
		var b breaker
		now := time.Unix(1_000_000, 0)
		for i := range 200 {
			if now = now.Add(c.step); b.closed(now) {
				b.record(now, i%4 >= c.fail)
			}
		}
		if b.closed(now) == c.open {
			t.Errorf("%s: open is %t, want %t", c.name, !b.closed(now), c.open)
		}
	}
}

func TestAPauseIsKept(t *testing.T) {
	t.Parallel()
	var b breaker
	now := time.Unix(1_000_000, 0)
	b.pause(now.Add(time.Minute))
	b.pause(now.Add(time.Second)) // a shorter one does not end it
	if wait, ok := b.allow(now); ok || wait != time.Minute {
		t.Errorf("got %t, %s", ok, wait)
	}
	b.record(now, true)
	if _, ok := b.allow(now.Add(59 * time.Second)); ok {
		t.Error("a success ended the pause")
	}
	if _, ok := b.allow(now.Add(time.Minute)); !ok {
		t.Error("the pause does not end")
	}
}

// Whatever happens, an open breaker lets one through at a time, rests at most an hour, and comes to
// allow again.
func TestTheBreakerNeverLocksUp(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		var b breaker
		now := time.Unix(1_000_000, 0)
		out := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			wasOpen := !b.until.IsZero()
			wait, ok := b.allow(now)
			switch {
			case ok:
				if wasOpen && out > 0 && !b.probing {
					t.Fatal("more than a probe")
				}
				out++
			case wait <= 0 || wait > lastRest:
				t.Fatalf("a rest of %s", wait)
			}
			if out > 0 && rapid.Bool().Draw(t, "ends") {
				out--
				if o := rapid.IntRange(0, 2).Draw(t, "outcome"); o == 2 {
					b.forget()
				} else {
					b.record(now, o == 0)
				}
			}
		}
		for ; out > 0; out-- {
			b.record(now, false)
		}
		if _, ok := b.allow(now.Add(lastRest)); !ok {
			t.Fatal("it stays open")
		}
	})
}
