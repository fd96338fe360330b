package sandboxes

import (
	"context"
	"iter"
	"strings"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// claimRoom is [table.claimed] for a call: it returns an error if a new instance would exceed the account's limit of live instances.
// Codes: exhausted; unavailable (the worker has just started, and has not read the rows yet).
func (b *table) claimRoom(key string, account schemas.AccountID) (*instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.AccountMost > 0 {
		if !b.read {
			return nil, schemas.OpErrorf(schemas.Unavailable, "reserve", "how many persistent sandboxes the account has is not known yet: try again")
		}
		if live := b.liveBeside(key, account); live >= b.AccountMost {
			return nil, schemas.OpErrorf(schemas.Exhausted, "reserve",
				"the account has %d persistent sandboxes that run on the provider %q, as many as it may (--account-sandboxes): "+
					"end one (sandjet sandboxes instances rm), or wait until one has been idle", live, b.Name)
		}
	}
	h := b.at(key)
	h.claims++
	return h, nil
}

// liveBeside returns how many instances of an account exist or are being created by this worker; 0 if that of key is one of them. Paused
// instances do not count. The rows of other workers arrive with a delay, so workers that create an instance at the same time may exceed
// the limit by one each. The caller holds the mutex.
func (b *table) liveBeside(key string, account schemas.AccountID) (n int) {
	live := func(h *instance) bool {
		return h.claims > 0 || h.calls > 0 || h.row.State != "" && h.row.State != schemas.InstancePaused
	}
	if h := b.held[key]; h != nil && live(h) {
		return 0
	}
	for other, h := range b.held {
		if strings.HasPrefix(other, string(account)+".") && live(h) {
			n++
		}
	}
	return n
}

// listed records that all rows were read.
func (b *table) listed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = true
}

// listedRows calls done each time when all existing rows were read.
type listedRows struct {
	streams.MirrorSource[schemas.Instance]

	done func()
}

// Mirrored is [streams.MirrorSource] Mirrored, but also calls done after listed.
func (r listedRows) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[streams.BucketEntry[schemas.Instance], error] {
	return r.MirrorSource.Mirrored(ctx, listing, func() {
		listed()
		r.done()
	})
}
