package streams

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// wholes says which event holds all of what a piece told a part of. Pieces and whole have one subject.
func wholes() map[schemas.EventType]schemas.EventType {
	return map[schemas.EventType]schemas.EventType{schemas.CallOutput: schemas.CallFinished}
}

// Fate is what becomes of an event on its way to a reader who wants finished things whole.
type Fate int

// The fates.
const (
	Told          Fate = iota
	LeftOut            // its whole follows
	AfterSnapshot      // told, but its beginning was not: a [Snapshot] comes first
)

// Compaction decides what a reader is told who wants finished things whole: the pieces of a thing whose
// whole follows are left out, and a thing still under way never begins in its middle. It is of one reader
// and not safe for concurrent use.
type Compaction struct {
	isWhole map[schemas.EventType]bool
	ended   map[string]bool            // subjects whose whole lies ahead
	begun   map[piece]bool             // what the reader has from its beginning on
	of      map[schemas.CallID][]piece // of one call, to forget them with it
}

// piece names what pieces belong together: one output stream of one attempt of a call.
type piece struct {
	call    schemas.CallID
	attempt int
	stream  string
}

// NewCompaction returns one for a reader that was told nothing yet.
func NewCompaction() *Compaction {
	c := &Compaction{isWhole: map[schemas.EventType]bool{}, ended: map[string]bool{}, begun: map[piece]bool{}, of: map[schemas.CallID][]piece{}}
	for w := range maps.Values(wholes()) {
		c.isWhole[w] = true
	}
	return c
}

// Ahead takes note of an event that the reader will be told later.
func (c *Compaction) Ahead(e schemas.Event) {
	if c.isWhole[e.Type] {
		c.ended[e.Subject] = true
	}
}

// Undecided reports whether more has to be known by Ahead before Next decides about e: it is a piece, and
// its whole was not seen.
func (c *Compaction) Undecided(e schemas.Event) bool {
	_, isPiece := wholes()[e.Type]
	return isPiece && !c.ended[e.Subject]
}

// Next decides about the next event, in the order of the log.
func (c *Compaction) Next(e schemas.Event) Fate {
	if c.isWhole[e.Type] {
		delete(c.ended, e.Subject)
		c.forget(schemas.CallID(e.Subject))
		return Told
	}
	if e.Type != schemas.CallOutput {
		return Told
	}
	if c.ended[e.Subject] {
		return LeftOut
	}
	var d schemas.OutputData
	if json.Unmarshal(e.Data, &d) != nil {
		return Told // only a publisher with all rights could have put it there
	}
	call := schemas.CallID(e.Subject)
	p := piece{call, d.Attempt, d.Stream}
	if c.begun[p] {
		return Told
	}
	c.begin(p)
	if d.Offset == 0 {
		return Told
	}
	for _, s := range outputStreams() { // the snapshot has them all
		c.begin(piece{call, d.Attempt, s})
	}
	return AfterSnapshot
}

func (c *Compaction) begin(p piece) {
	if !c.begun[p] {
		c.begun[p] = true
		c.of[p.call] = append(c.of[p.call], p)
	}
}

func (c *Compaction) forget(call schemas.CallID) {
	for _, p := range c.of[call] {
		delete(c.begun, p)
	}
	delete(c.of, call)
}

func outputStreams() []string { return []string{"stdout", "stderr"} }

// MaxSnapshotText is the most bytes of one stream's text in a [Snapshot]: the pieces before are left out.
const MaxSnapshotText = 128 << 10

// Snapshot is what a call that runs has printed before an event: a reader puts it in the place of all
// that it has of the call.
type Snapshot struct {
	Call    schemas.CallID `json:"call"`
	Attempt int            `json:"attempt"`
	Output  []SnapshotText `json:"output"` // of each stream that has some
}

// SnapshotText is the end of one stream so far. The next piece of it begins at Offset + Bytes.
type SnapshotText struct {
	Stream string `json:"stream"` // stdout or stderr
	Offset int64  `json:"offset"` // where Text begins; more than 0 if the beginning is left out
	Bytes  int64  `json:"bytes"`  // of the stream that Text stands for
	Text   string `json:"text"`
}

// printed gathers the pieces of one attempt of a call.
type printed struct {
	call    schemas.CallID
	attempt int
	pieces  map[string][]schemas.OutputData // by stream: without a hole, and no more than a snapshot has
}

// add takes in one event of the conversation, in the order of the log.
func (p *printed) add(e schemas.Event) {
	if e.Type != schemas.CallOutput || e.Subject != string(p.call) {
		return
	}
	var d schemas.OutputData
	if json.Unmarshal(e.Data, &d) != nil || d.Attempt != p.attempt || d.Text == "" {
		return
	}
	list := p.pieces[d.Stream]
	if n := len(list); n > 0 && list[n-1].Offset+int64(list[n-1].Bytes) != d.Offset {
		list = nil // what is between is no longer on the log
	}
	list = append(list, d)
	size := 0
	for _, d := range list {
		size += len(d.Text)
	}
	for ; size > MaxSnapshotText; list = list[1:] {
		size -= len(list[0].Text)
	}
	p.pieces[d.Stream] = list
}

// snapshot is what was gathered.
func (p *printed) snapshot() *Snapshot {
	s := &Snapshot{Call: p.call, Attempt: p.attempt, Output: []SnapshotText{}}
	for _, stream := range outputStreams() {
		list := p.pieces[stream]
		if len(list) == 0 {
			continue
		}
		text := SnapshotText{Stream: stream, Offset: list[0].Offset}
		var b strings.Builder
		for _, d := range list {
			b.WriteString(d.Text)
			text.Bytes += int64(d.Bytes)
		}
		text.Text = b.String()
		s.Output = append(s.Output, text)
	}
	return s
}
