package wsconn

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Slots is how many parts a round of a [Ring] has.
const Slots = 12

// Times of the keep-alive.
const (
	Round      = Slots * time.Second // how often [Conn.KeepAlive] is to be called
	pongWithin = 5 * Round           // silence of the client after which it is taken for gone
	askAfter   = pongWithin / 3      // silence of the client after which it is asked whether it is there
)

// Entry is what a [Ring] pings.
type Entry interface {
	comparable
	// Turn is called once in each round, with the ring locked: it must not wait, nor call the ring.
	Turn()
	// Slot is where the ring keeps the entry's place. No other code writes it.
	Slot() *int
}

// Ring pings many connections with one timer: each is in a slot, and one slot after the other has its turn, so that the work of a round is
// spread over it. The zero value is ready; its methods may be called from many goroutines.
//
// From Add to Remove an entry is in one slot and stays there, so its turns are one round apart, and [silent] may count in rounds. A timer
// for each connection would cost memory and a wakeup for each of very many idle ones. Slots are filled in turn and so stay about equally
// full. Closed is set and the entries are listed under one lock: an added entry is either returned by Run or refused by Add, and no
// connection is forgotten at the end.
type Ring[E Entry] struct {
	mu     sync.Mutex
	slots  [Slots]map[E]struct{}
	next   int
	closed bool
}

// Add puts an entry on the ring. It reports false once the ring has stopped.
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

// Remove takes an entry off the ring. One that is not there is left alone.
func (r *Ring[E]) Remove(e E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots[*e.Slot()], e)
}

// Run gives each entry its turn once in each round until ctx ends, and returns what is on the ring then; nothing is added
// after that.
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
	silenceBroken         // by a ping
	silenceEnds           // the connection
)

// silent judges how long nothing was received from a client and nothing sent to it. A client that only listens says something when it is
// asked, and so it is asked also while much is sent to it. Turns may come a little early or late: half a slot less than a round counts as a
// round, else a silence of one round might be seen only after two.
func silent(received, said time.Duration) silence {
	switch {
	case received > pongWithin:
		return silenceEnds
	case said >= Round-Round/Slots/2, received > askAfter:
		return silenceBroken
	}
	return silenceShort
}
