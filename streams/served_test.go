package streams_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/served"
)

// TestServedProvidersAreKnown: a provider counts as served while a worker notes it and for the grace after, also
// to a process that starts meanwhile; at a process's start, and where a worker has its lease, every time.
//
//guarantee:one-result-for-every-accepted-call
func TestServedProvidersAreKnown(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		begin := func() (*served.Providers, func()) {
			s := &served.Providers{Bus: b, Grace: 10 * time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			return s, func() { cancel(); testwait.OK(t, <-done) }
		}
		want := func(s *served.Providers, provider string, served bool) {
			t.Helper()
			if got := testwait.Must(s.Serves(t.Context(), provider))(t); got != served {
				t.Errorf("%s: served %v, want %v", provider, got, served)
			}
		}
		first, stop := begin()
		defer stop()
		want(first, "local", true) // its worker may start at this moment
		time.Sleep(20 * time.Second)
		want(first, "local", false)
		testwait.OK(t, served.Note(t.Context(), b, "local"))
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
		testwait.OK(t, err)
		want(first, "local", true) // of a version that notes nothing
	})
}

// TestARecordOfAServedProviderIsWrittenAgainWhenItIsOld: that is at two thirds of [served.Every], by the log's clock. A record that
// is stamped in the future is from before that clock was set back, and may be of any age.
func TestARecordOfAServedProviderIsWrittenAgainWhenItIsOld(t *testing.T) {
	for _, c := range []struct {
		name    string
		after   time.Duration // the first record
		set     time.Duration // by how much the log's clock was set since
		written bool
	}{
		{"young", served.Every*2/3 - time.Second, 0, false},
		{"old", served.Every*2/3 + time.Second, 0, true},
		{"of the future", time.Second, -time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var set atomic.Int64 // the clock is read by each process that asks the log
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				note := func() (revision uint64) {
					testwait.OK(t, served.Note(t.Context(), b, "local"))
					return testwait.Must(streams.OpenBucket[struct{}](b, streams.ServedProviders).Get(t.Context(), "local"))(t).Revision
				}
				first := note()
				time.Sleep(c.after)
				set.Store(int64(c.set))
				testwait.OK(t, b.AskTime(t.Context()))
				if second := note(); second > first != c.written {
					t.Errorf("its revision was %d and is %d; written again: want %v", first, second, c.written)
				}
			}, func(s *natstest.Settings) {
				s.Log.LogClock = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
			})
		})
	}
}

// TestProfilesOfLivingWorkersAreKnown: what no living worker keeps is refused, what one of them keeps is not, also when
// it has come just now; of a provider without workers, and of a worker that says nothing, nothing is refused.
func TestProfilesOfLivingWorkersAreKnown(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		s := &served.Providers{Bus: b}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		defer func() { cancel(); testwait.OK(t, <-done) }()
		type lease struct {
			Provider string           `json:"provider"`
			Profile  *schemas.Profile `json:"profile,omitzero"`
		}
		leases := streams.OpenBucket[lease](b, streams.Leases)
		beat := func(worker string, l lease) {
			_, err := leases.Put(t.Context(), worker, l)
			testwait.OK(t, err)
		}
		narrow := &schemas.Profile{Name: "acme", Networks: []schemas.NetworkMode{schemas.DenyAll}}
		wide := &schemas.Profile{Name: "acme", Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll}}
		want := func(about string, mode schemas.NetworkMode, kept bool) {
			t.Helper()
			box := schemas.Sandbox{ID: "sb_1", Name: "box", Network: schemas.Network{Mode: mode}}
			err := s.Keeps(t.Context(), "acme", func(p schemas.Profile) error { return p.Keeps(box) })
			if kept && err != nil || !kept && schemas.CodeOf(err) != schemas.Unsupported {
				t.Errorf("%s: %v", about, err)
			}
		}
		want("nobody is there", schemas.AllowAll, true)
		beat("worker_1", lease{"acme", narrow})
		testwait.OK(t, served.Note(t.Context(), b, "acme"))
		time.Sleep(time.Second)
		want("what it keeps", schemas.DenyAll, true)
		beat("worker_1", lease{"acme", narrow})
		time.Sleep(2 * time.Second)
		want("what it does not", schemas.AllowAll, false)
		beat("worker_2", lease{"acme", wide})
		time.Sleep(2 * time.Second)
		want("what another keeps that has just come", schemas.AllowAll, true)
		time.Sleep(10 * time.Second)
		beat("worker_1", lease{"acme", narrow})
		beat("worker_3", lease{"acme", nil})
		time.Sleep(2 * time.Second)
		want("beside one that says nothing", schemas.Restricted, true)
	})
}
