package replay

import (
	"context"
	"slices"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/outputs"
)

const (
	// indexKept is for how many ticks an index stays after a read for it, even if memory is short. It is twice givenKept because its
	// readers also need the events.
	indexKept = 2 * givenKept
	endBytes  = 64 // bytes of one entry of an index, beside its subject
	shotsKept = 4  // snapshots that a conversation stores for readers that continue at the same piece
	shotsRead = 16 // snapshots that one read of the log takes: each may have 256 KiB
)

// fate says how an event is delivered to a compact reader.
type fate int

const (
	delivered     fate = iota
	leftOut            // the call's end follows and contains it
	afterSnapshot      // delivered, after a snapshot of the earlier output
)

// compact is the per-reader state of a compact reader, which receives the output of a finished call as one event. The state shared by all
// compact readers of a conversation is in the conversation: where calls end (index), and what calls had printed before a sequence (shots).
//
// Two invariants: A piece of output is left out only when the end of its call is known to be later on the log; the reader gets that
// instead. And a piece is delivered only when the reader has all earlier output of its stream, either from its beginning or from a
// snapshot ([outputs.Shown]), except for gaps, which are reported to the reader. If one of these is not known yet, the reader waits, and
// the seeker reads it in a goroutine of its own, so that readers that wait for the loader are not delayed.
//
// The index has no gaps: it begins at head and grows there with each new event, and a scan moves its beginning back only after it has read
// all events up to the former one. A snapshot belongs to one piece, so readers that continue at the same piece share it.
type compact struct {
	shown   outputs.Shown // used only by the goroutine that reads, as skipped
	skipped int           // events left out since the last that was delivered

	// guarded by the conversation's lock
	need *need     // what it waits for; nil: nothing
	shot *Snapshot // the snapshot that was made for it
}

// need is the knowledge that a reader waits for before it can deliver a frame.
type need struct {
	index bool // it needs to know where calls end from the frame on; otherwise, a snapshot before the frame
	at    outputs.PlacedPiece
}

// index records where calls end after a sequence. It exists while compact readers replay, and its memory counts towards the hub's budget.
type index struct {
	on    bool
	from  uint64 // calls that end after it are known
	whole map[string]uint64
	bytes int   // size of whole, about
	since int64 // the tick of the last read for it
	idle  int   // turns since a reader may have needed it
}

func newIndex(from uint64, tick int64) index {
	return index{on: true, from: from, whole: map[string]uint64{}, since: tick}
}

// add records that the end of the call with this subject is at seq.
func (i *index) add(subject string, seq uint64) {
	at, ok := i.whole[subject]
	if !ok {
		i.bytes += len(subject) + endBytes
	}
	i.whole[subject] = max(at, seq)
}

// covers reports whether the index has the end of every call that has an event at seq and ends after it.
func (i *index) covers(seq uint64) bool { return i.on && i.from <= seq }

// note adds a new frame, later than all others, to the index if it ends a call.
func (i *index) note(f *Frame) {
	if i.on && f.gap == nil && outputs.IsWhole(f.Type) {
		i.add(f.subject, f.Seq)
	}
}

// Snapshot is what a call had printed before one of its pieces, encoded for sending: the same bytes for every reader. It is immutable.
type Snapshot struct {
	at   outputs.PlacedPiece
	op   []byte // {"op":"snapshot","conv":…,"snapshot":…}
	data int    // where the snapshot begins
}

func newSnapshot(conv []byte, at outputs.PlacedPiece, s outputs.Snapshot) (*Snapshot, error) {
	data, err := schemas.EncodeJSON(s)
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, "take a snapshot", "it cannot be encoded", err)
	}
	op := slices.Concat([]byte(`{"op":"snapshot","conv":`), conv, []byte(`,"snapshot":`))
	return &Snapshot{at, append(append(op, data...), '}'), len(op)}, nil
}

// Op returns the snapshot as the JSON object that WebSocket clients get. The caller must not change it.
func (s *Snapshot) Op() []byte { return s.op }

