package replay

import (
	"iter"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// StepKind says what a [Step] is.
type StepKind int

// The kinds.
const (
	StepAttached StepKind = iota // the first: the replay begins
	StepEvent                    // an event
	StepGap                      // something is missing here
	StepLive                     // the replay has reached the present; delivered once
	StepFailed                   // the last: the log failed for good
)

// Step is one thing that a reader gets.
type Step struct {
	Kind StepKind
	// Frame is the event of a StepEvent, Prev what the reader had before it, Replay whether it came
	// before StepLive.
	Frame  *Frame
	Prev   schemas.Cursor
	Replay bool
	// Skipped is how many events were left out for a compact reader before a StepEvent or StepLive, and Snapshot
	// what the call of a StepEvent had printed before it; nil where the reader knows.
	Skipped  int
	Snapshot *Snapshot
	// At is where the conversation's end is, at StepAttached and StepLive; From, at StepAttached,
	// where the replay begins.
	At, From schemas.Cursor
	// Gap is what is missing: always at StepGap, and at StepAttached if not all is there after the
	// reader's cursor.
	Gap *streams.Gap
	Err error // of StepFailed
}

// AppendEvent adds the event of a StepEvent as the object that a WebSocket's client gets. Nearly
// always that is the frame's shared text.
func (s Step) AppendEvent(b []byte) []byte {
	return append(s.AppendHead(b), s.Frame.text[s.Frame.body:]...)
}

// AppendHead adds what AppendEvent does but for the event itself, which is [Frame.Body].
func (s Step) AppendHead(b []byte) []byte {
	f := s.Frame
	if s.Prev == f.before() {
		b = append(b, f.text[:f.body]...)
	} else {
		b = append(b, f.text[:f.chain]...)
		b = append(b, keyPrev...)
		b = appendCursor(b, s.Prev)
	}
	if s.Replay {
		b = append(b, inReplay...)
	}
	if s.Skipped > 0 {
		b = strconv.AppendInt(append(b, keySkipped...), int64(s.Skipped), 10)
	}
	return b
}

// EventSize is how many bytes AppendEvent adds.
func (s Step) EventSize() int {
	n := len(s.Frame.text)
	if s.Prev != s.Frame.before() {
		n += s.Frame.chain - s.Frame.body + len(keyPrev) + len(s.Prev.String()) + len(`""`)
	}
	if s.Replay {
		n += len(inReplay)
	}
	if s.Skipped > 0 {
		n += len(keySkipped) + len(strconv.Itoa(s.Skipped))
	}
	return n
}

type phase int

const (
	opening phase = iota
	replaying
	live
	ended
)

// Reader is a place in a conversation. Ready and Close belong to one goroutine at a time; wake is
// called from others.
type Reader struct {
	c     *conversation
	wake  func()
	index int // in c.readers, guarded by it

	compact *compact             // nil: it gets everything
	room    func(frame int) bool // nil: for everything
	small   int                  // bytes of a frame for which there is always room

	// What follows is guarded by c.mu: the loader looks at it, and moves readers that wait for it.
	phase  phase
	proven bool           // the event of its cursor is on the log
	tail   bool           // it began at the present end
	waits  bool           // for the loader
	gen    uint64         // incarnation of the conversation that seq means
	epoch  string         // of that incarnation
	seq    uint64         // everything up to here was delivered
	last   schemas.Cursor // the reader's cursor: of what it got last, or what it began with
	gap    *streams.Gap   // to be reported next
	missed bool           // a gap was to be reported, ever
	given  *span          // what was read for it

	givenAt int64 // the hub's tick when it was
	err     error
}

// Cursor is where the reader is: it resumes after it. Before StepAttached it is what it began with.
func (r *Reader) Cursor() schemas.Cursor {
	r.c.mu.RLock()
	defer r.c.mu.RUnlock()
	return r.last
}

// Ask has the reader ask before each frame of more than small bytes whether there is room for it. Where there is none, [Reader.Ready] ends
// before the event; a caller that refuses looks again later. It is for before the first Ready.
func (r *Reader) Ask(small int, room func(frame int) bool) { r.small, r.room = small, room }

// Ready is what the reader can get now. It never waits: when nothing is left, wake is called
// once there may be more. What was yielded counts as delivered.
func (r *Reader) Ready() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		var few [partFrames]*Frame
		for {
			frames, step, more := r.c.take(r)
			frames = part(&few, frames)
			if step != nil && step.Kind == StepLive && r.compact != nil {
				step.Skipped, r.compact.skipped = r.compact.skipped, 0
			}
			if step != nil && !yield(*step) {
				return
			}
			if !r.yieldFrames(frames, yield) || !more {
				return
			}
		}
	}
}

// partFrames and partBytes are how much of a page a reader takes at a time, about as much as goes out with one write. A reader that is slow
// to take it holds no more than that: the slice that it is of is a whole page.
const (
	partFrames = 128
	partBytes  = 64 << 10
)

// part copies the first frames.
func part(into *[partFrames]*Frame, frames []*Frame) []*Frame {
	n := 0
	for size := 0; n < len(frames) && n < len(into) && size < partBytes; n++ {
		into[n] = frames[n]
		size += frames[n].cost()
	}
	return into[:n]
}

// yieldFrames yields frames and moves the reader behind what was yielded. It reports false if no more is to be
// delivered now.
func (r *Reader) yieldFrames(frames []*Frame, yield func(Step) bool) bool {
	if len(frames) == 0 {
		return true
	}
	r.c.mu.RLock()
	last, replay, seq := r.last, r.phase == replaying, r.seq
	r.c.mu.RUnlock()
	goOn := true
	for _, f := range frames {
		if r.room != nil && len(f.text) > r.small && !r.room(len(f.text)) {
			goOn = false
			break
		}
		step := Step{Kind: StepEvent, Frame: f, Prev: last, Replay: replay}
		if r.compact != nil {
			fate, snapshot, known := r.c.decide(r, f, replay)
			if !known {
				goOn = false
				break
			}
			if fate == leftOut {
				seq = f.Seq
				r.compact.skipped++
				continue
			}
			step.Snapshot = snapshot
		}
		seq = f.Seq
		if f.gap != nil {
			goOn = yield(Step{Kind: StepGap, Gap: f.gap})
		} else {
			if r.compact != nil {
				step.Skipped, r.compact.skipped = r.compact.skipped, 0
			}
			goOn = yield(step)
			last = f.Cursor()
		}
		if !goOn {
			break
		}
	}
	r.c.advance(r, seq, last)
	return goOn
}

// after is the cursor by which the reader's place is found in another incarnation.
func (r *Reader) after() schemas.Cursor {
	if r.phase == opening {
		return r.last
	}
	at := schemas.Cursor{Epoch: r.epoch, Seq: r.seq}
	if r.last.Place() == at {
		at.Mark = r.last.Mark // it was delivered: another event may lie there now
	}
	return at
}

// miss notes a gap that is reported next; one that was not reported yet grows by it.
func (r *Reader) miss(gap *streams.Gap) {
	if gap != nil && r.gap != nil {
		gap = &streams.Gap{From: r.gap.From, To: gap.To}
	}
	if gap != nil {
		r.gap, r.missed = gap, true
	}
}

// Close ends the reader: wake is not called again once it has returned, but for a call that is on
// its way.
func (r *Reader) Close() { r.c.leave(r) }

func quoted(s string) []byte {
	b, err := schemas.EncodeJSON(s)
	if err != nil {
		return []byte(`""`) // a string always encodes
	}
	return b
}
