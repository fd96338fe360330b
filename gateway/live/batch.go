package live

import (
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
)

// batch is a WebSocket message under construction that holds many replayed events, for clients that ask for that ("batch":true). Its size
// is bounded by what one round gathers: a little over 48 KiB before compression.
type batch struct {
	frames int // in it; 0: there is none
	first  int // where the first of them begins
}

// add adds a replayed event to the batch; the first one begins it.
func (b *batch) add(out *wsconn.Out, c schemas.ConversationID, step replay.Step) {
	if b.frames == 0 {
		out.Begin()
		b.first = out.Append(func(text []byte) []byte {
			conv, err := schemas.EncodeJSON(c)
			if err != nil {
				conv = []byte(`""`) // a string always encodes
			}
			text = append(text, `{"op":"batch","conv":`...)
			text = append(text, conv...)
			return append(text, `,"frames":[`...)
		})
	} else {
		out.Append(func(text []byte) []byte { return append(text, ',') })
	}
	b.frames++
	out.Append(step.AppendEvent)
}

// end completes the batch, if there is one. A batch of one event is sent as a plain event.
func (b *batch) end(out *wsconn.Out) {
	of := *b
	*b = batch{}
	switch of.frames {
	case 0:
	case 1:
		out.End(of.first)
	default:
		out.Append(func(text []byte) []byte { return append(text, "]}"...) })
		out.End(0)
	}
}
