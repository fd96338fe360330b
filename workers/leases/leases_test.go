package leases

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

//guarantee:side-effects-are-started-at-most-once
func TestALeaseIsNotKeptByAHostThatSleeps(t *testing.T) {
	t.Parallel()
	const nap = 15 * time.Minute
	begun := clock.Now()
	l := &Lease{since: begun, renewed: clock.Now()}
	if taken := clock.Now(); !l.KeptSince(taken) || !l.KeptFor(0) {
		t.Fatal("a lease that was just renewed is not kept")
	}
	l.renewed = l.renewed.Asleep(-nap) // as if the host had slept since
	if l.KeptSince(begun) || l.Settled() {
		t.Error("the lease counts as kept while the host slept")
	}
}

// TestAClockThatIsSetAheadMakesNoLeaseOlder: after a clock was set ahead, a worker must not believe that it has held its lease for longer
// than it has.
func TestAClockThatIsSetAheadMakesNoLeaseOlder(t *testing.T) {
	t.Parallel()
	now := clock.Now()
	l := &Lease{since: now.Asleep(-time.Hour), renewed: now} // as if the host's clock had been set ahead since
	if l.KeptFor(time.Hour / 2) {
		t.Error("the lease counts as kept for as long as the clock was set ahead")
	}
	if !l.KeptFor(0) {
		t.Error("the lease is not kept")
	}
}

// TestOneReadOfAMissingLeaseIsNoProof: a worker is gone only if several consecutive reads over a long enough period did not find its
// lease, and this worker held its own lease meanwhile.
//
//guarantee:side-effects-are-started-at-most-once
func TestOneReadOfAMissingLeaseIsNoProof(t *testing.T) {
	const s = time.Second
	type read struct {
		after time.Duration // since the first
		held  bool
		gone  bool
	}
	no := func(after ...time.Duration) (reads []read) {
		for _, d := range after {
			reads = append(reads, read{after: d})
		}
		return reads
	}
	for name, c := range map[string]struct {
		lapse time.Duration // when the reader's own lease was held again after a gap; 0: there was no gap
		reads []read
	}{
		"it is missing for good":      {reads: append(no(0, s/2, s, 3*s/2, 2*s-1), read{2 * s, false, true}, read{time.Hour, false, true})},
		"it was missing for a moment": {reads: append(no(0, s/2, s, 3*s/2), read{2*s - 1, true, false}, read{2 * s, false, false})},
		"two reads far apart":         {reads: no(0, 15*s)},
		"many reads at once":          {reads: no(0, 1, 2, 3, 4, 5, 6)},
		"the own lease lapsed meanwhile": {
			lapse: s,
			reads: append(no(0, s/2, 3*s/2, 2*s, 5*s/2, 3*s, 7*s/2, 4*s), read{Settle + s - 1, false, false}, read{Settle + s, false, true}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Lease{since: clock.Now()}
				time.Sleep(Settle)
				begun, lapse := time.Now(), c.lapse
				for i, r := range c.reads {
					if lapse > 0 && r.after > lapse {
						time.Sleep(time.Until(begun.Add(lapse)))
						l.since, lapse = clock.Now(), 0
					}
					time.Sleep(time.Until(begun.Add(r.after)))
					now := clock.Now()
					l.renewed = now
					if got := l.judge("worker_1", r.held, now, now); got != r.gone || l.Missing("worker_1") == r.held {
						t.Errorf("read %d, %v after the first: gone %v, want %v; missing %v", i, r.after, got, r.gone, l.Missing("worker_1"))
					}
				}
			})
		})
	}
}
