package replay

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// DefaultBudget is how many bytes of frames a hub keeps unless set otherwise.
const DefaultBudget = 64 << 20

const (
	tickEvery  = time.Second
	checkEvery = 45             // ticks of silence after which the log is asked
	linger     = 30 * tickEvery // how long a conversation without readers is followed
	unreadKept = 600            // ticks for which frames without readers are kept
	idleKept   = 4096           // conversations without readers that are followed for so long
	givenKept  = 30             // ticks for which a reader has what was read for it, though memory is short
	keepPart   = 10             // a tenth of the budget is made free at a time
	askAtOnce  = 16             // questions to the log about conversations at the same time
)

// Options are the settings of a [Hub].
type Options struct {
	Log    *slog.Logger // nil: silent
	Budget int          // bytes of frames, about. Default [DefaultBudget]
}

// Hub shows conversations to readers. Its methods may be called from many goroutines.
//
// A live event is only a hint: the server may lose any of them, and nothing shows that the last one was lost. So an event is shown only
// when the one that it names as its predecessor is the last that is known; otherwise the conversation's loader reads what lies between. A
// lost last event is found by asking: each conversation with readers is compared with the log once in checkEvery ticks (each is in one slot
// of a ring, which spreads the requests), and at once when it is in doubt. It is in doubt when events may have been lost (shaken) or an
// event came for a place that is known already, as after a crash of the server that took the end of the log. What is in doubt shows no live
// events until its stream is known to be the same.
//
// Locks are taken in the order mu, a conversation's, lists, and none is held while the log is asked.
type Hub struct {
	from   Log
	log    *slog.Logger
	budget int64

	ctx    context.Context //nolint:containedctx // ends with Run: what reads the log hangs on it
	end    context.CancelFunc
	parts  sync.WaitGroup
	bytes  atomic.Int64
	tick   atomic.Int64
	urgent chan struct{} // a check is due now
	shaken atomic.Bool   // live events of any conversation may have got lost

	checking atomic.Bool // conversations are held against the log just now
	missed   atomic.Bool // others wanted to be meanwhile

	mu     sync.Mutex // before a conversation's
	closed bool
	turns  int64
	known  map[key]*conversation
	slots  [checkEvery]set // of those known: which are looked at in which tick
	// servers are the processes that were last asked about each shard.
	servers map[int]string

	lists   sync.Mutex // after a conversation's
	doubted set        // in doubt
	idle    set        // without readers, and followed perhaps
}

type set map[*conversation]struct{}

type key struct {
	account schemas.AccountID
	id      schemas.ConversationID
}

// New makes a hub. Readers may attach at once; they are served once it runs.
func New(from Log, o Options) *Hub {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Budget <= 0 {
		o.Budget = DefaultBudget
	}
	h := &Hub{from: from, log: o.Log, budget: int64(o.Budget), urgent: make(chan struct{}, 1), known: map[key]*conversation{},
		servers: map[int]string{}, doubted: set{}, idle: set{}}
	for i := range h.slots {
		h.slots[i] = set{}
	}
	h.ctx, h.end = context.WithCancel(context.Background()) //nolint:gosec // Run calls it
	return h
}

// Run follows the log until ctx ends, then ends every reader and returns nil. A hub cannot be run
// again.
func (h *Hub) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, h.end)()
	var err error
	tail := make(chan struct{})
	go func() {
		defer close(tail)
		err = h.from.Run(h.ctx, func() { h.shaken.Store(true); h.checkSoon() })
	}()
	h.watch()
	<-tail
	h.close()
	h.parts.Wait()
	return err
}

// Attach adds a reader of a conversation after a cursor. It does not wait: the first step that the reader gets is StepAttached or
// StepFailed. Wake is called whenever there may be something to deliver, from any goroutine, also before Attach returns; it must not block
// and not call the reader.
func (h *Hub) Attach(a schemas.AccountID, id schemas.ConversationID, after schemas.Cursor, wake func()) *Reader {
	return h.attach(a, id, &Reader{wake: wake, last: after, index: -1})
}

