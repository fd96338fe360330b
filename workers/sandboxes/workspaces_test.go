package sandboxes

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// disk is a provider with workspace files, which records who sweeps them.
type disk struct {
	keeps

	name  string
	looks *looks
}

type looks struct {
	mu     sync.Mutex
	by     map[string]int
	passed time.Duration
}

func (d disk) SweepWorkspaces(ctx context.Context, s providers.WorkspaceSweep) (int, error) {
	d.looks.mu.Lock()
	defer d.looks.mu.Unlock()
	if gone, err := s.Removed(ctx, "acct_1"); !gone || err != nil || s.Held() != nil {
		return 0, schemas.Errorf(schemas.Internal, "the look has not what it needs")
	}
	d.looks.by[d.name]++
	d.looks.passed += s.Passed
	return 0, nil
}

// Of two workers with access to the same files, one sweeps them each hour, and measures the time between its sweeps. When it is suspended,
// the other one takes over, and earlier time does not count twice.
//
//guarantee:bounds
func TestOneWorkerLooksAtTheFiles(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		all := &looks{by: map[string]int{}}
		var running sync.WaitGroup
		stops := map[string]context.CancelFunc{}
		for _, name := range []string{"one", "two"} {
			ctx, stop := context.WithCancel(t.Context())
			stops[name] = stop
			c := &WorkspaceCleaner{Bus: b, Provider: disk{name: name, looks: all}, Store: "store", Log: slog.New(slog.DiscardHandler),
				Removed: func(context.Context, schemas.AccountID) (bool, error) { return true, nil }}
			running.Go(func() {
				if err := c.Run(ctx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		time.Sleep(4 * time.Hour)
		all.mu.Lock()
		first, others := "one", all.by["two"]
		if all.by["two"] > 0 {
			first, others = "two", all.by["one"]
		}
		n := all.by[first]
		if n < 3 || n > 4 || others != 0 || all.passed < time.Duration(n-1)*time.Hour || all.passed > 4*time.Hour {
			t.Errorf("looks %v, %s counted", all.by, all.passed)
		}
		before := all.passed
		all.mu.Unlock()
		stops[first]()
		time.Sleep(4 * time.Hour)
		for _, stop := range stops {
			stop()
		}
		running.Wait()
		if after := all.passed - before; len(all.by) != 2 || all.by[first] != n || after < 2*time.Hour || after > 4*time.Hour {
			t.Errorf("looks %v, %s more counted once %s had gone", all.by, after, first)
		}
	})
}

// Only time that a process has measured between two sweeps counts: no wrong wall clock and no suspension adds to it.
//
//guarantee:bounds
func TestTimeBetweenLooksIsMeasured(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		last, now time.Time
		want      time.Duration
	}{
		"the first look":                   {now: now},
		"an hour later":                    {last: now, now: now.Add(time.Hour), want: time.Hour},
		"after a suspension of eight days": {last: now, now: now.Add(8 * 24 * time.Hour), want: 2 * time.Hour},
		"a clock that was set back":        {last: now.Round(0), now: now.Round(0).Add(-time.Hour)},
	} {
		if got := passedSince(c.last, c.now, time.Hour); got != c.want {
			t.Errorf("%s: %v counts, want %v", name, got, c.want)
		}
	}
}
