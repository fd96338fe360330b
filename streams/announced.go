package streams

import (
	"sync"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/schemas"
)

// mostAnnounced is how many calls one half of [announcements] has.
const mostAnnounced = 8192

// announcements are the calls whose call.accepted this Bus has stored, and the log confirmed, and that this process has not acted on since:
// the one that acts on a call then need not send it once more. It is at most two halves, of which the older one is forgotten when the
// younger one is full or has lasted for as long as it is believed.
type announcements struct {
	mu             sync.Mutex
	younger, older map[string]Certainty
	turned         clock.Reading
}

// add keeps what the log has confirmed; sure is from before it was sent.
func (a *announcements) add(id string, sure Certainty) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.younger == nil || len(a.younger) >= mostAnnounced || clock.Since(a.turned) >= SureWithin {
		a.younger, a.older, a.turned = map[string]Certainty{}, a.younger, clock.Now()
	}
	a.younger[id] = sure
}

// take returns since when a call is announced, once.
func (a *announcements) take(id string) (sure Certainty, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, half := range []map[string]Certainty{a.younger, a.older} {
		if sure, ok = half[id]; ok {
			delete(half, id)
			return sure, true
		}
	}
	return sure, false
}

// Announced reports whether the log surely has call.accepted of a call, since this Bus has stored it lately on connections that it
// still has: a log that lost its end meanwhile has lost the connections too. True is said once; false says nothing.
func (b *Bus) Announced(c schemas.Call) bool {
	sure, ok := b.announced.take(schemas.AcceptedID(c.Account, c.ID))
	return ok && b.Holds(sure)
}
