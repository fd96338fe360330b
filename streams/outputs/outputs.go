// Package outputs folds the pieces of a call's live output: which of them a reader has, and what was printed before a place on the log.
package outputs

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// IsPiece reports whether an event has a part of an output, of which a later event of the same subject has the whole.
func IsPiece(t schemas.EventType) bool { return t == schemas.CallOutput }

// IsWhole reports whether an event has the whole of an output that earlier events may have had in parts.
func IsWhole(t schemas.EventType) bool { return t == schemas.CallFinished }

// Piece is a part of one output stream of one attempt of a call.
type Piece struct {
	Call    schemas.CallID
	Attempt int
	Stream  string
	Offset  int64 // where it begins
}

// PieceOf returns which part of an output an event has; false for any other event.
func PieceOf(e schemas.Event) (Piece, bool) {
	var d schemas.OutputData
	if !IsPiece(e.Type) || json.Unmarshal(e.Data, &d) != nil { // only a publisher with all rights could have put it there
		return Piece{}, false
	}
	return Piece{schemas.CallID(e.Subject), d.Attempt, d.Stream, d.Offset}, true
}

// PlacedPiece is a piece with its stream sequence.
type PlacedPiece struct {
	Piece

	Seq uint64
}

// Shown is what one reader has of the calls that run. The zero value is that of a reader who has nothing.
// It is not safe for concurrent use.
//
// A stream of an attempt is in begun once the reader has received its first piece or a snapshot of its call. Pieces come in the
// order of the log, so from then on the reader has all of it up to the latest piece, but for gaps that were reported, and needs no
// snapshot again. A call is forgotten at its end, so that this is as large as the calls that run, not as the conversation.
type Shown struct {
	begun map[Piece]bool             // what it has from its beginning on; of no offset
	of    map[schemas.CallID][]Piece // of one call, to forget them with it
}

// Follows reports whether a piece can be sent to the reader: the one before it was sent, or it is the first. Otherwise send a [Snapshot]
// first, and call Begin.
func (s *Shown) Follows(p Piece) bool {
	begins := p.Offset == 0
	p.Offset = 0
	if s.begun[p] {
		return true
	}
	if begins {
		s.begin(p)
	}
	return begins
}

// Begin records that the reader gets a snapshot of a piece's call, which covers all its streams.
func (s *Shown) Begin(p Piece) {
	for _, stream := range append(outputStreams(), p.Stream) {
		s.begin(Piece{Call: p.Call, Attempt: p.Attempt, Stream: stream})
	}
}

func (s *Shown) begin(p Piece) {
	if s.begun == nil {
		s.begun, s.of = map[Piece]bool{}, map[schemas.CallID][]Piece{}
	}
	if !s.begun[p] {
		s.begun[p] = true
		s.of[p.Call] = append(s.of[p.Call], p)
	}
}

// End records that a call has ended.
func (s *Shown) End(call schemas.CallID) {
	for _, p := range s.of[call] {
		delete(s.begun, p)
	}
	delete(s.of, call)
}

func outputStreams() []string { return []string{"stdout", "stderr"} }

// MaxSnapshotText is the most bytes of one stream's text in a [Snapshot]: the pieces before are left out.
const MaxSnapshotText = 128 << 10

// Snapshot is the output of a running call up to an event. A reader replaces all that it has of the call by it.
type Snapshot struct {
	Call    schemas.CallID `json:"call"`
	Attempt int            `json:"attempt"`
	Output  []SnapshotText `json:"output"` // of each stream that has some
}

// SnapshotText is the tail of one stream. The next piece begins at Offset + Bytes.
type SnapshotText struct {
	Stream string `json:"stream"` // stdout or stderr
	Offset int64  `json:"offset"` // where Text begins; more than 0 if the beginning is left out
	Bytes  int64  `json:"bytes"`  // of the stream that Text stands for
	Text   string `json:"text"`
}

// printed collects the pieces of one attempt of a call.
type printed struct {
	call    schemas.CallID
	attempt int
	pieces  map[string][]schemas.OutputData // by stream: without a hole, and no more than a snapshot has
}

// add adds one piece, in the order of the log.
func (p *printed) add(d schemas.OutputData) {
	if d.Text == "" {
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

// snapshot returns what was collected.
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

// Gathering makes snapshots at several positions in one pass over the log.
type Gathering struct {
	of    []PlacedPiece
	order []int // of of, by place
	made  []Snapshot
	next  int // of order
	Last  uint64
	calls map[attempt]*printed
}

// attempt is one attempt of a call.
type attempt struct {
	call schemas.CallID
	n    int
}

// NewGathering starts a pass for the snapshots before the given pieces.
func NewGathering(of []PlacedPiece) *Gathering {
	g := &Gathering{of: of, order: make([]int, len(of)), made: make([]Snapshot, len(of)), calls: map[attempt]*printed{}}
	for i, p := range of {
		g.order[i] = i
		g.Last = max(g.Last, p.Seq)
		g.calls[attempt{p.Call, p.Attempt}] = &printed{call: p.Call, attempt: p.Attempt, pieces: map[string][]schemas.OutputData{}}
	}
	slices.SortFunc(g.order, func(a, b int) int { return cmp.Compare(of[a].Seq, of[b].Seq) })
	return g
}

// Add adds one event of the conversation, in the order of the log.
func (g *Gathering) Add(e schemas.Event, seq uint64) {
	g.pass(seq)
	var d schemas.OutputData
	if !IsPiece(e.Type) || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	if p := g.calls[attempt{schemas.CallID(e.Subject), d.Attempt}]; p != nil {
		p.add(d)
	}
}

// pass makes the snapshots for positions up to a sequence.
func (g *Gathering) pass(seq uint64) {
	for ; g.next < len(g.order) && g.of[g.order[g.next]].Seq <= seq; g.next++ {
		i := g.order[g.next]
		g.made[i] = *g.calls[attempt{g.of[i].Call, g.of[i].Attempt}].snapshot()
	}
}

// End returns the snapshots, in the order of the pieces.
func (g *Gathering) End() []Snapshot {
	g.pass(g.Last)
	return g.made
}
