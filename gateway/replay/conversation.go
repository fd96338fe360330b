package replay

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// conversation is the state that the hub has of one conversation: the sequence up to which all events are known (head), the latest frames,
// some older pages, and the readers.
//
// Live events are added by the goroutine that receives them. Everything else is read by the loader, one goroutine that exists only while
// there is something to read, so that any number of readers that need the same events cost one read.
type conversation struct {
	hub     *Hub
	account schemas.AccountID
	id      schemas.ConversationID
	quoted  []byte // id as JSON
	turn    int64  // decides in which ticks it is checked, so that not all are checked at once
	used    atomic.Int64

	// mu guards the rest. A reader's own fields are changed by itself under the read lock, by all
	// others under the lock.
	mu       sync.RWMutex
	epoch    string
	gen      uint64         // counts the incarnations; a reader of another must locate its position again
	tip      schemas.Cursor // the last event when the log was last asked
	head     uint64         // everything up to here is known
	received uint64         // the latest sequence received live; if above head, the loader must read
	stored   time.Time      // when the event at head was stored; zero: unknown
	synced   bool           // it is followed, and head is valid
	stop     func()         // ends the subscription
	working  bool           // the loader runs
	doubt    bool           // the log must be asked whether something was missed
	same     bool           // though it is in doubt, its stream is known to be the same
	doubts   uint64         // counts how often it came into doubt
	checked  uint64         // the end of the shard when a check found nothing missed
	ring     span           // the latest frames, up to head
	pages    []*span        // older parts, the latest used last
	readers  []*Reader
	index    index       // of where calls end, for compact readers
	shots    []*Snapshot // snapshots for compact readers
	seeking  bool        // the seeker runs
	idle     time.Time   // since when there are no readers
}

func (c *conversation) cursor(seq uint64) schemas.Cursor {
	return schemas.Cursor{Epoch: c.epoch, Seq: seq}
}

// receive is called with each live event. It adds the event to the ring if it directly follows head; otherwise the loader reads what is
// missing.
func (c *conversation) receive(e streams.LiveEvent) {
	seq := e.Cursor.Seq
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		c.received = max(c.received, seq)
		return
	}
	if seq <= c.head {
		if c.stored.IsZero() || e.Stored.After(c.stored) { // a new event at an old place: is it the same stream?
			c.doubtIt()
			c.hub.checkSoon()
		}
		return
	}
	behind := c.received > c.head
	c.received = max(c.received, seq)
	switch {
	case behind: // the loader reads it
	case c.doubt && !c.same || c.hub.shaken.Load(): // it may be of another stream: the hub asks first
	case e.Prev != c.head || e.Away: // a hole, or head is gone; this one is stored too, so reading closes it
		c.work()
	default:
		c.push(e.Entry)
		c.wakeAll()
	}
}

// doubtIt marks the conversation as one in doubt: the next check asks the log whether events were missed. The caller holds the lock.
func (c *conversation) doubtIt() {
	c.doubt, c.same = true, false
	c.doubts++
	c.hub.note(c.hub.doubted, c)
}

// trust lets live events of a conversation in doubt through again once its stream is known to be the same one: each event names its
// predecessor, so a missed event is noticed.
func (c *conversation) trust(k known, epoch string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.doubt || c.gen != k.gen || c.doubts != k.doubts || c.epoch != epoch {
		return
	}
	c.same = true
	if c.received > c.head {
		c.work()
	}
}

// push adds the event that follows head to the ring. The caller holds the lock.
func (c *conversation) push(e streams.Entry[schemas.Event]) {
	c.pushFrame(newFrame(c.quoted, c.epoch, c.lastFrame(), e.Value, e.Cursor))
	c.stored = e.Stored
}

func (c *conversation) pushFrame(f *Frame) {
	before := c.ring.bytes + c.index.bytes
	c.ring.add(f)
	c.ring.cut()
	c.index.note(f)
	c.head = f.Seq
	c.received = max(c.received, c.head)
	c.hub.count(c.ring.bytes + c.index.bytes - before)
}

// lastFrame returns the cursor of the event at head, with its mark if that is known.
func (c *conversation) lastFrame() schemas.Cursor {
	if n := len(c.ring.frames); n > 0 && c.ring.frames[n-1].gap == nil {
		return c.ring.frames[n-1].Cursor()
	}
	if c.tip.Seq == c.head && c.tip.Epoch == c.epoch {
		return c.tip
	}
	return c.cursor(c.head)
}

// wakeAll wakes every reader. The caller holds the lock.
func (c *conversation) wakeAll() {
	for _, r := range c.readers {
		r.waits = false
		r.wake()
	}
}

