package streams

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/subjects"
)

// LiveEvent is an event that was stored just now. Its cursor has no epoch: only who reads the log
// knows which incarnation of the stream it came from.
type LiveEvent struct {
	Entry[schemas.Event]
	// Prev is the sequence of the event before it on its conversation, 0 if there is none.
	Prev uint64
	// Away says that only its place is here: it is too large to be sent live, or no event at all.
	Away bool
}

// Tail reports what is stored from now on, on any number of conversations, with one goroutine and one
// channel for all of them: a conversation that is silent costs a subscription and nothing else.
// Messages may get lost; Prev shows it, and lost says when many may be.
type Tail struct {
	bus   *Bus
	lost  func()
	ahead chan *nats.Msg
	over  chan struct{} // has a token when more came than could be taken
	drop  <-chan struct{}

	mu   sync.RWMutex
	take map[string]func(LiveEvent) // by subject
}

// tailAhead is how many live messages may wait for the one goroutine; what is above is read from
// the log.
const tailAhead = 8 << 10

// NewTail makes a tail. Lost is called whenever messages of any conversation may have been lost: the connection has reconnected, or more
// came than could be taken. It must not block.
func NewTail(b *Bus, lost func()) *Tail {
	return &Tail{
		bus: b, lost: lost, ahead: make(chan *nats.Msg, tailAhead), over: make(chan struct{}, 1), drop: b.drops.Next(),
		take: map[string]func(LiveEvent){},
	}
}

// Run reports what arrives until ctx ends, then returns nil.
func (t *Tail) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.drop:
			t.again(ctx)
		case <-t.over:
			t.lost()
		case m := <-t.ahead:
			select {
			case <-t.over:
				t.lost()
			case <-t.drop: // first: m may be of another stream than those before it
				t.again(ctx)
			default:
			}
			t.deliver(ctx, m)
		}
	}
}

// again reports that something may have been lost, once the server has the subscriptions again: a reader that reads the log then misses
// nothing.
func (t *Tail) again(ctx context.Context) {
	t.drop = t.bus.drops.Next()
	for t.settle(ctx) != nil {
		if !wait.Sleep(ctx, reconnectAfter) {
			return
		}
	}
	t.lost()
}

// Follow calls take for each event that is stored on the conversation after it returned, in the goroutine of Run, until stop is called.
// Take must not block. A conversation may be followed once at a time. Code unavailable when the server does not confirm in time.
func (t *Tail) Follow(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, take func(LiveEvent),
) (stop func(), err error) {
	subject := subjects.LiveSubject(a, c)
	t.mu.Lock()
	if _, ok := t.take[subject]; ok {
		t.mu.Unlock()
		return nil, schemas.OpErrorf(schemas.Conflict, "follow", "the conversation is followed already")
	}
	t.take[subject] = take
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		delete(t.take, subject)
		t.mu.Unlock()
	}
	sub, err := t.bus.live.ChanSubscribe(subject, t.ahead)
	if err != nil {
		forget()
		return nil, natserr.Coded("follow", err)
	}
	t.bus.slow.Store(sub, t.overflow)
	stop = func() {
		t.bus.slow.Delete(sub)
		forget()
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.bus.log.Debug("unsubscribe failed", "error", err)
		}
	}
	if err := t.settle(ctx); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// overflow notes that more came than could be taken. It does not block.
func (t *Tail) overflow() {
	select {
	case t.over <- struct{}{}:
	default:
	}
}

// settle returns once the server has every subscription: what is read from the log afterwards and
// what arrives leave no hole between them.
func (t *Tail) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	return natserr.Coded("follow", t.bus.live.FlushWithContext(ctx))
}

func (t *Tail) deliver(ctx context.Context, m *nats.Msg) {
	if fault := t.bus.faults.dropLive; fault != nil && fault(m) {
		return
	}
	t.mu.RLock()
	take := t.take[m.Subject]
	t.mu.RUnlock()
	if take == nil {
		return // its stop crossed it
	}
	s, prev, err := direct.ParseLive(m)
	if err != nil {
		return // only a publisher with all rights could have sent it
	}
	e := LiveEvent{Entry: Entry[schemas.Event]{Cursor: schemas.Cursor{Seq: s.Seq}, Stored: s.Time, Subject: s.Subject}, Prev: prev}
	if e.Away = s.Headers.Get(payloads.Header) != ""; !e.Away { // what lies elsewhere is not waited for here
		var err error
		if e.Entry, err = Events.entry(ctx, t.bus, "", s); err != nil {
			e.Away = true // readers of the log skip it
		}
	}
	take(e)
}
