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
	"github.com/sandjet/sandjet/streams"
)

// DefaultBudget is how many bytes of frames a hub keeps unless it is told otherwise.
const DefaultBudget = 64 << 20

const (
	tickEvery  = time.Second
	checkEvery = 45             // ticks of silence after which the log is asked
	linger     = 30 * tickEvery // how long a conversation without readers is followed
	unreadKept = 600            // ticks for which frames are kept that nobody reads
	idleKept   = 4096           // conversations without readers that are followed for so long
	keepPart   = 10             // a tenth of the budget is made free at a time
	askAtOnce  = 16             // questions to the log about conversations at the same time
)

// Options are the settings of a [Hub].
type Options struct {
	Log    *slog.Logger // nil: silent
	Budget int          // bytes of frames, about. Default [DefaultBudget]
}

// Hub shows conversations to readers. Its methods may be called from many goroutines.
type Hub struct {
	from   Log
	log    *slog.Logger
	budget int64

	ctx    context.Context //nolint:containedctx // ends with Run: what reads the log hangs on it
	end    context.CancelFunc
	parts  sync.WaitGroup
	bytes  atomic.Int64
	tick   atomic.Int64
	stirs  chan struct{} // something must be looked at now
	shaken atomic.Bool   // live events of any conversation may have got lost

	checking atomic.Bool // conversations are held against the log just now
	missed   atomic.Bool // others wanted to be meanwhile

	mu     sync.Mutex // before a conversation's
	closed bool
	turns  int64
	known  map[key]*conversation
	wheel  [checkEvery]set // of those known: which are looked at in which tick
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

// New makes a hub. Readers may attach at once; they are told once it runs.
func New(from Log, o Options) *Hub {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Budget <= 0 {
		o.Budget = DefaultBudget
	}
	h := &Hub{from: from, log: o.Log, budget: int64(o.Budget), stirs: make(chan struct{}, 1), known: map[key]*conversation{}, servers: map[int]string{}, doubted: set{}, idle: set{}}
	for i := range h.wheel {
		h.wheel[i] = set{}
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
		err = h.from.Run(h.ctx, func() { h.shaken.Store(true); h.stir() })
	}()
	h.watch()
	<-tail
	h.close()
	h.parts.Wait()
	return err
}

// Attach adds a reader of a conversation after a cursor. It does not wait: the first step that the
// reader is told is StepAttached or StepFailed. Wake is called whenever there may be something to
// tell, from any goroutine, also before Attach returns; it must not block and not call the reader.
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
			h.wheel[c.turn%checkEvery][c] = struct{}{}
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

func (h *Hub) count(bytes int) {
	if h.bytes.Add(int64(bytes)) > h.budget {
		h.stir()
	}
}

// stir has the hub look at what is in doubt, and at its budget.
func (h *Hub) stir() {
	select {
	case h.stirs <- struct{}{}:
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

// watch looks after the conversations until the hub ends.
func (h *Hub) watch() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-h.ctx.Done():
			return
		case <-h.stirs:
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
	return slices.Collect(maps.Keys(h.wheel[tick%checkEvery]))
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

// forget ends the following of conversations that nobody reads any more, and drops those of which
// nothing is kept. Those whose turn it is let go of what only some readers need, and of their frames when nobody
// has read them for long: after a busy hour the memory is not held until the next.
func (h *Hub) forget(turn []*conversation) {
	for _, c := range turn {
		c.mu.Lock()
		c.forgetIndex()
		unread := c.stop == nil && len(c.readers) == 0 && h.tick.Load()-c.used.Load() >= unreadKept
		c.mu.Unlock()
		if unread {
			c.evict()
			h.drop(c)
		}
	}
	unread := h.list(h.idle)
	idle := make([]time.Duration, 0, len(unread))
	for _, c := range unread {
		c.mu.RLock()
		if c.abandoned() {
			idle = append(idle, time.Since(c.idle))
		}
		c.mu.RUnlock()
	}
	least := patience(idle)
	for _, c := range unread {
		c.mu.Lock()
		if c.abandoned() && time.Since(c.idle) >= least {
			c.stop()
			c.stop, c.synced = nil, false
		}
		if len(c.readers) > 0 || c.stop == nil && !c.working && !c.seeking {
			h.unnote(h.idle, c)
		}
		c.mu.Unlock()
		h.drop(c)
	}
}

// patience is how long conversations without readers are followed that have been without for so long: a client that
// goes from one to the next must not leave any number of them behind.
func patience(idle []time.Duration) time.Duration {
	if len(idle) <= idleKept {
		return linger
	}
	slices.Sort(idle)
	return min(linger, idle[idleKept])
}

// drop removes a conversation that is not followed and of which nothing is kept.
func (h *Hub) drop(c *conversation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.readers) == 0 && !c.working && !c.seeking && c.stop == nil && c.bytes() == 0 {
		delete(h.known, key{c.account, c.id})
		delete(h.wheel[c.turn%checkEvery], c)
		h.unnote(h.idle, c)
		h.unnote(h.doubted, c)
	}
}

// trim forgets the frames of the conversations that were not read for longest until the budget is
// kept.
func (h *Hub) trim() {
	if h.bytes.Load() <= h.budget {
		return
	}
	all := h.all()
	slices.SortFunc(all, func(a, b *conversation) int { return int(a.used.Load() - b.used.Load()) })
	for _, c := range all {
		if h.bytes.Load() <= h.budget-h.budget/keepPart {
			return
		}
		c.evict()
		h.drop(c)
	}
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

// known is what a conversation knew of itself before the log was asked about it.
type known struct {
	c             *conversation
	epoch         string
	gen           uint64
	head, checked uint64
	doubts        uint64
}

// check asks the log about conversations that are in doubt or were silent for long: the last event
// may have got lost on its way here, with nothing behind it to show it.
//
// It does not wait for the answers: whoever has a new event meanwhile is told of it as soon as the shard is known to be
// the same. One check at a time.
func (h *Hub) check(turn []*conversation) {
	doubted := h.list(h.doubted)
	if len(turn)+len(doubted) == 0 {
		return
	}
	if h.checking.Swap(true) { // whoever's turn it was has another
		h.missed.Store(true)
		return
	}
	due := map[int][]known{}
	add := func(c *conversation, turn bool) {
		c.mu.RLock()
		defer c.mu.RUnlock()
		switch {
		case !c.doubt:
			h.unnote(h.doubted, c)
		case turn: // it is among the others
			return
		}
		if c.synced && len(c.readers) > 0 {
			shard := h.from.Shard(c.id)
			due[shard] = append(due[shard], known{c, c.epoch, c.gen, c.head, c.checked, c.doubts})
		}
	}
	for _, c := range turn {
		add(c, true)
	}
	for _, c := range doubted {
		c.mu.RLock()
		doubt := c.doubt
		c.mu.RUnlock()
		if doubt {
			add(c, false)
		} else {
			h.unnote(h.doubted, c)
		}
	}
	if len(due) == 0 || !h.start(func() { h.ask(due) }) {
		h.checking.Store(false)
	}
}

// ask asks the log about conversations, shard by shard, some questions at a time.
func (h *Hub) ask(due map[int][]known) {
	defer func() {
		h.checking.Store(false)
		if h.missed.Swap(false) {
			h.stir()
		}
	}()
	var asking sync.WaitGroup
	defer asking.Wait()
	places := make(chan struct{}, askAtOnce)
	for shard, of := range due {
		places <- struct{}{}
		asking.Go(func() {
			state, err := h.from.State(h.ctx, shard)
			<-places
			if err != nil {
				return // at the next tick, if it is in doubt
			}
			if h.sameServer(shard, state.Server) {
				for _, k := range of {
					k.c.trust(k, state.Epoch)
				}
			}
			for _, k := range of {
				if h.ctx.Err() != nil {
					return
				}
				if !needsLast(k, state) {
					h.compare(k, state, schemas.Cursor{})
					continue
				}
				places <- struct{}{}
				asking.Go(func() {
					defer func() { <-places }()
					if last, err := h.from.Last(h.ctx, k.c.account, k.c.id); err == nil {
						h.compare(k, state, last)
					}
				})
			}
		})
	}
}

// sameServer reports whether a shard was last asked of the same process of the server. After a crash it is another one,
// and then events may lie at the places of others, which were lost.
func (h *Hub) sameServer(shard int, server string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	former, known := h.servers[shard]
	h.servers[shard] = server
	return known && former == server
}

// needsLast reports whether the shard alone does not tell that nothing was missed.
func needsLast(k known, state streams.ShardState) bool {
	return k.epoch == state.Epoch && state.Last > k.checked && state.Last > k.head
}

// compare holds what is known of a conversation against the log.
func (h *Hub) compare(k known, state streams.ShardState, last schemas.Cursor) {
	c := k.c
	if needsLast(k, state) && last.Seq < k.head { // head is gone: what came behind it may have gone since the state was asked
		now, err := h.from.State(h.ctx, h.from.Shard(c.id))
		if err != nil {
			return // at the next tick, if it is in doubt
		}
		state.Epoch, state.First = now.Epoch, now.First
	}
	v := judge(k.epoch, k.head, k.checked, state, last.Seq)
	if v == anew {
		if err := c.again(h.ctx, k.gen); err != nil {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != k.gen {
		return
	}
	if c.doubts == k.doubts { // else it came into doubt again since
		c.doubt, c.same = false, false
	}
	switch v {
	case behind:
		c.heard = max(c.heard, last.Seq)
	case cut:
		c.heard = max(c.heard, state.First-1) // reading finds nothing, and says so
	case complete:
		c.checked = state.Last
	case anew:
	}
	if c.heard > c.head {
		c.work()
	}
}

type verdict int

const (
	complete verdict = iota // nothing was missed
	behind                  // there is more
	anew                    // the log is another one, or has lost its end
	cut                     // what came since then may have been removed already
)

// judge compares what is known of a conversation with its shard. Last is the conversation's last
// event, of interest only if the shard has grown since it was looked at.
func judge(epoch string, head, checked uint64, state streams.ShardState, last uint64) verdict {
	switch {
	case epoch != state.Epoch, state.Last < head:
		return anew
	case state.Last > checked && last > head:
		return behind
	case state.First > max(head, checked)+1:
		return cut
	}
	return complete
}