// Data returns the [outputs.Snapshot] as JSON; nil if s is nil. The caller must not change it.
func (s *Snapshot) Data() []byte {
	if s == nil {
		return nil
	}
	return s.op[s.data : len(s.op)-1]
}

// decide returns how a frame is delivered to a compact reader, and the snapshot that must be delivered before it, if any. If that is not
// known yet, known is false, and the reader is woken when it can be decided.
func (c *conversation) decide(r *Reader, f *Frame, replay bool) (what fate, s *Snapshot, known bool) {
	switch {
	case f.gap != nil:
		return delivered, nil, true
	case outputs.IsWhole(f.Type):
		r.compact.shown.End(schemas.CallID(f.subject))
		return delivered, nil, true
	case !outputs.IsPiece(f.Type):
		return delivered, nil, true
	}
	if replay {
		c.mu.RLock()
		ended, covered := c.index.whole[f.subject] > f.Seq, c.index.covers(f.Seq)
		c.mu.RUnlock()
		if ended {
			return leftOut, nil, true
		}
		if !covered {
			return 0, nil, c.want(r, &need{index: true, at: outputs.PlacedPiece{Seq: f.Seq}})
		}
	}
	p := f.piece()
	if p == nil || r.compact.shown.Follows(*p) {
		return delivered, nil, true
	}
	at := outputs.PlacedPiece{Piece: *p, Seq: f.Seq}
	c.mu.RLock()
	s = c.shotAt(r, at)
	c.mu.RUnlock()
	if s == nil {
		return 0, nil, c.want(r, &need{at: at})
	}
	r.compact.shown.Begin(*p)
	return afterSnapshot, s, true
}

// shotAt returns the snapshot for a piece; nil if there is none. The caller holds the lock.
func (c *conversation) shotAt(r *Reader, at outputs.PlacedPiece) *Snapshot {
	if s := r.compact.shot; s != nil && s.at == at {
		return s
	}
	for _, s := range c.shots {
		if s.at == at {
			return s
		}
	}
	return nil
}

// want records what a reader needs and starts the seeker if it is not running. It always returns false: the reader must wait until it is
// woken.
func (c *conversation) want(r *Reader, n *need) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.phase == ended {
		return false
	}
	r.compact.need = n
	if n.index && !c.index.on { // what is behind head comes by push
		c.index = newIndex(c.head, c.hub.tick.Load())
	}
	if !c.seeking {
		c.seeking = c.hub.start(c.seek)
		if !c.seeking {
			c.fail(errStopped())
		}
	}
	return false
}

