package live

import (
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
)

// batch is a message of many replayed events in the making, for a client that asks for them so. What a round may gather
// bounds it: 48 KiB and a little, before it is compressed.
type batch struct {
	frames int // in it; 0: there is none
	first  int // where the first of them begins
}

// add adds a replayed event to the batch, which begins with it if there is none.
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

// end ends the batch, if there is one. One event alone is sent as what it is.
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
