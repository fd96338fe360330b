package wait

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("it slept %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("it slept %v beside a context of a minute", time.Since(began))
		}
		for _, d := range []time.Duration{-1, 0, 1} {
			if Sleep(ctx, d) {
				t.Errorf("it slept %d under a context that had ended", d)
			}
		}
		if !Sleep(t.Context(), -time.Second) {
			t.Error("no time at all was not over at once")
		}
	})
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, 2, 3, time.Second, math.MaxInt64} {
		low, high := time.Duration(math.MaxInt64), time.Duration(-1)
		for range 200 {
			j := Jitter(d)
			low, high = min(low, j), max(high, j)
		}
		if low < max(d, 0)/2 || high > max(d, 0) {
			t.Errorf("of %d it makes %d to %d", d, low, high)
		}
		if d >= time.Second && high-low < d/8 {
			t.Errorf("of %d it makes %d to %d: that is no chance", d, low, high)
		}
	}
	for _, d := range []time.Duration{-1, 0, 1, time.Second} {
		for range 50 {
			if j := Upto(d); j < 0 || j > max(d, 0) {
				t.Errorf("up to %d: %d", d, j)
			}
		}
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for n, want := range map[int]time.Duration{
		-3: 100 * time.Millisecond, 0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond,
		4: 800 * time.Millisecond, 5: time.Second, 6: time.Second, math.MaxInt: time.Second,
	} {
		if got := b.whole(n); got != want {
			t.Errorf("after failure %d: %v, want %v", n, got, want)
		}
		if got := b.After(n); got < want/2 || got > want {
			t.Errorf("after failure %d: %v with chance, want %v to %v", n, got, want/2, want)
		}
	}
	if got := (Backoff{First: math.MaxInt64 / 3, Most: math.MaxInt64}).whole(99); got != math.MaxInt64 {
		t.Errorf("near the end of what a duration holds: %v", got)
	}
	if got := (Backoff{First: time.Hour, Most: time.Second}).whole(1); got != time.Second {
		t.Errorf("the first wait is %v, above the most", got)
	}
}

func TestBroadcastWakesAllThatWait(t *testing.T) {
	var b Broadcast
	b.Notify() // no goroutine waits
	first, second := b.Next(), b.Next()
	select {
	case <-first:
		t.Error("woken by what was before")
	default:
	}
	b.Notify()
	<-first
	<-second
	select {
	case <-b.Next():
		t.Error("woken twice by one event")
	default:
	}
}
