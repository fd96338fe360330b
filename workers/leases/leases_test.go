package leases

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

func TestALeaseIsNotKeptByAHostThatSleeps(t *testing.T) {
	t.Parallel()
	const nap = 15 * time.Minute
	begun := clock.Now()
	l := &Lease{since: begun, renewed: clock.Now()}
	if taken := clock.Now(); !l.KeptSince(taken) || !l.KeptSinceWall(time.Now()) {
		t.Fatal("a lease that was just renewed is not kept")
	}
	l.renewed = l.renewed.Asleep(-nap) // as if the host had slept since
	if l.KeptSince(begun) || l.Settled() {
		t.Error("the lease counts as kept while the host slept")
	}
}
