package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	wheelSlots = 12
	turnTakes  = wheelSlots * time.Second // a socket is looked at this often
	pongWithin = 5 * turnTakes            // silence of the client after which it is taken for gone
	askAfter   = pongWithin / 3           // silence of the client after which it is asked whether it is there
)

// rider is what a wheel looks after. Its turn must not wait.
type rider interface {
	comparable
	turn()
	seat() *int // its slot
}

// wheel looks after many connections with one timer: each is in a slot, and one slot after the other has its turn.
// The zero wheel is ready.
type wheel[R rider] struct {
	mu     sync.Mutex
	slots  [wheelSlots]map[R]struct{}
	next   int
	closed bool
}

// add puts a connection on the wheel. It reports false once the wheel stands still.
func (w *wheel[R]) add(r R) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	slot := w.next
	w.next = (w.next + 1) % wheelSlots
	if w.slots[slot] == nil {
		w.slots[slot] = map[R]struct{}{}
	}
	w.slots[slot][r] = struct{}{}
	*r.seat() = slot
	return true
}

func (w *wheel[R]) remove(r R) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.slots[*r.seat()], r)
}

// run turns the wheel, each time in round, until ctx ends, and returns what is on it then.
func (w *wheel[R]) run(ctx context.Context, round time.Duration) []R {
	tick := time.NewTicker(max(round/wheelSlots, 1))
	defer tick.Stop()
	for slot := 0; ; slot = (slot + 1) % wheelSlots {
		select {
		case <-ctx.Done():
			return w.stop()
		case <-tick.C:
			w.mu.Lock()
			for r := range w.slots[slot] {
				r.turn()
			}
			w.mu.Unlock()
		}
	}
}

func (w *wheel[R]) stop() []R {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	var all []R
	for _, slot := range w.slots {
		all = slices.AppendSeq(all, maps.Keys(slot))
	}
	return all
}

func (s *session) seat() *int { return &s.slot }

// turn is a socket's turn on the wheel. Who said nothing since its last turn says ping, so that no silence is longer
// than two turns; who heard nothing for five is closed, and so is who was let in by a key that is no longer good.
// It never waits.
func (s *session) turn() {
	if s.byKey.Load() && !s.closing.Load() && !s.g.good(s.pass.account, s.pass.key) {
		s.g.sockets.Go(func() { s.close(&closed{CloseAuth, schemas.Public(errKeyGone()).Message}) }) // it may wait for a write
		return
	}
	now := s.g.uptime()
	switch silent(now-time.Duration(s.heard.Load()), now-time.Duration(s.said.Load())) {
	case silenceEnds:
		s.close(&closed{0, "the client is silent"})
	case silenceBroken:
		s.pingDue.Store(true)
		s.wake()
	case silenceShort:
	}
}

type silence int

const (
	silenceShort  silence = iota
	silenceBroken         // by a ping
	silenceEnds           // the socket
)

// silent judges how long nothing was heard from a client and nothing said to it. A client that only listens says
// something when it is asked, and so it is asked also while it is told much.
func silent(heard, said time.Duration) silence {
	switch {
	case heard > pongWithin:
		return silenceEnds
	case said >= turnTakes-turnTakes/wheelSlots/2, heard > askAfter:
		return silenceBroken
	}
	return silenceShort
}
