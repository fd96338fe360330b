package natsapi

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// publicationKey identifies a waiting publication.
type publicationKey struct {
	subject   string
	published int64
}

// defects counts the internal errors of each publication in this process; redeliveries for other reasons do not count. It has one entry
// for each publication that is retried after an internal error. If there are more entries than one consumer can have pending, as when
// other consumers have finished theirs, all counts restart at 0.
type defects struct {
	mu  sync.Mutex
	met map[publicationKey]int
}

// note records the outcome of one try and returns how many tries of the publication have ended in an internal error.
func (d *defects) note(p streams.Publication, err error) int {
	key := publicationKey{p.Subject, p.Published.UnixNano()}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil || !passes(err):
		delete(d.met, key)
		return 0
	case schemas.CodeOf(err) == schemas.Internal:
		if len(d.met) >= routerPending {
			clear(d.met)
		}
		if d.met[key]++; d.met[key] >= defectAttempts { // it ends here
			defer delete(d.met, key)
		}
	}
	return d.met[key]
}

// holdups remembers the accounts whose calls cannot be admitted now. One call of such an account is tried each second; the others,
// possibly thousands, are delayed without occupying a slot.
type holdups struct {
	mu    sync.Mutex
	until map[schemas.AccountID]time.Time // when the next publication is tried
	swept time.Time                       // when old entries were last removed
}

const (
	// holdupProbe is the time between two tries for an account that is held up.
	holdupProbe = time.Second
	// holdupKept is how long an account without publications stays in the map: longer than publications are delayed.
	holdupKept = time.Minute
)

// ask reports whether a publication of an account should be tried now, and if not, after how long.
func (h *holdups) ask(a schemas.AccountID, now time.Time) (away time.Duration, try bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, held := h.until[a]
	if !held {
		return 0, true
	}
	if now.Before(until) {
		return until.Sub(now) + wait.Upto(4*holdupProbe), false
	}
	h.until[a] = now.Add(holdupProbe) // this one shows whether the rest can continue
	return 0, true
}

func (h *holdups) stop(a schemas.AccountID, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until[a] = now.Add(holdupProbe)
	if now.Sub(h.swept) < holdupKept {
		return
	}
	h.swept = now
	for other, until := range h.until { // its last publication was rejected, or another process handles its publications
		if now.Sub(until) > holdupKept {
			delete(h.until, other)
		}
	}
}

func (h *holdups) resume(a schemas.AccountID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, a)
}
