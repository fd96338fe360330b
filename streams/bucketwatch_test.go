package streams_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// watched is what a watch of the groups has told, by "<key>@<revision>".
func watched(t *testing.T, b *streams.Bus, after uint64) (told func() []string) {
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p, err := range streams.OpenGroups(b).WatchAfter(ctx, after) {
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
		{name: "changes are told once", want: []string{"k1@13", "new@14"}, change: func(_ *testing.T, _ *streams.Bus, put func(string) uint64) { put("k1"); put("new") }},
		{name: "the last that was told is replaced", want: []string{"k11@13"}, change: func(_ *testing.T, _ *streams.Bus, put func(string) uint64) { put("k11") }},
		{
			name: "another log with the same keys", want: []string{"k5@1", "k11@2"},
			change: func(t *testing.T, b *streams.Bus, put func(string) uint64) {
				anew(t, b)
				put("k5")
				put("k11")
			},
		},
		{
			name: "another log with as many values", want: []string{"z0@1", "z1@2", "z2@3", "z3@4", "z4@5", "z5@6", "z6@7", "z7@8", "z8@9", "z9@10", "z10@11", "z11@12", "z12@13"},
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
					return must(streams.OpenGroups(b).Put(t.Context(), key, schemas.Group{ID: key}))(t)
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

// anew makes the bucket of the groups anew.
func anew(t *testing.T, b *streams.Bus) {
	t.Helper()
	ok(t, b.DeleteStream(t.Context(), "KV_groups"))
	ok(t, b.Again(t.Context()))
}
