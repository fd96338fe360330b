package streams_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestALeaseEndsWhereTheLogsClockIsSetBack as soon as elsewhere, or after twice its time: one that was written before, and is not renewed,
// is over; one that is renewed is not.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestALeaseEndsWhereTheLogsClockIsSetBack(t *testing.T) {
	t.Parallel()
	var before uint64
	play(t,
		part{time.Hour, func(t *testing.T, b *streams.Bus) {
			leases := streams.OpenBucket[string](b, streams.Leases)
			testwait.Must(leases.Put(t.Context(), "living", "x"))(t)
			before = testwait.Must(leases.Put(t.Context(), "dead", "x"))(t)
			testwait.Must(leases.Create(t.Context(), "long", "x", time.Minute))(t)
		}},
		part{0, func(t *testing.T, b *streams.Bus) {
			leases := streams.OpenBucket[string](b, streams.Leases)
			has := func(key string, want bool) {
				t.Helper()
				_, err := leases.Get(t.Context(), key)
				if is := err == nil; is != want || err != nil && schemas.CodeOf(err) != schemas.NotFound {
					t.Errorf("%s is there: %t, %v", key, is, err)
				}
			}
			for range 2 * int(streams.LeaseTTL/time.Second) {
				has("living", true)
				testwait.Must(leases.Put(t.Context(), "living", "x"))(t)
				_, _ = leases.Get(t.Context(), "dead")
				has("long", true)
				time.Sleep(time.Second)
			}
			has("living", true)
			has("dead", false)
			if _, err := leases.Create(t.Context(), "long", "mine", time.Minute); schemas.CodeOf(err) != schemas.Conflict {
				t.Errorf("what lives for a minute is replaced after seconds: %v", err)
			}
			time.Sleep(time.Minute)
			has("long", false)
			if rev := testwait.Must(leases.Create(t.Context(), "dead", "mine", 0))(t); rev <= before {
				t.Errorf("the new one has the revision %d", rev)
			}
			testwait.Must(leases.Create(t.Context(), "long", "mine", time.Minute))(t)
			has("dead", true)
			has("long", true)
		}},
	)
}

// TestADutyIsTakenOverWhereTheLogsClockIsSetBack: its holder has died before that.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestADutyIsTakenOverWhereTheLogsClockIsSetBack(t *testing.T) {
	t.Parallel()
	took := func(b *streams.Bus) func(context.Context, *testing.T) (after time.Duration) {
		return func(ctx context.Context, t *testing.T) time.Duration {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			began, looked := time.Now(), make(chan time.Duration, 1)
			var run sync.WaitGroup
			run.Go(func() {
				_ = (&streams.Duty{Bus: b, Name: "test", Every: time.Minute, Begin: func() func(context.Context, *streams.Tenure) {
					return func(context.Context, *streams.Tenure) {
						select {
						case looked <- time.Since(began):
						default:
						}
					}
				}}).Run(ctx)
			})
			after := <-looked
			b.Cut() // it does not release the lease
			stop()
			run.Wait()
			return after
		}
	}
	play(t,
		part{time.Hour, func(t *testing.T, b *streams.Bus) { took(b)(t.Context(), t) }},
		part{0, func(t *testing.T, b *streams.Bus) {
			const first = time.Minute / 5
			if after := took(b)(t.Context(), t); after > streams.DutyTakenOver+first {
				t.Errorf("the next holder looks after %s", after)
			}
		}},
	)
}