// seek reads what compact readers need until none needs anything. It runs beside the loader, so that other readers are not delayed.
func (c *conversation) seek() {
	ctx := c.hub.ctx
	for failed := 0; ; {
		c.mu.Lock()
		do := c.unknown()
		if do == nil || ctx.Err() != nil { // the hub's end ends the readers
			c.seeking = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		err := do(ctx)
		switch {
		case err == nil:
			failed = 0
			continue
		case ctx.Err() != nil:
			continue
		case !passing(err):
			c.mu.Lock()
			c.fail(err)
			c.mu.Unlock()
		default:
			c.hub.log.Debug("log unreachable, compact readers wait", "error", err)
		}
		failed++
		whileAway.Sleep(ctx, failed)
	}
}

// unknown wakes the compact readers that can continue and returns the next read that the others need; nil if there is none. Reads of where
// calls end come first, from the earliest sequence that any reader needs. The caller holds the lock.
func (c *conversation) unknown() func(context.Context) error {
	var from uint64
	behind := false
	var places []outputs.PlacedPiece
	for _, r := range c.readers {
		if r.compact == nil || r.compact.need == nil || r.phase == ended {
			continue
		}
		n := r.compact.need
		switch {
		case r.gen != c.gen, n.index && c.index.covers(n.at.Seq), !n.index && c.shotAt(r, n.at) != nil:
			r.compact.need = nil
			r.wake()
		case n.index && (!behind || n.at.Seq < from):
			behind, from = true, n.at.Seq
		case !n.index && len(places) < shotsRead && !slices.Contains(places, n.at):
			places = append(places, n.at)
		}
	}
	switch {
	case behind:
		return func(ctx context.Context) error { return c.scan(ctx, from) }
	case len(places) > 0:
		return func(ctx context.Context) error { return c.shoot(ctx, places) }
	}
	return nil
}

// scan reads the events after from up to the beginning of the index, and adds the ends of calls to it.
func (c *conversation) scan(ctx context.Context, from uint64) error {
	c.mu.Lock()
	if !c.index.on { // it was forgotten, or the conversation was recreated, meanwhile
		c.index = newIndex(c.head, c.hub.tick.Load())
	}
	gen, epoch, to := c.gen, c.epoch, c.index.from
	c.mu.Unlock()
	found := newIndex(from, 0)
	defer func() { c.hub.count(-found.bytes) }()
	for at := from + 1; at <= to; {
		page, err := c.hub.from.Read(ctx, c.account, c.id, at)
		if err != nil {
			return err
		}
		if page.Epoch != epoch {
			return c.again(ctx, gen)
		}
		before := found.bytes
		for _, e := range page.Events {
			if outputs.IsWhole(e.Value.Type) {
				found.add(e.Value.Subject, e.Cursor.Seq)
			}
		}
		c.hub.count(found.bytes - before)
		if !page.More {
			break
		}
		at = page.Last + 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != gen || !c.index.on || c.index.from > to {
		return nil // begin again
	}
	before := c.index.bytes
	for subject, seq := range found.whole {
		c.index.add(subject, seq)
	}
	c.index.from, c.index.since = min(c.index.from, from), c.hub.tick.Load()
	c.hub.count(c.index.bytes - before)
	return nil
}

// shoot reads the snapshots for some pieces and stores them for the readers that wait for them.
func (c *conversation) shoot(ctx context.Context, places []outputs.PlacedPiece) error {
	c.mu.RLock()
	gen := c.gen
	c.mu.RUnlock()
	made, err := c.hub.from.Snapshots(ctx, c.account, c.id, places)
	if err != nil {
		return err
	}
	shots := make([]*Snapshot, 0, len(made))
	for i, s := range made {
		shot, err := newSnapshot(c.quoted, places[i], s)
		if err != nil {
			return err
		}
		shots = append(shots, shot)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != gen {
		return nil
	}
	for _, r := range c.readers {
		if r.compact == nil || r.compact.need == nil || r.compact.need.index {
			continue
		}
		if i := slices.Index(places, r.compact.need.at); i >= 0 {
			r.compact.shot = shots[i]
		}
	}
	before := c.bytes()
	c.shots = append(c.shots, shots...)
	if n := len(c.shots) - shotsKept; n > 0 {
		c.shots = append([]*Snapshot(nil), c.shots[n:]...)
	}
	c.hub.count(c.bytes() - before)
	return nil
}

// forgetIndex drops the index once no reader has needed it for two of the conversation's turns. The caller holds the lock.
func (c *conversation) forgetIndex() {
	if !c.index.on {
		return
	}
	c.index.idle++
	if c.seeking || c.wantsIndex() {
		c.index.idle = 0
	}
	if c.index.idle >= 2 { // turns, so at least one whole round: who reads page after page comes back before
		c.dropIndex()
	}
}

// wantsIndex reports whether a compact reader replays or is about to, and so may need the index.
func (c *conversation) wantsIndex() bool {
	return slices.ContainsFunc(c.readers, func(r *Reader) bool { return r.compact != nil && (r.phase == opening || r.phase == replaying) })
}

// dropIndex drops the index. A reader that needs it later has the log read again.
func (c *conversation) dropIndex() {
	c.hub.count(-c.index.bytes)
	c.index = index{}
}
