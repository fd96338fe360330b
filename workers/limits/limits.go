// Package limits limits how many holders occupy slots of a key at a time. Each slot has a lease that expires if its holder dies.
//
// A shared store can implement the interface [Limiter] with one round trip per method; [Memory] implements it for one process. Every
// implementation passes the suite in limitstest.
package limits

import (
	"context"
	"math"
	"time"
)

// Regardless is the limit for a holder that acquires a slot again after the limiter has lost it, for work that is already running: it must
// be counted, whatever the limit is.
const Regardless = math.MaxInt32

// Limiter limits concurrency by key. Its methods are safe for concurrent use.
//
// If a limiter's store is lost, only the count is lost: the limiter does not know the occupied slots, so a limit may be exceeded until the
// holders acquire their slots again, see [Regardless].
type Limiter interface {
	// Acquire occupies one of most slots of key for holder, until ttl has passed. A holder that occupies a slot already gets a new lease
	// for it, with a higher token. The older lease becomes invalid, so that a holder that is believed dead can neither renew nor release
	// the slot of another run of the same work. Acquire does not wait for a slot.
	//
	// Codes: exhausted (all slots are occupied), invalid (most or ttl is not above 0), unavailable.
	Acquire(ctx context.Context, key, holder string, most int, ttl time.Duration) (Lease, error)

	// Renew extends the leases to ttl from now and returns those that are lost: they had expired, or another token holds the slot. If the
	// caller continues without its lease, the limit may be exceeded. After an error the state of all the leases is unknown. Codes:
	// unavailable.
	Renew(ctx context.Context, ttl time.Duration, leases ...Lease) (lost []Lease, err error)

	// Release frees the slots. Releasing a lost lease has no effect and is no error. Codes: unavailable; then the leases expire.
	Release(ctx context.Context, leases ...Lease) error
}

// Lease is an occupied slot, until it expires or is released. It is plain data.
type Lease struct {
	Key    string
	Holder string
	// Token increases with each lease of a key: of two leases of the same holder, the one with the higher token is valid.
	Token uint64
}
