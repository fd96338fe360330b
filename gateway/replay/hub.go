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

// DefaultBudget is the default limit of a hub's memory for frames, in bytes.
const DefaultBudget = 64 << 20

const (
	tickEvery  = time.Second
	checkEvery = 45             // ticks between two checks of a conversation
	linger     = 30 * tickEvery // how long a conversation without readers is followed
	unreadKept = 600            // ticks for which the frames of a conversation without readers are stored
	idleKept   = 4096           // conversations without readers that are followed for all of linger
	givenKept  = 30             // ticks for which a reader keeps the frames that were read for it, even if memory is short
	keepPart   = 10             // a trim frees a tenth of the budget
	askAtOnce  = 16             // concurrent requests of a check
)

// Options are the settings of a [Hub].
type Options struct {
	Log    *slog.Logger // nil: silent
	Budget int          // bytes of frames, about. Default [DefaultBudget]
}

// Hub delivers the events of conversations to readers. It is safe for concurrent use.
//
// A live event is only a hint: the server may lose any of them, and a lost last event is not noticed. So a live event is delivered only if
// the event that it names as its predecessor is the last that is known; otherwise the conversation's loader reads the events between. A
// lost last event is found by a check against the log: each conversation with readers is checked once in checkEvery ticks (each is in one
// slot of a ring, which spreads the requests), and at once when it is in doubt. It is in doubt when live events may have been lost
// (shaken), or when a new event has a sequence that is known already, as after a crash of the server that lost the end of the log. A
// conversation in doubt delivers no live events until its stream is known to be the same.
//
// The order of the locks is mu, a conversation's, lists. None is held during a request to the log.
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
	shaken atomic.Bool   // live events of any conversation may have been lost

	checking atomic.Bool // a check is running
	missed   atomic.Bool // another check was due meanwhile

	mu     sync.Mutex // locked before a conversation's
	closed bool
	turns  int64
	known  map[key]*conversation
	slots  [checkEvery]set // of known: which are checked in which tick
	// servers are the server processes that last answered for each shard.
	servers map[int]string

	lists   sync.Mutex // locked after a conversation's
	doubted set        // in doubt
	idle    set        // without readers, possibly still followed
}

type set map[*conversation]struct{}

type key struct {
	account schemas.AccountID
	id      schemas.ConversationID
}

// New returns a hub. Readers may attach before it runs; they are served once it does.
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

// Run follows the log until ctx is done, then ends every reader and returns nil. A hub cannot be run twice.
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

// Attach adds a reader of a conversation after a cursor. It does not block: the reader's first step is StepAttached or StepFailed. Wake is
// called whenever there may be something to deliver, from any goroutine, possibly before Attach returns; it must not block and must not
// call the reader.
func (h *Hub) Attach(a schemas.AccountID, id schemas.ConversationID, after schemas.Cursor, wake func()) *Reader {
	return h.attach(a, id, &Reader{wake: wake, last: after, index: -1})
}

// AttachCompact is Attach for a compact reader: before StepLive, pieces of output whose call has ended are left out, as the call's end
// contains the output; and for a call that is running, the reader gets a snapshot of the earlier output before the first piece.
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

// Follows reports whether a conversation is being followed, so that another reader costs the log little or nothing.
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

// Bytes returns about how much memory the hub uses for frames, snapshots and indexes, in bytes.
func (h *Hub) Bytes() int { return int(h.bytes.Load()) }

// count adds to the number of bytes in use; negative subtracts. Only an increase over the budget triggers a trim: not everything can be
// evicted at once, and a decrease is no reason to try again.
func (h *Hub) count(bytes int) {
	if h.bytes.Add(int64(bytes)) > h.budget && bytes > 0 {
		h.checkSoon()
	}
}

// checkSoon makes watch check the conversations in doubt, and the budget, without waiting for the next tick.
func (h *Hub) checkSoon() {
	select {
	case h.urgent <- struct{}{}:
	default:
	}
}

// start runs part in a goroutine that Run waits for. It returns false if the hub has ended.
func (h *Hub) start(part func()) bool {
	if h.ctx.Err() != nil {
		return false
	}
	h.parts.Go(part)
	return true
}

// watch runs the checks, the forgetting and the trimming of conversations, at each tick and when checkSoon was called, until the hub ends.
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

// turnOf returns the conversations that are checked in a tick.
func (h *Hub) turnOf(tick int64) []*conversation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.slots[tick%checkEvery]))
}

// list returns a copy of a set that is guarded by lists.
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
