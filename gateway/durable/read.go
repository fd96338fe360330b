package durable

import (
	"bytes"
	"context"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Limits of one page, unless a single message is larger. A message counts with what it takes in memory beside its data.
const (
	pageBytes    = 1 << 20
	pageMessages = 4096
	messageBytes = 128
)

// page is a part of a stream's messages.
type page struct {
	messages []message
	size     int // of the messages in memory
	next     uint64
	upToDate bool // it reaches the stream's end
	closed   bool // and the stream is closed
}

type message struct {
	seq  uint64
	data []byte
}

// read returns the messages after a sequence: those that a fork inherits first, then the stream's own. Code invalid: the sequence is
// behind the stream's end.
func (s *store) read(ctx context.Context, f found, after uint64) (page, error) {
	p := page{next: after}
	for _, seg := range f.Inherited {
		for p.next < seg.Upto {
			got, more, err := s.log.Page(ctx, f.Account, seg.ID, p.next)
			if err != nil {
				return page{}, err
			}
			past := false
			for _, m := range got {
				if past = m.Seq > seg.Upto; past {
					break
				}
				if !p.add(m) {
					return p, nil
				}
			}
			if past || !more || len(got) == 0 {
				p.next = max(p.next, seg.Upto)
			}
		}
	}
	for {
		got, more, err := s.log.Page(ctx, f.Account, f.ID, p.next)
		if err != nil {
			return page{}, err
		}
		for _, m := range got {
			if !p.add(m) {
				return p, nil
			}
		}
		if !more || len(got) == 0 {
			return p, s.finish(ctx, f, got, &p)
		}
	}
}

// finish sets upToDate of a page that reaches the end, and whether the stream is closed.
func (s *store) finish(ctx context.Context, f found, got []streams.DurableEntry, p *page) error {
	p.upToDate = true
	if len(got) > 0 {
		st, err := decodeState(got[len(got)-1])
		p.closed = st.Closed
		return err
	}
	e, err := s.end(ctx, f)
	if err == nil && e.seq < p.next {
		return errBehindTheEnd()
	}
	// A message that came after the page was read is for the next page.
	p.closed = e.state.Closed && e.seq == p.next
	return err
}

// errBehindTheEnd is the error for an offset behind the stream's end: a reader that waited there would miss the messages stored before it.
// Such offsets exist if the log has lost its end, for example after a restore.
func errBehindTheEnd() error {
	return schemas.Invalidf("offset", "is behind the end of the stream: the log has lost what was there; begin at -1, or at now")
}

// add adds a message. It returns false if the page is full. It copies the data, since the original shares memory with the message's
// headers.
func (p *page) add(m streams.DurableEntry) bool {
	if len(m.Data) > 0 {
		size := p.size + len(m.Data) + messageBytes
		if len(p.messages) > 0 && (size > pageBytes || len(p.messages) == pageMessages) {
			return false
		}
		p.size = size
		p.messages = append(p.messages, message{m.Seq, bytes.Clone(m.Data)})
	}
	p.next = m.Seq
	return true
}

// body returns the page's data as the body of a response: a JSON array, or the bytes.
func (p *page) body(contentType string) []byte {
	parts := make([][]byte, len(p.messages))
	for i, m := range p.messages {
		parts[i] = m.data
	}
	if isJSON(contentType) {
		return array(bytes.Join(parts, []byte{','}))
	}
	return bytes.Join(parts, nil)
}
