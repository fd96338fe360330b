package streams

import (
	"sync"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/schemas"
)

// mostAnnounced is how many calls one half of [announcements] has.
const mostAnnounced = 8192

// announcements are the calls whose call.accepted this Bus has stored, with the log's confirmation, and that this process has not handled
// since: the worker part that handles the call then need not publish the event again. It has two generations at most; the older one is
// dropped when the younger one is full, or older than an announcement may be trusted.
type announcements struct {
	mu             sync.Mutex
	younger, older map[string]Certainty
	turned         clock.Reading
}

// add records a call whose event the log has confirmed. sure is the certainty from before the event was sent.
func (a *announcements) add(id string, sure Certainty) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.younger == nil || len(a.younger) >= mostAnnounced || clock.Since(a.turned) >= SureWithin {
		a.younger, a.older, a.turned = map[string]Certainty{}, a.younger, clock.Now()
	}
	a.younger[id] = sure
}

// take returns since when a call has been announced, and removes it.
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

// Announced reports whether the log certainly has call.accepted of a call, because this Bus stored it lately over connections that are
// still up: a log that loses its end also loses the connections. It returns true once per call; false means unknown.
func (b *Bus) Announced(c schemas.Call) bool {
	sure, ok := b.announced.take(schemas.AcceptedID(c.Account, c.ID))
	return ok && b.Holds(sure)
}
