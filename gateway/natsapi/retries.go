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

// defects counts how often each publication has met an error of our own in this process. Naks for other reasons do not count, however many.
// There are as many entries as publications that wait after such an error. When there are more than one consumer can have, as when other
// consumers have ended theirs, all counts begin again.
type defects struct {
	mu  sync.Mutex
	met map[publicationKey]int
}

// note counts one try and returns how many have met such an error.
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

// holdups remembers the accounts whose calls cannot be admitted now, so that one of their calls is tried each second and the rest,
// thousands perhaps, takes no slot.
type holdups struct {
	mu    sync.Mutex
	until map[schemas.AccountID]time.Time // when one is tried next
	swept time.Time                       // when those were forgotten of which nothing comes any more
}

const (
	// holdupProbe is the time between two tries for an account that is held up.
	holdupProbe = time.Second
	// holdupKept is how long an account is held up of which nothing comes: longer than its publications stay away.
	holdupKept = time.Minute
)

// ask reports whether a publication of an account is to be tried now, and if not when.
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
