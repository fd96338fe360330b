package replay

import (
	"encoding/json"
	"sync/atomic"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// Frame is one event of a conversation, encoded for sending: the same bytes for every reader. It is immutable.
type Frame struct {
	// Seq is the event's sequence, Type its type.
	Seq  uint64
	Type schemas.EventType

	epoch    string
	mark     uint16                        // of the event's cursor
	subject  string                        // of the event
	prevMark uint16                        // of the frame before; 0: unknown
	prev     uint64                        // sequence of the frame before, 0: none
	gap      *streams.Gap                  // set: this is not an event, but a gap up to Seq
	text     []byte                        // {"op":"ev","conv":…,"cur":…,"prev":…,"data":…}
	chain    int                           // where ,"prev": begins
	body     int                           // where ,"data": begins
	part     atomic.Pointer[outputs.Piece] // the piece of output that the event is, once a reader needed it
}

const (
	keyPrev    = `,"prev":`
	keyData    = `,"data":`
	inReplay   = `,"replay":true`
	keySkipped = `,"skipped":`
)

// frameCost is about how many bytes a frame takes beside its text.
const frameCost = 128

// newFrame encodes the event e at a cursor; prev is the cursor of the event before it.
func newFrame(conv []byte, epoch string, prev schemas.Cursor, e schemas.Event, at schemas.Cursor) *Frame {
	data, err := schemas.EncodeJSON(e)
	if err != nil {
		data = []byte(`null`) // a stored event whose data is no JSON: send it rather than leave a gap
	}
	const around = 128 // the keys and two cursors
	b := make([]byte, 0, len(conv)+len(data)+around)
	b = append(b, `{"op":"ev","conv":`...)
	b = append(b, conv...)
	b = append(b, `,"cur":`...)
	at.Epoch = epoch
	b = appendCursor(b, at)
	f := &Frame{Seq: at.Seq, mark: at.Mark, Type: e.Type, epoch: epoch, subject: e.Subject, prev: prev.Seq, prevMark: prev.Mark, chain: len(b)}
	b = append(b, keyPrev...)
	b = appendCursor(b, f.before())
	f.body = len(b)
	b = append(b, keyData...)
	b = append(b, data...)
	f.text = append(b, '}')
	return f
}

// newGap returns the frame that stands in a ring for the removed events after prev up to upTo.
func newGap(epoch string, prev, upTo uint64) *Frame {
	return &Frame{Seq: upTo, epoch: epoch, prev: prev, gap: &streams.Gap{
		From: schemas.Cursor{Epoch: epoch, Seq: prev}, To: schemas.Cursor{Epoch: epoch, Seq: upTo},
	}}
}

func appendCursor(b []byte, c schemas.Cursor) []byte {
	b = append(b, '"')
	b = append(b, c.String()...) // letters, digits, - and _
	return append(b, '"')
}

// Cursor returns the position of the event. A reader that attaches with it continues after the event.
func (f *Frame) Cursor() schemas.Cursor {
	return schemas.Cursor{Epoch: f.epoch, Seq: f.Seq, Mark: f.mark}
}

// before returns the cursor of the frame before.
func (f *Frame) before() schemas.Cursor {
	if f.prev == 0 {
		return schemas.Cursor{}
	}
	return schemas.Cursor{Epoch: f.epoch, Seq: f.prev, Mark: f.prevMark}
}

// Data returns the event as JSON. The caller must not change it.
func (f *Frame) Data() []byte { return f.text[f.body+len(keyData) : len(f.text)-1] }

// Body returns the end of the frame's text, from the key "data" on. The caller must not change it.
func (f *Frame) Body() []byte { return f.text[f.body:] }

// piece returns the piece of output that the event is; nil if it cannot be decoded. It is decoded at the first call.
func (f *Frame) piece() *outputs.Piece {
	if p := f.part.Load(); p != nil {
		return p
	}
	var e schemas.Event
	if json.Unmarshal(f.Data(), &e) != nil {
		return nil
	}
	p, ok := outputs.PieceOf(e)
	if !ok {
		return nil
	}
	f.part.Store(&p)
	return &p
}

func (f *Frame) cost() int { return len(f.text) + frameCost }
