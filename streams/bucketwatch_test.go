package streams_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// watched returns what a watch of the groups has reported, as "<key>@<revision>".
func watched(t *testing.T, b *streams.Bus, after uint64) (told func() []string) {
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p, err := range lifecycle.OpenGroups(b).WatchAfter(ctx, after) {
			if err != nil {
				t.Errorf("%s: %v", p.Key, err)
			}
			mu.Lock()
			all = append(all, fmt.Sprintf("%s@%d", p.Key, p.Revision))
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		now := all
		all = nil
		return now
	}
}

func TestAWatchGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		after  uint64
		change func(t *testing.T, b *streams.Bus, put func(string) uint64)
		want   []string
	}{
		{name: "nothing has changed"},
		{name: "it has read nothing itself", after: 12},
		{name: "changes are told once", want: []string{"k1@13", "new@14"},
			change: func(_ *testing.T, _ *streams.Bus, put func(string) uint64) { put("k1"); put("new") }},
		{name: "the last that was told is replaced", want: []string{"k11@13"},
			change: func(_ *testing.T, _ *streams.Bus, put func(string) uint64) { put("k11") }},
		{
			name: "another log with the same keys", want: []string{"k5@1", "k11@2"},
			change: func(t *testing.T, b *streams.Bus, put func(string) uint64) {
				anew(t, b)
				put("k5")
				put("k11")
			},
		},
		{
			name: "another log with as many values", want: []string{"z0@1", "z1@2", "z2@3", "z3@4", "z4@5", "z5@6", "z6@7", "z7@8", "z8@9", "z9@10",
				"z10@11", "z11@12", "z12@13"},
			change: func(t *testing.T, b *streams.Bus, put func(string) uint64) {
				anew(t, b)
				for i := range 13 {
					put(fmt.Sprint("z", i))
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				put := func(key string) uint64 {
					t.Helper()
					return testwait.Must(lifecycle.OpenGroups(b).Put(t.Context(), key, schemas.Group{ID: key}))(t)
				}
				for i := range 12 {
					put(fmt.Sprint("k", i))
				}
				told := watched(t, b, c.after)
				settle(t)
				if n, want := len(told()), 12-int(c.after); n != want {
					t.Fatalf("%d values told, want %d", n, want)
				}
				if c.change != nil {
					c.change(t, b, put)
				}
				b.Drop()
				settle(t)
				if got := told(); !slices.Equal(got, c.want) {
					t.Errorf("told again %v, want %v", got, c.want)
				}
			})
		})
	}
}

// The bucket of the groups is deleted and created again.
func anew(t *testing.T, b *streams.Bus) {
	t.Helper()
	testwait.OK(t, b.DeleteStream(t.Context(), "KV_groups"))
	testwait.OK(t, b.Again(t.Context()))
}

// requests counts what goes to the server while f happens, but for what goes in as long a time without it.
func requests(t *testing.T, b *streams.Bus, f func()) int {
	t.Helper()
	settle(t)
	before := b.Sent()
	settle(t)
	idle := b.Sent() - before
	before = b.Sent()
	f()
	settle(t)
	return int(b.Sent()-before) - int(idle)
}

func TestAReconnectCostsFewRequests(t *testing.T) {
	t.Parallel()
	const watches, topology, each = 4, 2, 5
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for i := range 200 {
			testwait.Must(lifecycle.OpenGroups(b).Put(t.Context(), fmt.Sprint("k", i), schemas.Group{}))(t)
		}
		for range watches {
			watched(t, b, 0)
		}
		var before uint64
		drop := func() { before = b.Received(); b.Drop() }
		if n, most := requests(t, b, drop), topology+watches*each+5; n > most {
			t.Errorf("a reconnect costs %d messages to the server, want at most %d", n, most)
		}
		if n := b.Received() - before; n > 64<<10 {
			t.Errorf("a reconnect brings %d bytes", n)
		}
	}, natstest.Shards(16))
}

func TestAReconnectRestoresWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, missing := range [][]string{{"KV_groups"}, {"TURNS"}, {"EVENTS_00"}, {"EVENTS_00", "EVENTS_01", "KV_jobs", "CALLS"}} {
		t.Run(fmt.Sprint(missing), func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				for _, name := range missing {
					testwait.OK(t, b.DeleteStream(t.Context(), name))
				}
				settle(t) // it waits for a lost connection
				b.Drop()
				settle(t)
				for _, name := range missing {
					if err := b.HasStream(t.Context(), name); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}, natstest.Shards(2))
		})
	}
}
