// Package limits hands out places under caps: at most n holders of a key at a time, each with a
// lease that ends by itself when its holder dies.
//
// The interface is what a shared store can keep with one round trip per verb; [Memory] is the
// implementation for one process. Every implementation passes the suite in limitstest.
package limits

import (
	"context"
	"math"
	"time"
)

// Regardless is the cap of who takes a place again that the limiter has forgotten, for work that runs: it must be
// counted, whatever the cap is.
const Regardless = math.MaxInt32

// Limiter holds caps. All methods may be called from many goroutines.
//
// Losing a limiter's store loses nothing but the count: places that were held are forgotten, so a
// cap may be exceeded by what is let in until their holders take them again, see [Regardless].
type Limiter interface {
	// Acquire takes one of most places under key for holder, until ttl has passed. A holder that has
	// a place already keeps it and gets a new lease for it, with a higher token: the older one is
	// void, so that a holder which is thought dead cannot renew or release what another run of the
	// same work holds. It does not wait for a place.
	//
	// Codes: exhausted (all places are held), invalid (most or ttl is not above 0), unavailable.
	Acquire(ctx context.Context, key, holder string, most int, ttl time.Duration) (Lease, error)

	// Renew lets the leases last for ttl from now and returns those that are lost: they had ended, or another token holds the slot. The cap
	// may be exceeded by what continues without its lease. With an error nothing is known about any of them. Codes: unavailable.
	Renew(ctx context.Context, ttl time.Duration, leases ...Lease) (lost []Lease, err error)

	// Release frees the slots. Releasing a lost lease is no error and has no effect on others. Codes: unavailable: the lease then ends by
	// itself.
	Release(ctx context.Context, leases ...Lease) error
}

// Lease is a place under a cap, held until it ends or is released. It is plain data.
type Lease struct {
	Key    string
	Holder string
	// Token rises with each lease of a key: of two leases of the same holder the higher one counts.
	Token uint64
}
