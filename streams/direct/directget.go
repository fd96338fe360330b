package direct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// concurrentReads bounds the reads in pages of this process: a page holds up its stream's writers
// while it is read, and takes memory until it is made use of. Accounts take turns.
const concurrentReads = 4

// Bounds of a page; it always has one message.
const (
	PageMessages = 256
	PageBytes    = 1 << 20
)

// Message is a stored message of a stream.
type Message struct {
	Stream  string
	Subject string
	Seq     uint64
	Time    time.Time
	Headers nats.Header
	Data    []byte
	ID      string // message id, if it was published with one
}

// Request asks a stream for messages. Zero fields are left out.
type Request struct {
	Seq       uint64     `json:"seq,omitempty"`
	Last      string     `json:"last_by_subj,omitempty"`
	Next      string     `json:"next_by_subj,omitempty"`
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

var errDirectGet = errors.New("the log answers a read in a way that is not known")

// Get reads one message from whichever copy is nearest; if that copy lacks it, the leader is asked. Code not_found if there is none.
func (rd *Reader) Get(ctx context.Context, stream string, r Request) (Message, error) {
	m, err := rd.getNear(ctx, stream, r)
	if errors.Is(err, schemas.ErrNotFound) && rd.o.Copied.Load() {
		return rd.GetFromLeader(ctx, stream, r)
	}
	return m, err
}

// GetNewest is Get for a caller that must not get a former state: if the log has copies it asks the leader.
func (rd *Reader) GetNewest(ctx context.Context, stream string, r Request) (Message, error) {
	if rd.o.Copied.Load() {
		return rd.GetFromLeader(ctx, stream, r)
	}
	return rd.getNear(ctx, stream, r)
}

// getNear reads one message from whichever copy is nearest, which may lag behind.
func (rd *Reader) getNear(ctx context.Context, stream string, r Request) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTime)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return Message{}, natserr.Coded("read", err)
	}
	m, err := rd.o.Conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, body)
	if err != nil {
		return Message{}, natserr.Coded("read from "+stream, err)
	}
	p, err := parsePart(m)
	switch {
	case err != nil:
		return Message{}, schemas.Wrap(schemas.Internal, "read from "+stream, "the log's answer is not understood", err)
	case p.kind == partMessage:
		return p.message, nil
	case p.kind == partNone:
		return Message{}, schemas.OpErrorf(schemas.NotFound, "read from "+stream, "there is no such message")
	}
	return Message{}, schemas.Wrap(schemas.Internal, "read from "+stream, "the log's answer is not understood", errDirectGet)
}

// GetLast reads the last message of a subject, which may have wildcards.
func (rd *Reader) GetLast(ctx context.Context, stream, subject string) (Message, error) {
	return rd.Get(ctx, stream, Request{Last: subject})
}

// GetPage reads the messages of a subject from a sequence or a time on, in order, as a page of limited number and bytes. more reports
// whether others follow. A page without more has everything that was confirmed before the request.
func (rd *Reader) GetPage(
	ctx context.Context, stream, subject string, from uint64, since *time.Time, limit int,
) (page []Message, more bool, err error) {
	if limit <= 0 || limit > PageMessages {
		limit = PageMessages
	}
	page, more, err = rd.GetPageNear(ctx, stream, subject, from, since, limit)
	if err != nil || more || !rd.o.Copied.Load() {
		return page, more, err
	}
	return rd.ToPresent(ctx, stream, subject, from, since, limit, page)
}

