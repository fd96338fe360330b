package wsconn

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Slots is the number of slots of a [Ring], which take turns in each round.
const Slots = 12

// Times of the keep-alive.
const (
	Round      = Slots * time.Second // how often [Conn.KeepAlive] must be called
	pongWithin = 5 * Round           // a client from which nothing was received for this long is considered gone
	askAfter   = pongWithin / 3      // a client from which nothing was received for this long gets a ping
)

// Entry is an entry of a [Ring], such as a connection that it keeps alive.
type Entry interface {
	comparable
	// Turn is called once in each round, with the ring locked: it must neither block nor call the ring.
	Turn()
	// Slot returns where the ring stores the entry's slot. No other code writes it.
	Slot() *int
}

// Ring keeps many connections alive with one timer: each is in a slot, and the slots take turns, so that the work of a round is spread
// over it. The zero value is ready to use. It is safe for concurrent use.
//
// From Add to Remove an entry stays in one slot, so its turns are one round apart, and [silent] may count in rounds. A timer for each
// connection would cost memory and a wakeup for each of very many idle ones. Slots are filled in turn, so they stay about equally full.
// closed is set under the same lock under which the entries are listed: each added entry is either returned by Run or refused by Add, and
// no connection is forgotten at the end.
type Ring[E Entry] struct {
	mu     sync.Mutex
	slots  [Slots]map[E]struct{}
	next   int
	closed bool
}

// Add adds an entry to the ring. It returns false once the ring has stopped.
func (r *Ring[E]) Add(e E) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	slot := r.next
	r.next = (r.next + 1) % Slots
	if r.slots[slot] == nil {
		r.slots[slot] = map[E]struct{}{}
	}
	r.slots[slot][e] = struct{}{}
	*e.Slot() = slot
	return true
}

// Remove removes an entry from the ring, if it is there.
func (r *Ring[E]) Remove(e E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots[*e.Slot()], e)
}

// Run calls Turn of each entry once in each round until ctx ends, and returns the remaining entries. No entry can be added after that.
func (r *Ring[E]) Run(ctx context.Context, round time.Duration) []E {
	tick := time.NewTicker(max(round/Slots, 1))
	defer tick.Stop()
	for slot := 0; ; slot = (slot + 1) % Slots {
		select {
		case <-ctx.Done():
			return r.stop()
		case <-tick.C:
			r.mu.Lock()
			for e := range r.slots[slot] {
				e.Turn()
			}
			r.mu.Unlock()
		}
	}
}

func (r *Ring[E]) stop() []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var all []E
	for _, slot := range r.slots {
		all = slices.AppendSeq(all, maps.Keys(slot))
	}
	return all
}

type silence int

const (
	silenceShort  silence = iota
	silenceBroken         // a ping must be sent
	silenceEnds           // the connection must be dropped
)

// silent decides from how long nothing was received from a client and nothing sent to it. A client that only listens sends something when
// it gets a ping, so it gets one even while much is sent to it. Turns may be a little early or late: half a slot less than a round counts
// as a round, else a pause of one round might be noticed only after two.
func silent(received, said time.Duration) silence {
	switch {
	case received > pongWithin:
		return silenceEnds
	case said >= Round-Round/Slots/2, received > askAfter:
		return silenceBroken
	}
	return silenceShort
}
