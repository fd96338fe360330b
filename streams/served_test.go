package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// TestServedProvidersAreKnown: a provider counts as served while a worker notes it and for the grace after, also
// to a process that starts meanwhile; at a process's start, and where a worker has its lease, every time.
func TestServedProvidersAreKnown(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		begin := func() (*streams.Served, func()) {
			s := &streams.Served{Bus: b, Grace: 10 * time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			return s, func() { cancel(); ok(t, <-done) }
		}
		want := func(s *streams.Served, provider string, served bool) {
			t.Helper()
			if got := must(s.Serves(t.Context(), provider))(t); got != served {
				t.Errorf("%s: served %v, want %v", provider, got, served)
			}
		}
		first, stop := begin()
		defer stop()
		want(first, "local", true) // whoever serves it may start at this moment
		time.Sleep(20 * time.Second)
		want(first, "local", false)
		ok(t, streams.NoteServed(t.Context(), b, "local"))
		time.Sleep(time.Second)
		want(first, "local", true)
		want(first, "e2b", false)
		time.Sleep(5 * time.Minute)
		second, stopSecond := begin()
		defer stopSecond()
		time.Sleep(20 * time.Second)
		want(second, "local", true)
		want(second, "e2b", false)
		time.Sleep(5 * time.Minute)
		want(first, "local", false)
		want(second, "local", false)
		type lease struct {
			Provider string `json:"provider"`
		}
		_, err := streams.OpenBucket[lease](b, streams.Leases).Put(t.Context(), "worker_1", lease{"local"})
		ok(t, err)
		want(first, "local", true) // of a version that notes nothing
	})
}