// AttachCompact is Attach for who wants finished things whole: before StepLive, pieces of output are left out
// whose whole follows, and a call that runs never begins in its middle: a snapshot of it comes first.
func (h *Hub) AttachCompact(a schemas.AccountID, id schemas.ConversationID, after schemas.Cursor, wake func()) *Reader {
	return h.attach(a, id, &Reader{wake: wake, last: after, index: -1, compact: &compact{}})
}

func (h *Hub) attach(a schemas.AccountID, id schemas.ConversationID, r *Reader) *Reader {
	k := key{a, id}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.known[k]
	if c == nil {
		h.turns++
		c = &conversation{hub: h, account: a, id: id, quoted: quoted(string(id)), turn: h.turns}
		if !h.closed {
			h.known[k] = c
			h.slots[c.turn%checkEvery][c] = struct{}{}
		}
	}
	r.c = c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.join(r)
	if h.closed {
		r.phase, r.err = ended, errStopped()
	}
	return r
}

// Follows reports whether a conversation is followed already, so that reading it here costs the log
// little or nothing.
func (h *Hub) Follows(a schemas.AccountID, id schemas.ConversationID) bool {
	h.mu.Lock()
	c := h.known[key{a, id}]
	h.mu.Unlock()
	if c == nil {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.synced
}

// Bytes is how much the hub keeps, about.
func (h *Hub) Bytes() int { return int(h.bytes.Load()) }

// count adds to what is kept, or takes from it. Only more has the hub look at its budget: not all can be let go of at once, and what was is
// no reason to try again.
func (h *Hub) count(bytes int) {
	if h.bytes.Add(int64(bytes)) > h.budget && bytes > 0 {
		h.checkSoon()
	}
}

// checkSoon makes the hub check the conversations in doubt, and its budget.
func (h *Hub) checkSoon() {
	select {
	case h.urgent <- struct{}{}:
	default:
	}
}

// start runs a part unless the hub has ended.
func (h *Hub) start(part func()) bool {
	if h.ctx.Err() != nil {
		return false
	}
	h.parts.Go(part)
	return true
}

// watch checks the conversations until the hub ends.
func (h *Hub) watch() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-h.ctx.Done():
			return
		case <-h.urgent:
		case <-tick.C:
			ticked = true
			h.tick.Add(1)
		}
		if h.shaken.Swap(false) {
			for _, c := range h.all() {
				c.mu.Lock()
				c.doubtIt()
				c.mu.Unlock()
			}
		}
		var turn []*conversation
		if ticked {
			turn = h.turnOf(h.tick.Load())
			h.forget(turn)
		}
		h.check(turn)
		h.trim()
	}
}

// turnOf are the conversations whose turn a tick is.
func (h *Hub) turnOf(tick int64) []*conversation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.slots[tick%checkEvery]))
}

// list copies one of the lists.
func (h *Hub) list(of set) []*conversation {
	h.lists.Lock()
	defer h.lists.Unlock()
	return slices.Collect(maps.Keys(of))
}

func (h *Hub) note(in set, c *conversation) {
	h.lists.Lock()
	defer h.lists.Unlock()
	in[c] = struct{}{}
}

func (h *Hub) unnote(in set, c *conversation) {
	h.lists.Lock()
	defer h.lists.Unlock()
	delete(in, c)
}

func (h *Hub) all() []*conversation {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*conversation, 0, len(h.known))
	for _, c := range h.known {
		all = append(all, c)
	}
	return all
}

// close ends every reader.
func (h *Hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, c := range h.all() {
		c.mu.Lock()
		c.fail(errStopped())
		if c.stop != nil {
			c.stop()
			c.stop, c.synced = nil, false
		}
		c.mu.Unlock()
	}
}
