package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRunAllStopsTheOthersAndReportsTheFirst(t *testing.T) {
	boom := errors.New("boom")
	waits := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, c := range map[string]struct {
		actors []actor
		stop   bool
		want   error
		says   string
	}{
		"told to stop": {[]actor{{name: "a", run: waits}, {name: "b", run: waits, last: true}}, true, nil, ""},
		"one fails": {[]actor{{name: "a", run: waits}, {name: "b", run: func(context.Context) error { return boom }}},
			false, boom, "b: boom"},
		"a last one fails": {[]actor{{name: "a", run: waits}, {name: "b", run: func(context.Context) error { return boom }, last: true}},
			false, boom, "b: boom"},
		"one ends by itself": {[]actor{{name: "a", run: waits}, {name: "b", run: func(context.Context) error { return nil }}},
			false, nil, "b ended by itself"},
		"cancelled is no end": {[]actor{{name: "a", run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}}, true, nil, ""},
		"fails at its end":    {[]actor{{name: "a", run: func(ctx context.Context) error { <-ctx.Done(); return boom }}}, true, boom, "a: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stop {
					time.AfterFunc(time.Second, cancel)
				}
				err := runAll(ctx, c.actors)
				if c.want != nil && !errors.Is(err, c.want) || c.says == "" && err != nil || c.says != "" && (err == nil || err.Error() != c.says) {
					t.Errorf("got %v, want %q", err, c.says)
				}
			})
		})
	}
}

func TestRunAllStopsTheLastOnesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex
			order []string
		)
		end := func(name string, takes time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(takes)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				return nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		err := runAll(ctx, []actor{
			{name: "gateway", run: end("gateway", 0), last: true}, {name: "worker", run: end("worker", time.Hour)},
			{name: "mover", run: end("mover", 0)},
		})
		if want := []string{"mover", "worker", "gateway"}; err != nil || !slices.Equal(order, want) {
			t.Errorf("ended in the order %v, %v; want %v", order, err, want)
		}
	})
}