// ToPresent adds to a page what the copy that returned it lacks, which is usually nothing.
func (rd *Reader) ToPresent(
	ctx context.Context, stream, subject string, from uint64, since *time.Time, limit int, page []Message,
) ([]Message, bool, error) {
	r := Request{Seq: max(from, 1), Next: subject}
	switch n := len(page); {
	case n > 0:
		r.Seq = page[n-1].Seq + 1
	case since != nil:
		r.Seq, r.StartTime = 0, since
	}
	size := 0
	for _, m := range page {
		size += len(m.Data)
	}
	for ; len(page) < limit && size < PageBytes; r.StartTime = nil {
		m, err := rd.GetFromLeader(ctx, stream, r)
		if errors.Is(err, schemas.ErrNotFound) {
			return page, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		page = append(page, m)
		size += len(m.Data)
		r.Seq = m.Seq + 1
	}
	return page, true, nil
}

// hasSlot marks a context whose owner has a slot among the reads in pages.
type hasSlot struct{}

// Acquire takes one of the slots for page reads. Reads with the returned context take no further slot, so that one slot covers a page and
// the payloads that it names.
func (rd *Reader) Acquire(ctx context.Context, stream, subject string) (_ context.Context, release func(), err error) {
	if ctx.Value(hasSlot{}) != nil {
		return ctx, func() {}, nil
	}
	a := subjects.ReadFor(subject)
	if err := rd.slots.Acquire(ctx, a); err != nil {
		return nil, nil, natserr.Coded("read from "+stream, err)
	}
	return context.WithValue(ctx, hasSlot{}, true), func() { rd.slots.Release(a) }, nil
}

// GetPageNear reads a page from whichever copy is nearest, which may lag behind.
func (rd *Reader) GetPageNear(
	ctx context.Context, stream, subject string, from uint64, since *time.Time, limit int,
) (page []Message, more bool, err error) {
	ctx, release, err := rd.Acquire(ctx, stream, subject)
	if err != nil {
		return nil, false, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, RequestTime)
	defer cancel()
	r := Request{Seq: max(from, 1), Next: subject, Batch: limit, MaxBytes: PageBytes}
	if since != nil {
		r.Seq, r.StartTime = 0, since
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, false, natserr.Coded("read", err)
	}
	inbox := nats.NewInbox()
	answers := make(chan *nats.Msg, limit+1)
	sub, err := rd.o.Conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, false, natserr.Coded("read from "+stream, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // nothing follows from it
	lost := rd.o.Conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer rd.o.Conn.RemoveStatusListener(lost)
	if err := rd.o.Conn.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return nil, false, natserr.Coded("read from "+stream, err)
	}
	last := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil, false, natserr.Coded("read from "+stream, ctx.Err())
		case <-lost:
			return nil, false, natserr.Coded("read from "+stream, nats.ErrDisconnected)
		case m := <-answers:
			p, err := parsePart(m)
			if err != nil {
				return nil, false, schemas.Wrap(schemas.Internal, "read from "+stream, "the log's answer is not understood", err)
			}
			if !p.follows(last) {
				return nil, false, schemas.OpErrorf(schemas.Unavailable, "read from "+stream, "a part of the answer was lost on its way: try again")
			}
			switch p.kind {
			case partMessage:
				page, last = append(page, p.message), p.message.Seq
			case partNone:
				return page, false, nil
			case partAway:
				return nil, false, natserr.Coded("read from "+stream, nats.ErrNoResponders)
			case partEnd:
				return page, p.pending > 0, nil
			}
		}
	}
}

type partKind int

const (
	partMessage partKind = iota
	partEnd              // of a page
	partNone             // nothing there
	partAway             // no server answers
)

// part is one answer to a read.
type part struct {
	kind    partKind
	message Message
	pending uint64
	last    uint64 // of a page: the sequence of the message before it, 0: it is the first
}

// follows reports whether no message is missing between a part of a page and the message before it.
func (p part) follows(last uint64) bool {
	return p.last == last || p.kind != partMessage && p.kind != partEnd
}

// lastSequence reads the sequence of the message before a part of a page, which the server adds after the message's own headers.
func lastSequence(h nats.Header) (uint64, error) {
	all := h["Nats-Last-Sequence"]
	if len(all) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(all[len(all)-1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("sequence before it: %w", err)
	}
	return n, nil
}

// parsePart reads one answer.
func parsePart(m *nats.Msg) (part, error) {
	status := m.Header.Get("Status")
	switch status {
	case "":
	case "204":
		n, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
		if err != nil {
			return part{}, fmt.Errorf("end of a page: pending: %w", err)
		}
		last, err := lastSequence(m.Header)
		return part{kind: partEnd, pending: n, last: last}, err
	case "404":
		return part{kind: partNone}, nil
	case "503":
		return part{kind: partAway}, nil
	default:
		return part{}, fmt.Errorf("%w: %s %s", errDirectGet, status, m.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return part{}, fmt.Errorf("sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return part{}, fmt.Errorf("time: %w", err)
	}
	last, err := lastSequence(m.Header)
	if err != nil {
		return part{}, err
	}
	return part{last: last, message: Message{
		Stream: m.Header.Get("Nats-Stream"), Subject: m.Header.Get("Nats-Subject"), Seq: seq, Time: at,
		Headers: m.Header, Data: m.Data, ID: m.Header.Get(nats.MsgIdHdr),
	}}, nil
}

// AndBehind returns how many messages matched the request that m was the first answer to.
func (m Message) AndBehind() (uint64, error) {
	behind, err := strconv.ParseUint(m.Headers.Get("Nats-Num-Pending"), 10, 64)
	if err != nil {
		return 0, schemas.Wrap(schemas.Internal, "read from "+m.Stream, "the log's answer is not understood", err)
	}
	return behind + 1, nil
}

// ParseLive reads a republished message: the stored message, and the previous sequence of its subject.
func ParseLive(m *nats.Msg) (Message, uint64, error) {
	s, err := parsePart(m)
	if err != nil {
		return Message{}, 0, err
	}
	prev, err := strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	if err != nil || s.kind != partMessage {
		return Message{}, 0, errors.Join(errDirectGet, err)
	}
	return s.message, prev, nil
}
