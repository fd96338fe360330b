package gateway

import (
	"encoding/json"

	"github.com/sandjet/sandjet/gateway/replay"
)

// batch is a message of many replayed events in the making, for a client that asks for them so. It lies at the end of
// what a round has gathered, which bounds it: 48 KiB and a little, before it is compressed.
type batch struct {
	start  int // where its header's room begins
	frames int // in it; 0: there is none
	first  int // where the first of them begins
}

// batchHeader is the room for a header: the largest one of a server.
const batchHeader = 10

// pack adds a replayed event to the batch, which begins with it if there is none.
func (s *session) pack(b []byte, at *attachment, step replay.Step) []byte {
	if s.batch.frames == 0 {
		s.batch.start = len(b)
		b = append(b, make([]byte, batchHeader)...)
		conv, err := json.Marshal(at.conv)
		if err != nil {
			conv = []byte(`""`) // a string always encodes
		}
		b = append(b, `{"op":"batch","conv":`...)
		b = append(b, conv...)
		b = append(b, `,"frames":[`...)
		s.batch.first = len(b)
	} else {
		b = append(b, ',')
	}
	s.batch.frames++
	return step.AppendEvent(b)
}

// seal ends the batch, if there is one. One event alone is sent as what it is.
func (s *session) seal(b []byte) []byte {
	of := s.batch
	s.batch = batch{}
	if of.frames == 0 {
		return b
	}
	text := b[of.first:]
	if of.frames > 1 {
		b = append(b, "]}"...)
		text = b[of.start+batchHeader:]
	}
	b = b[:of.start]
	if b, packed := s.deflate(b, text); packed {
		return b
	}
	return append(appendHeader(b, wsText, len(text)), text...) // it moves forward
}

// deflate adds a compressed message, or reports false where it is to be sent as it is.
func (s *session) deflate(b []byte, parts ...[]byte) ([]byte, bool) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if !s.deflates || size < deflateFrom {
		return b, false
	}
	return s.g.upgrades.deflaters.message(b, parts...)
}

// large tells what is not gathered, in two parts. It is compressed if it is of a replay; else it is written at once,
// with all that was gathered before it, without being copied.
func (s *session) large(b []byte, replayed bool, head, body []byte) []byte {
	if replayed {
		if b, packed := s.deflate(b, head, body); packed {
			return b
		}
	}
	s.write(append(appendHeader(b, wsText, len(head)+len(body)), head...))
	s.write(body)
	return b[:0]
}
