package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	wheelSlots = 12
	wheelTick  = time.Second
	turnTakes  = wheelSlots * wheelTick // a socket is looked at this often
	pongWithin = 5 * turnTakes          // silence of the client after which it is taken for gone
	askAfter   = pongWithin / 3         // silence of the client after which it is asked whether it is there
)

// wheel looks after all sockets with one timer: each is in a slot, and a slot has its turn every
// twelve seconds. Who said nothing since its last turn says ping, so that no silence is longer than
// two turns; who heard nothing for five is closed, and so is who was let in by a key that is no longer
// good.
type wheel struct {
	mu     sync.Mutex
	slots  [wheelSlots]map[*session]struct{}
	next   int
	closed bool
}

// add puts a socket on the wheel. It reports false once the wheel stands still.
func (w *wheel) add(s *session) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	s.slot = w.next
	w.next = (w.next + 1) % wheelSlots
	if w.slots[s.slot] == nil {
		w.slots[s.slot] = map[*session]struct{}{}
	}
	w.slots[s.slot][s] = struct{}{}
	return true
}

func (w *wheel) remove(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.slots[s.slot], s)
}

// run turns the wheel until ctx ends, and returns the sockets that are on it then.
func (w *wheel) run(ctx context.Context) []*session {
	tick := time.NewTicker(wheelTick)
	defer tick.Stop()
	for slot := 0; ; slot = (slot + 1) % wheelSlots {
		select {
		case <-ctx.Done():
			return w.stop()
		case <-tick.C:
			w.mu.Lock()
			for s := range w.slots[slot] {
				s.turn()
			}
			w.mu.Unlock()
		}
	}
}

func (w *wheel) stop() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	var all []*session
	for _, slot := range w.slots {
		for s := range slot {
			all = append(all, s)
		}
	}
	return all
}

// turn is a socket's turn on the wheel. It never waits.
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
	case said >= turnTakes-wheelTick/2, heard > askAfter:
		return silenceBroken
	}
	return silenceShort
}