// reset begins a new incarnation of the conversation, for a stream that was recreated or has lost its end: it drops all frames and sets
// head. The caller holds the lock.
func (c *conversation) reset(epoch string, head uint64) {
	c.hub.count(-c.bytes())
	c.epoch, c.head, c.received, c.checked, c.stored = epoch, head, head, 0, time.Time{}
	c.gen++
	for _, r := range c.readers {
		r.proven = false // of the incarnation before
	}
	c.ring, c.pages, c.shots, c.index = span{from: head, to: head}, nil, nil, index{}
}

// evict drops all frames, snapshots and, unless readers still use it, the index, to save memory. They are read again when needed. A reader
// keeps the frames that were read for it (given) for givenKept ticks, so that one that takes them soon makes progress.
func (c *conversation) evict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readers {
		if c.hub.tick.Load()-r.givenAt >= givenKept {
			r.given = nil
		}
	}
	before := c.bytes()
	c.ring, c.pages, c.shots = span{from: c.head, to: c.head}, nil, nil
	if !c.seeking && (!c.wantsIndex() || c.hub.tick.Load()-c.index.since >= indexKept) { // a seeker would begin again, perhaps each time
		c.index = index{}
	}
	c.hub.count(c.bytes() - before)
}

func (c *conversation) bytes() int {
	n := c.ring.bytes + c.index.bytes
	for _, p := range c.pages {
		n += p.bytes
	}
	for _, s := range c.shots {
		n += len(s.op)
	}
	return n
}

// keep stores a part that was read: in the ring if it reaches the ring's beginning and fits, else as a page.
func (c *conversation) keep(s *span) {
	before := c.bytes()
	if !c.ring.precede(s) {
		c.pages = append(c.pages, s)
		if len(c.pages) > pagesKept {
			c.pages = append([]*span(nil), c.pages[1:]...)
		}
	}
	c.hub.count(c.bytes() - before)
}

// page returns the stored page that covers a sequence, and marks it as used last; nil if there is none.
func (c *conversation) page(seq uint64) *span {
	for i, p := range slices.Backward(c.pages) {
		if p.covers(seq) {
			copy(c.pages[i:], c.pages[i+1:])
			c.pages[len(c.pages)-1] = p
			return p
		}
	}
	return nil
}

// knows reports whether seq is an event, or the beginning, of the conversation from which a reader can continue without asking the log.
func (c *conversation) knows(seq uint64) bool {
	if seq == 0 || seq == c.head || c.ring.has(seq) {
		return true
	}
	for _, p := range c.pages {
		if p.has(seq) {
			return true
		}
	}
	return false
}

// proof returns the cursor of seq, with its mark if that is in memory.
func (c *conversation) proof(seq uint64) schemas.Cursor {
	at := c.cursor(seq)
	at.Mark, _ = c.markAt(seq)
	return at
}

// lose moves a reader to the beginning of the conversation, and records a gap, because the event of its cursor was lost with the end of
// the log.
func (c *conversation) lose(r *Reader) {
	gap := &streams.Gap{From: r.after(), To: c.cursor(0)}
	c.settle(r, 0)
	r.miss(gap)
	r.proven = true
}

// markAt returns the mark of the event at seq; known is false if it is not in memory.
func (c *conversation) markAt(seq uint64) (mark uint16, known bool) {
	f := c.ring.at(seq)
	for i := 0; f == nil && i < len(c.pages); i++ {
		f = c.pages[i].at(seq)
	}
	switch {
	case f != nil && f.gap == nil:
		return f.mark, true
	case c.tip.Seq == seq && c.tip.Epoch == c.epoch && seq > 0:
		return c.tip.Mark, true
	}
	return 0, false
}

// join adds a reader. The caller holds the lock.
func (c *conversation) join(r *Reader) {
	r.index = len(c.readers)
	c.readers = append(c.readers, r)
}

// leave removes a reader.
func (c *conversation) leave(r *Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.index < 0 {
		return
	}
	last := len(c.readers) - 1
	c.readers[r.index] = c.readers[last]
	c.readers[r.index].index = r.index
	c.readers[last] = nil
	c.readers = c.readers[:last]
	r.index, r.phase = -1, ended
	if last == 0 {
		c.idle = time.Now()
		c.hub.note(c.hub.idle, c)
	}
}

// abandoned reports whether the conversation is followed without a reader.
func (c *conversation) abandoned() bool { return len(c.readers) == 0 && !c.working && c.stop != nil }

// advance sets the reader's position to seq, and its cursor to last, the event that it got last.
func (c *conversation) advance(r *Reader, seq uint64, last schemas.Cursor) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r.seq, r.last = seq, last
}

