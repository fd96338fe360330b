package replay

import (
	"context"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// staleReads is how often an event that arrived live but cannot be read is requested again before it counts as gone: a replica may be a
// moment behind.
const staleReads = 5

// load reads what the readers of the conversation need, until they need nothing.
//
// Invariant: everything up to head is known, and the ring has no holes from ring.from to head: it has an event or a gap for each sequence
// that the log had. Within an incarnation, head moves only to the end of what was read, or to a live event that names head as its
// predecessor, so a reader that has everything up to a sequence misses nothing by continuing after it.
//
// One loader runs at a time (working), so any number of readers that need the same cost one read: it reads for the reader that is furthest
// behind and wakes all. It holds no lock during requests to the log. So it compares gen, the number of the incarnation, after each request
// and drops the answer if it has changed. A read begins at the known event itself, not after it: old events are removed first, so while
// that one exists nothing after it was removed, and its mark shows that it is the same event. If it no longer exists, the log is asked how
// much is missing after the read, not before, since more may be removed in between.
func (c *conversation) load() {
	ctx := c.hub.ctx
	stale := 0
	for failed := 0; ; {
		c.mu.Lock()
		do := c.need(stale)
		if do == nil {
			c.working = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		again, err := do(ctx)
		stale = 0
		if again {
			stale++ // read again after a pause
		}
		switch {
		case ctx.Err() != nil:
			c.mu.Lock()
			c.working = false
			c.fail(errStopped())
			c.mu.Unlock()
			return
		case err == nil && !again:
			failed = 0
			continue
		case err != nil && !passing(err):
			c.mu.Lock()
			c.fail(err)
			c.mu.Unlock()
		case err != nil:
			c.hub.log.Debug("log unreachable, waiting", "error", err)
		}
		failed++
		whileAway.Sleep(ctx, failed) // the end of ctx is seen above
	}
}

// need returns the next read; nil if there is none. The caller holds the lock.
func (c *conversation) need(stale int) func(context.Context) (again bool, err error) {
	if !slices.ContainsFunc(c.readers, func(r *Reader) bool { return r.phase != ended }) {
		return nil
	}
	if !c.synced {
		return func(ctx context.Context) (bool, error) { return false, c.open(ctx) }
	}
	if c.received > c.head {
		return func(ctx context.Context) (bool, error) { return c.repair(ctx, stale) }
	}
	if tails := c.tails(); len(tails) > 0 {
		return func(ctx context.Context) (bool, error) { return false, c.placeTails(ctx, tails) }
	}
	var from *Reader // the one that is furthest behind: what it needs is what the others need next
	var at uint64
	for _, r := range c.readers {
		if !r.waits || r.phase == ended {
			continue
		}
		if seq := c.wanted(r); from == nil || seq < at {
			from, at = r, seq
		}
	}
	if from == nil {
		return nil
	}
	placed := from.gen == c.gen
	if c.unproven(from) != 0 && c.knows(at) {
		if _, known := c.markAt(at); !known {
			return func(ctx context.Context) (bool, error) { return false, c.prove(ctx, from) }
		}
	}
	if !placed && c.knows(at) || placed && (at >= c.ring.from || c.ring.covers(at) || c.page(at) != nil) { // it has come meanwhile
		return func(context.Context) (bool, error) { c.wakeWaiting(); return false, nil }
	}
	mark := c.unproven(from)
	return func(ctx context.Context) (bool, error) { return c.readPage(ctx, at, mark, stale) }
}

// unproven returns the mark of a reader's cursor if the log must confirm that its event still exists; otherwise 0. The caller holds the
// lock.
func (c *conversation) unproven(r *Reader) uint16 {
	if after := r.after(); r.gen != c.gen && !r.proven && after.Epoch == c.epoch {
		return after.Mark
	}
	return 0
}

// tails returns the waiting readers that begin at the present end of the conversation. The caller holds the lock.
func (c *conversation) tails() []*Reader {
	var tails []*Reader
	for _, r := range c.readers {
		if r.waits && r.phase == opening && r.gen != c.gen && r.last.IsTail() {
			tails = append(tails, r)
		}
	}
	return tails
}

// placeTails asks the log once for the present end, and sets the position of these readers to it.
func (c *conversation) placeTails(ctx context.Context, tails []*Reader) error {
	c.mu.RLock()
	gen, epoch := c.gen, c.epoch
	c.mu.RUnlock()
	state, err := c.hub.from.State(ctx, c.hub.from.Shard(c.id))
	if err != nil {
		return err
	}
	if state.Epoch != epoch {
		return c.again(ctx, gen)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range tails {
		if c.gen == gen && r.phase == opening {
			c.settle(r, state.Last)
			r.last, r.tail = c.proof(state.Last), true
		}
		r.waits = false
		r.wake()
	}
	return nil
}

// prove asks the log whether the event of a reader's cursor still exists, for all readers with that cursor. Those whose event was lost
// begin at the beginning.
func (c *conversation) prove(ctx context.Context, first *Reader) error {
	c.mu.RLock()
	gen, after := c.gen, first.after()
	c.mu.RUnlock()
	if after.Mark == 0 {
		return nil
	}
	at, err := c.hub.from.Locate(ctx, c.account, c.id, after)
	if err != nil {
		return err
	}
	if at.At.Epoch != after.Epoch {
		return c.again(ctx, gen)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readers {
		if c.gen != gen || r.phase == ended || r.gen == gen || r.after() != after {
			continue
		}
		if r.proven = true; at.Gap != nil && at.At.Seq < after.Seq { // it was lost with the log's end
			c.lose(r)
		}
		if r.waits {
			r.waits = false
			r.wake()
		}
	}
	return nil
}

// wanted returns the sequence after which a reader continues.
func (c *conversation) wanted(r *Reader) uint64 {
	if r.gen == c.gen {
		return r.seq
	}
	if after := r.after(); after.Epoch == c.epoch {
		return after.Seq
	}
	return 0
}

func (c *conversation) wakeWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readers {
		if r.waits {
			r.waits = false
			r.wake()
		}
	}
}

// open follows the conversation and reads its end. If that fails all its readers end with the error; clients attach again.
func (c *conversation) open(ctx context.Context) error {
	c.mu.Lock()
	c.received = 0 // what counts is delivered from here on
	c.mu.Unlock()
	last, stop, err := c.follow(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			c.fail(err)
		}
		return nil
	}
	c.stop, c.synced, c.tip = stop, true, last
	received := c.received
	if last.Epoch != c.epoch || last.Seq < c.head {
		c.reset(last.Epoch, last.Seq)
	}
	c.received = max(received, last.Seq, c.head)
	c.wakeAll()
	return nil
}

func (c *conversation) follow(ctx context.Context) (last schemas.Cursor, stop func(), err error) {
	log := c.hub.from
	stop, err = log.Follow(ctx, c.account, c.id, c.receive) // first the tail, then the past
	if err != nil {
		return last, nil, err
	}
	last, err = log.Last(ctx, c.account, c.id)
	if err != nil {
		stop()
	}
	return last, stop, err
}

// repair reads the events after head. Again is true if an event that arrived live could not be read yet.
func (c *conversation) repair(ctx context.Context, stale int) (again bool, err error) {
	c.mu.RLock()
	gen, epoch, head, received := c.gen, c.epoch, c.head, c.received
	mark, marked := c.markAt(head)
	c.mu.RUnlock()
	log := c.hub.from
	if stale >= staleReads { // it is taken for gone now, unless it came from another stream
		state, err := log.State(ctx, log.Shard(c.id))
		if err != nil {
			return false, err
		}
		if state.Epoch != epoch || state.Last < received {
			return false, c.again(ctx, gen)
		}
	}
	page, err := log.Read(ctx, c.account, c.id, max(head, 1)) // head itself too: while it is there, nothing behind it was removed
	if err != nil {
		return false, err
	}
	if marked && len(page.Events) > 0 && page.Events[0].Cursor.Seq == head && page.Events[0].Cursor.Mark != mark {
		return false, c.again(ctx, gen) // another event lies there: the log has lost its end in a crash, and has grown again
	}
	var gap *streams.Gap
	if head > 0 && page.First != head || page.Epoch != epoch {
		state, err := log.State(ctx, log.Shard(c.id)) // the epoch that is remembered may be old
		if err != nil {
			return false, err
		}
		if state.Epoch != epoch {
			return false, c.again(ctx, gen)
		}
		at, err := log.Locate(ctx, c.account, c.id, schemas.Cursor{Epoch: epoch, Seq: head})
		if err != nil {
			return false, err
		}
		if at.At.Epoch != epoch || at.At.Seq < head {
			return false, c.again(ctx, gen)
		}
		gap = at.Gap
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != gen {
		return false, nil
	}
	if gap != nil && gap.To.Seq > max(c.head, c.checked) { // up to checked nothing was missed
		to := gap.To.Seq
		if page.First > 0 { // read before it was asked how much is gone
			to = min(to, page.First-1)
		}
		c.pushFrame(newGap(c.epoch, c.head, to))
	}
	for _, e := range page.Events {
		if e.Cursor.Seq <= c.head {
			continue
		}
		if e.Lost {
			c.pushFrame(newGap(c.epoch, c.head, e.Cursor.Seq))
		} else {
			c.push(e)
		}
	}
	c.head = max(c.head, page.Last)
	c.ring.to = c.head
	if !page.More && received > c.head {
		if stale < staleReads {
			return true, nil
		}
		c.pushFrame(newGap(c.epoch, c.head, received)) // it was removed before it could be read
	}
	c.wakeAll()
	return false, nil
}

// again begins a new incarnation with the conversation's present end on the log, unless another goroutine has done so since gen.
func (c *conversation) again(ctx context.Context, gen uint64) error {
	log := c.hub.from
	if _, err := log.State(ctx, log.Shard(c.id)); err != nil { // the epoch that is remembered may be old
		return err
	}
	last, err := log.Last(ctx, c.account, c.id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen == gen {
		c.reset(last.Epoch, last.Seq)
		c.tip = last
		c.doubtIt() // what came while this was asked did not look new
		c.hub.checkSoon()
		c.wakeAll()
	}
	return nil
}

// readPage reads the events after at, and the event at at too: while that exists, nothing after it was removed. Mark is the one that it
// must have, 0 for any. Again is true if the log was behind and must be read again.
func (c *conversation) readPage(ctx context.Context, at uint64, mark uint16, stale int) (again bool, err error) {
	c.mu.RLock()
	gen, epoch := c.gen, c.epoch
	c.mu.RUnlock()
	log := c.hub.from
	page, err := log.Read(ctx, c.account, c.id, max(at, 1))
	if err != nil {
		return false, err
	}
	place := streams.Place{At: schemas.Cursor{Epoch: page.Epoch, Seq: at}}
	if at > 0 && page.First != at { // asked after it was read: what is behind the place by now was so then
		if place, err = log.Locate(ctx, c.account, c.id, schemas.Cursor{Epoch: epoch, Seq: at, Mark: mark}); err != nil {
			return false, err
		}
	}
	if page.Epoch != epoch || place.At.Epoch != epoch {
		return false, c.again(ctx, gen)
	}
	if mark != 0 && place.Gap != nil && place.At.Seq < at { // the event of the place was lost with the log's end
		c.loseAll(gen, schemas.Cursor{Epoch: epoch, Seq: at, Mark: mark})
		return false, nil
	}
	from, gap := place.At.Seq, place.Gap
	if gap != nil && page.First > 0 { // read before it was asked how much is gone
		from = min(from, page.First-1)
		gap = &streams.Gap{From: gap.From, To: schemas.Cursor{Epoch: epoch, Seq: from}}
		if from <= at {
			gap = nil // nothing can lie between the two
		}
	}
	prev, known := schemas.Cursor{Epoch: epoch, Seq: from}, mark != 0 // by now the log has said so, if the page does not
	if len(page.Events) > 0 && page.Events[0].Cursor.Seq == at {      // the place itself
		prev, mark, known = page.Events[0].Cursor, page.Events[0].Cursor.Mark, true
	}
	if at == 0 { // what was before the first is not known, but to those who begin at the beginning
		from = max(page.First, 1) - 1
	}
	s := &span{from: from, to: from, first: at == 0}
	frames := make([]*Frame, 0, len(page.Events))
	for _, e := range page.Events {
		if e.Cursor.Seq <= from {
			continue
		}
		if e.Lost {
			frames = append(frames, newGap(epoch, prev.Seq, e.Cursor.Seq))
		} else {
			frames = append(frames, newFrame(c.quoted, epoch, prev, e.Value, e.Cursor))
		}
		prev = e.Cursor
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != gen {
		return false, nil
	}
	for _, f := range frames {
		if f.Seq <= c.head { // what is behind it comes live
			s.add(f)
		}
	}
	s.to = max(s.to, min(page.Last, c.head))
	if !page.More && s.to < c.ring.from {
		if stale < staleReads {
			return true, nil
		}
		s.add(newGap(c.epoch, s.to, c.ring.from))
	}
	c.keep(s)
	c.hand(s, at, mark, known, gap)
	return false, nil
}

// hand passes a part that was read after the sequence at to the readers that wait for it: it may be evicted before they take it. Mark is
// that of the event at at, if known. Gap is what is missing between at and the part; nil if nothing is.
func (c *conversation) hand(s *span, at uint64, mark uint16, known bool, gap *streams.Gap) {
	for _, r := range c.readers {
		if !r.waits {
			continue
		}
		after := schemas.Cursor{Epoch: c.epoch, Seq: c.wanted(r)}
		switch {
		case r.gen != c.gen && r.after().Place() != after: // it finds its place by itself
		case c.unproven(r) != 0 && !c.proven(r, s, at, mark, known): // it is lost, or asks for itself
		case after.Seq == at:
			c.settle(r, s.from)
			r.miss(gap)
			c.give(r, s)
		case s.has(after.Seq):
			c.settle(r, after.Seq)
			c.give(r, s)
		}
		r.waits = false
		r.wake()
	}
}

// proven compares the mark of a reader's cursor with what was read. It returns true if they match. If they differ, the event was lost, and
// the reader is moved to the beginning.
func (c *conversation) proven(r *Reader, s *span, at uint64, mark uint16, known bool) bool {
	after := r.after()
	if after.Seq != at {
		f := s.at(after.Seq)
		if known = f != nil && f.gap == nil; known {
			mark = f.mark
		}
	}
	if known && mark != after.Mark {
		c.lose(r)
		return false
	}
	r.proven = known
	return known
}

// loseAll moves the readers with the cursor after to the beginning, because its event was lost with the end of the log.
func (c *conversation) loseAll(gen uint64, after schemas.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readers {
		if c.gen == gen && r.phase != ended && r.gen != gen && r.after() == after {
			c.lose(r)
			r.waits = false
			r.wake()
		}
	}
}

// whileAway is how long it takes until the log is read again that could not be.
var whileAway = wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // settings, never changed

// passing reports whether a request to the log that failed with err should be retried.
func passing(err error) bool {
	code := schemas.CodeOf(err)
	return code == schemas.Unavailable || code == schemas.NotFound // a stream that is being recreated
}

func errStopped() error {
	return schemas.Errorf(schemas.Unavailable, "this gateway is stopping: reconnect")
}
