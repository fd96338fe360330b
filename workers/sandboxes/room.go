package sandboxes

import (
	"context"
	"iter"
	"strings"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// claimRoom is claimed, for a call that may enter only where its account has room for one more live instance, or the instance is there
// already. Codes: exhausted; unavailable (the worker has just started, and does not know them).
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

// liveBeside is how many instances of an account are there, or are being made by this worker; 0 where that of key is among them. What is
// paused runs nowhere. Records of other workers are known as they come, so that workers that make one at the same moment may make one more
// each. The caller has the mutex.
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

// listed notes that all records were read.
func (b *table) listed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = true
}

// listedRows are rows of which done is called when all that are there were read.
type listedRows struct {
	streams.MirrorSource[schemas.Instance]

	done func()
}

// Mirrored is that of the rows.
func (r listedRows) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[streams.BucketEntry[schemas.Instance], error] {
	return r.MirrorSource.Mirrored(ctx, listing, func() {
		listed()
		r.done()
	})
}