// take returns what the reader can get next: a step, or frames, or neither. More is true if there may be more after it.
func (c *conversation) take(r *Reader) (frames []*Frame, step *Step, more bool) {
	c.used.Store(c.hub.tick.Load())
	c.mu.RLock()
	r.waits = false
	if (r.phase == replaying || r.phase == live) && r.gen == c.gen && r.gap == nil && r.seq >= c.ring.from {
		if frames = c.ring.after(r.seq); frames != nil || r.phase == live {
			c.mu.RUnlock()
			return frames, nil, frames != nil
		}
	}
	c.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(r)
}

// find is the slow path of take, for readers that the ring alone cannot serve. The caller holds the lock.
func (c *conversation) find(r *Reader) (frames []*Frame, step *Step, more bool) {
	if r.phase == ended {
		if r.err == nil {
			return nil, nil, false
		}
		step, r.err = &Step{Kind: StepFailed, Err: r.err}, nil
		return nil, step, false
	}
	if !c.synced || r.gen != c.gen && !c.place(r) {
		c.await(r)
		return nil, nil, false
	}
	if r.phase == opening {
		step = &Step{Kind: StepAttached, At: c.proof(max(c.head, r.seq)), From: c.proof(r.seq), Gap: r.gap}
		if r.tail { // what came since is delivered as well
			step.At = step.From
		}
		r.phase, r.gap = replaying, nil
		return nil, step, true
	}
	if r.gap != nil {
		step, r.gap = &Step{Kind: StepGap, Gap: r.gap}, nil
		return nil, step, true
	}
	given := r.given
	r.given = nil
	for r.seq < c.ring.from && !c.ring.covers(r.seq) {
		p := given
		if p == nil || !p.covers(r.seq) {
			p = c.page(r.seq)
		}
		if p == nil {
			c.await(r)
			return nil, nil, false
		}
		if frames := p.after(r.seq); frames != nil {
			return frames, nil, true
		}
		r.seq = p.to // nothing in it is an event
	}
	if frames := c.ring.after(r.seq); frames != nil {
		return frames, nil, true
	}
	if c.received > c.head {
		c.work() // it ends when there is no reader
	} else if r.phase == replaying {
		r.phase = live
		return nil, &Step{Kind: StepLive, At: c.proof(max(c.head, r.seq))}, true
	}
	return nil, nil, false
}

// place sets the reader's position in the present incarnation from its cursor. It returns false if the loader must read the log first. The
// caller holds the lock.
func (c *conversation) place(r *Reader) bool {
	if r.tail && r.phase == opening { // it was recreated before the reader got it
		r.last, r.tail = schemas.Tail, false
	}
	after := r.after()
	switch {
	case after.IsStart():
		r.seq = 0
	case after.IsTail(): // the log is asked: what is known here may be a moment old
		return false
	case after.Epoch != c.epoch:
		r.seq = 0
		if r.phase == opening || !r.last.IsStart() || after.Seq > 0 || r.missed { // not one that has got nothing, not even a gap
			r.miss(&streams.Gap{From: after, To: c.cursor(0)})
		}
	case after.Mark != 0 && !r.proven && c.knows(after.Seq): // an event of that place may have been lost with the log's end
		mark, known := c.markAt(after.Seq)
		switch {
		case !known:
			return false
		case mark != after.Mark:
			c.lose(r)
			return true
		}
		r.proven, r.seq = true, after.Seq
	case c.knows(after.Seq):
		r.seq = after.Seq
	default:
		return false
	}
	c.settle(r, r.seq)
	return true
}

// settle sets the reader's position to seq in the present incarnation. The caller holds the lock.
func (c *conversation) settle(r *Reader, seq uint64) {
	if r.compact != nil && r.gen != c.gen {
		r.compact.need, r.compact.shot = nil, nil
	}
	r.gen, r.epoch, r.seq, r.given = c.gen, c.epoch, seq, nil
}

// give stores the first frames of a part that was read for a reader with the reader: the page may be evicted before the reader takes it.
func (c *conversation) give(r *Reader, s *span) {
	frames := s.after(r.seq)
	var few [partFrames]*Frame
	given := &span{from: r.seq, to: s.to, frames: slices.Clone(part(&few, frames))}
	if n := len(given.frames); n < len(frames) {
		given.to = given.frames[n-1].Seq
	}
	r.given, r.givenAt = given, c.hub.tick.Load()
}

// await marks the reader as waiting for the loader, and starts the loader if it does not run. The caller holds the lock.
func (c *conversation) await(r *Reader) {
	r.waits = true
	c.work()
}

// work starts the loader unless it runs. The caller holds the lock.
func (c *conversation) work() {
	if !c.working {
		c.working = c.hub.start(c.load)
		if !c.working {
			c.fail(errStopped())
		}
	}
}

// fail ends every reader with err. The caller holds the lock.
func (c *conversation) fail(err error) {
	for _, r := range c.readers {
		if r.phase != ended {
			r.phase, r.err = ended, err
			r.wake()
		}
	}
}
