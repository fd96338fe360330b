package usage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestALargeCountHoldsUpNoOther: accounts that keep very much are counted for ten minutes each. Those of others are counted meanwhile, the ones
// that a request waits for first, and each large one has its turn.
//
//guarantee:what-one-tenant-can-do-to-another
func TestALargeCountHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var done []schemas.AccountID
		m := NewMeter(Options{})
		m.count = func(ctx context.Context, a schemas.AccountID) error {
			took := 100 * time.Millisecond
			if a[:5] == "large" || a == "grown" {
				took = 10 * time.Minute
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(took):
			}
			mu.Lock()
			defer mu.Unlock()
			done = append(done, a)
			return nil
		}
		large := []schemas.AccountID{"large1", "large2", "large3"}
		for _, a := range large {
			m.account(a).record.Usage[Events].Messages = 10 * quickMessages
			m.ask(a, true)
		}
		m.ask("grown", true) // nothing says that it is large
		for n := range 20 {
			m.ask(schemas.AccountID(fmt.Sprint("small", n)), false)
		}
		m.ask("waits", true)
		ctx, stop := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		for _, kind := range []countKind{largeCounts, quickCounts} {
			parts.Go(func() { m.runCounts(ctx, kind) })
		}
		counted := func() []schemas.AccountID {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(done)
		}
		time.Sleep(time.Minute)
		if got := counted(); len(got) != 21 || got[0] != "waits" {
			t.Errorf("after a minute %q are counted, want the one that a request waits for, then the other small ones", got)
		}
		time.Sleep(time.Hour)
		for _, a := range append(large, "grown") {
			if got := counted(); !slices.Contains(got, a) {
				t.Errorf("%s was not counted in an hour: %q", a, got)
			}
		}
		m.ask("small1", true) // a count may be wanted again
		time.Sleep(time.Minute)
		if got := counted(); len(got) != 26 || got[25] != "small1" {
			t.Errorf("%q", got)
		}
		stop()
		parts.Wait()
	})
}

func TestNextCount(t *testing.T) {
	t.Parallel()
	small, waits := wantedCount{account: "small"}, wantedCount{account: "waits", waits: true}
	large, needed := wantedCount{account: "large", large: true}, wantedCount{account: "needed", large: true, waits: true}
	for _, c := range []struct {
		kind   countKind
		wanted []wantedCount
		want   int
	}{
		{quickCounts, nil, -1},
		{quickCounts, []wantedCount{large, needed}, -1},
		{quickCounts, []wantedCount{large, small, small, waits}, 3},
		{quickCounts, []wantedCount{small, small}, 0},
		{largeCounts, []wantedCount{small, waits, large, needed}, 3},
		{largeCounts, []wantedCount{waits, large}, 1},
		{largeCounts, []wantedCount{small, waits}, 1},
	} {
		if got := nextCount(c.wanted, c.kind); got != c.want {
			t.Errorf("%d of %v: %d, want %d", c.kind, c.wanted, got, c.want)
		}
	}
}
