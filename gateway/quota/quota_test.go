package quota_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/schemas"
)

// The ledger is held to a model: it never counts below nothing or above a ceiling, and never refuses
// what would fit.
func TestALedgerNeverLeavesItsBounds(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		each, all := rapid.Int64Range(0, 4).Draw(t, "each"), rapid.Int64Range(0, 7).Draw(t, "all")
		l := quota.NewLedger(each, all)
		type place struct {
			*quota.Place

			account schemas.AccountID
			back    bool
		}
		var places []*place
		held, total := map[schemas.AccountID]int64{}, int64(0)
		account := rapid.SampledFrom([]schemas.AccountID{"a", "b", "c"})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(places) > 0 && rapid.Bool().Draw(t, "release") {
				p := places[rapid.IntRange(0, len(places)-1).Draw(t, "which")] // maybe for the second time
				if p.Release(); !p.back {
					p.back = true
					held[p.account]--
					total--
				}
			} else {
				a := account.Draw(t, "account")
				want := quota.Free
				switch {
				case each > 0 && held[a] == each:
					want = quota.Account
				case all > 0 && total == all:
					want = quota.All
				}
				p, got := l.Take(a)
				if got != want || (p != nil) != (want == quota.Free) {
					t.Fatalf("Take(%s) with %d of %d, %d of %d: %v; want %v", a, held[a], each, total, all, got, want)
				}
				if p != nil {
					places = append(places, &place{Place: p, account: a})
					held[a]++
					total++
				}
			}
			for _, a := range []schemas.AccountID{"a", "b", "c"} {
				if got := l.Held(a); got != held[a] {
					t.Fatalf("Held(%s) = %d; want %d", a, got, held[a])
				}
			}
			if l.Total() != total {
				t.Fatalf("Total() = %d; want %d", l.Total(), total)
			}
		}
	})
}

func TestALedgerIsExactUnderManyHands(t *testing.T) {
	t.Parallel()
	const hands, rounds, each = 8, 500, 3
	l := quota.NewLedger(each, 2*each)
	var wg sync.WaitGroup
	for i := range hands {
		wg.Go(func() {
			a := schemas.AccountID(fmt.Sprint("a", i%3))
			for range rounds {
				p, full := l.Take(a)
				if n := l.Held(a); n < 0 || n > each {
					t.Errorf("%d held; want 0 to %d", n, each)
				}
				if full == quota.Free {
					var twice sync.WaitGroup
					twice.Go(p.Release)
					p.Release()
					twice.Wait()
				}
			}
		})
	}
	wg.Wait()
	if l.Total() != 0 {
		t.Errorf("%d are left; want 0", l.Total())
	}
}

func TestTheNilPlaceHasNothingToGive(t *testing.T) {
	t.Parallel()
	var p *quota.Place
	p.Release()
}

func TestAPaceDelaysWhatGoesBeyondIt(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := quota.NewPace(1000)
	for _, step := range []struct {
		at   time.Duration
		a    schemas.AccountID
		n    int
		wait time.Duration
	}{
		{0, "a", 1000, 0},                     // a second's worth at once
		{0, "a", 500, 500 * time.Millisecond}, // then it has to be earned
		{0, "b", 1000, 0},                     // each account by itself
		{500 * time.Millisecond, "a", 0, 0},   // nothing costs nothing
		{500 * time.Millisecond, "a", 500, 500 * time.Millisecond},
		{time.Hour, "a", 1000, 0}, // what was not used does not add up
		{time.Hour, "a", 1000, time.Second},
	} {
		if got := p.Take(step.a, step.n, begin.Add(step.at)); got != step.wait {
			t.Errorf("at %s, %s, %d bytes: wait %s; want %s", step.at, step.a, step.n, got, step.wait)
		}
	}
	if got := quota.NewPace(0).Take("a", 1<<30, begin); got != 0 {
		t.Errorf("without a pace: wait %s; want 0", got)
	}
}

// Over any long time, what goes out is within the pace, if the sender waits for the returned time.
func TestAClientThatWaitsAsAskedStaysWithinThePace(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1<<20).Draw(t, "rate")
		p := quota.NewPace(rate)
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		at, sent := begin, int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			n := rapid.IntRange(1, 64<<10).Draw(t, "bytes")
			wait := p.Take("a", n, at)
			sent += int64(n)
			at = at.Add(wait)
			if may := float64(rate) * (at.Sub(begin).Seconds() + 1); float64(sent) > may*1.001+1 {
				t.Fatalf("%d bytes after %s at %d/s: at most %.0f", sent, at.Sub(begin), rate, may)
			}
		}
	})
}
