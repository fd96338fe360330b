package replay

import (
	"iter"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// StepKind is the kind of a [Step].
type StepKind int

// The kinds.
const (
	StepAttached StepKind = iota // the first: the replay begins
	StepEvent                    // an event
	StepGap                      // something is missing here
	StepLive                     // the replay has reached the present; delivered once
	StepFailed                   // the last: the log failed for good
)

// Step is one thing that a reader delivers: an event, or a change of its state.
type Step struct {
	Kind StepKind
	// Frame is the event of a StepEvent, Prev the cursor of the event that the reader got before it. Replay reports that it came before
	// StepLive.
	Frame  *Frame
	Prev   schemas.Cursor
	Replay bool
	// Skipped is how many events were left out for a compact reader before a StepEvent or StepLive. Snapshot is what the call of a
	// StepEvent had printed before it; nil if the reader has it already.
	Skipped  int
	Snapshot *Snapshot
	// At is the end of the conversation, at StepAttached and StepLive. From is where the replay begins, at StepAttached.
	At, From schemas.Cursor
	// Gap is the gap: always at StepGap, and at StepAttached if events after the reader's cursor are missing.
	Gap *streams.Gap
	Err error // of StepFailed
}

// AppendEvent appends the event of a StepEvent as the JSON object that WebSocket clients get. Nearly always that is the frame's shared text.
func (s Step) AppendEvent(b []byte) []byte {
	return append(s.AppendHead(b), s.Frame.text[s.Frame.body:]...)
}

// AppendHead appends what AppendEvent does, without [Frame.Body].
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

// EventSize returns how many bytes AppendEvent adds.
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

// Reader is one reader's position in a conversation. Ready and Close must not be called concurrently; wake is called from other
// goroutines.
type Reader struct {
	c     *conversation
	wake  func()
	index int // in c.readers, guarded by it

	compact *compact             // nil: it gets everything
	room    func(frame int) bool // nil: there is always room
	small   int                  // frames of at most this size are not counted, in bytes

	// The fields below are guarded by c.mu: the loader reads them, and moves readers that wait for it.
	phase  phase
	proven bool           // the event of its cursor is on the log
	tail   bool           // it began at the present end
	waits  bool           // it waits for the loader
	gen    uint64         // incarnation of the conversation that seq means
	epoch  string         // of that incarnation
	seq    uint64         // everything up to here was delivered
	last   schemas.Cursor // the reader's cursor: of what it got last, or what it began with
	gap    *streams.Gap   // to be reported next
	missed bool           // a gap was recorded at least once
	given  *span          // the frames that were read for it

	givenAt int64 // the hub's tick when given was set
	err     error
}

// Cursor returns the reader's position, after which another attach would continue. Before StepAttached it is the cursor that the reader
// was attached with.
func (r *Reader) Cursor() schemas.Cursor {
	r.c.mu.RLock()
	defer r.c.mu.RUnlock()
	return r.last
}

// Ask makes [Reader.Ready] call room before it yields a frame of more than small bytes. If room returns false, Ready ends before the
// event, and the caller must call it again when there is room. Ask must be called before the first Ready.
func (r *Reader) Ask(small int, room func(frame int) bool) { r.small, r.room = small, room }

// Ready yields what the reader can get now. It does not block: after the last step, wake is called once there may be more. Each yielded
// step counts as delivered.
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

// partFrames and partBytes limit how much of a page a reader takes at a time: about one write. A slow reader holds a copy of that part
// only, not the slice of the page, which would keep the whole page in memory.
const (
	partFrames = 128
	partBytes  = 64 << 10
)

// part copies the first frames, up to partFrames and about partBytes, into an array, and returns that part of it.
func part(into *[partFrames]*Frame, frames []*Frame) []*Frame {
	n := 0
	for size := 0; n < len(frames) && n < len(into) && size < partBytes; n++ {
		into[n] = frames[n]
		size += frames[n].cost()
	}
	return into[:n]
}

// yieldFrames yields frames and moves the reader's position behind them. It returns false if the caller stopped, there is no room, or a
// compact reader must wait.
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

// after returns the cursor from which the reader's position in another incarnation is found.
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

// miss records a gap to report next; nil does nothing. A gap that was not reported yet is extended.
func (r *Reader) miss(gap *streams.Gap) {
	if gap != nil && r.gap != nil {
		gap = &streams.Gap{From: r.gap.From, To: gap.To}
	}
	if gap != nil {
		r.gap, r.missed = gap, true
	}
}

// Close removes the reader. After it has returned, at most a call of wake that was already running is still in progress.
func (r *Reader) Close() { r.c.leave(r) }

func quoted(s string) []byte {
	b, err := schemas.EncodeJSON(s)
	if err != nil {
		return []byte(`""`) // a string always encodes
	}
	return b
}
