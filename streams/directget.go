package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// concurrentReads bounds the reads in pages of this process: a page holds up its stream's writers
// while it is read, and takes memory until it is made use of. Accounts take turns.
const concurrentReads = 4

const (
	pageMessages = 256
	pageBytes    = 1 << 20
)

// stored is a message as it lies in a stream.
type stored struct {
	stream  string
	subject string
	seq     uint64
	time    time.Time
	headers nats.Header
	data    []byte
	id      string // message id, if it was published with one
}

// getRequest asks a stream for messages. Zero fields are left out.
type getRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	Last      string     `json:"last_by_subj,omitempty"`
	Next      string     `json:"next_by_subj,omitempty"`
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

var errDirectGet = errors.New("the log answers a read in a way that is not known")

// getOne reads one message, from whichever copy is nearest; that it is not there is the leader's word. Code
// not_found if there is none.
func (rd *reader) getOne(ctx context.Context, stream string, r getRequest) (stored, error) {
	m, err := rd.getNear(ctx, stream, r)
	if errors.Is(err, schemas.ErrNotFound) && rd.topology.copied.Load() {
		return rd.getFromLeader(ctx, stream, r)
	}
	return m, err
}

// getNewest is getOne for who must not get what was there a moment ago.
func (rd *reader) getNewest(ctx context.Context, stream string, r getRequest) (stored, error) {
	if rd.topology.copied.Load() {
		return rd.getFromLeader(ctx, stream, r)
	}
	return rd.getNear(ctx, stream, r)
}

// getNear reads one message from whichever copy is nearest, which may lag behind.
func (rd *reader) getNear(ctx context.Context, stream string, r getRequest) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return stored{}, coded("read", err)
	}
	m, err := rd.conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, body)
	if err != nil {
		return stored{}, coded("read from "+stream, err)
	}
	p, err := parsePart(m)
	switch {
	case err != nil:
		return stored{}, schemas.Wrap(schemas.Internal, "read from "+stream, "the log's answer is not understood", err)
	case p.kind == partMessage:
		return p.message, nil
	case p.kind == partNone:
		return stored{}, schemas.OpErrorf(schemas.NotFound, "read from "+stream, "there is no such message")
	}
	return stored{}, schemas.Wrap(schemas.Internal, "read from "+stream, "the log's answer is not understood", errDirectGet)
}

// getLast reads the last message of a subject, which may have wildcards.
func (rd *reader) getLast(ctx context.Context, stream, subject string) (stored, error) {
	return rd.getOne(ctx, stream, getRequest{Last: subject})
}

// getPage reads the messages of a subject from a sequence or a time on, in order: at most a page,
// whose size is limited in number and bytes. More reports whether there are more behind it. A page that
// reaches the present has everything that was confirmed before it was asked for.
func (rd *reader) getPage(
	ctx context.Context, stream, subject string, from uint64, since *time.Time, limit int,
) (page []stored, more bool, err error) {
	limit = min(orDefault(limit, pageMessages), pageMessages)
	page, more, err = rd.getPageNear(ctx, stream, subject, from, since, limit)
	if err != nil || more || !rd.topology.copied.Load() {
		return page, more, err
	}
	return rd.toPresent(ctx, stream, subject, from, since, limit, page)
}

// toPresent adds to a page what the copy that gave it does not have yet. Mostly that is nothing.
func (rd *reader) toPresent(
	ctx context.Context, stream, subject string, from uint64, since *time.Time, limit int, page []stored,
) ([]stored, bool, error) {
	r := getRequest{Seq: max(from, 1), Next: subject}
	switch n := len(page); {
	case n > 0:
		r.Seq = page[n-1].seq + 1
	case since != nil:
		r.Seq, r.StartTime = 0, since
	}
	size := 0
	for _, m := range page {
		size += len(m.data)
	}
	for ; len(page) < limit && size < pageBytes; r.StartTime = nil {
		m, err := rd.getFromLeader(ctx, stream, r)
		if errors.Is(err, schemas.ErrNotFound) {
			return page, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		page = append(page, m)
		size += len(m.data)
		r.Seq = m.seq + 1
	}
	return page, true, nil
}

// hasSlot marks a context whose owner has a slot among the reads in pages.
type hasSlot struct{}

// acquire takes a slot among the reads in pages. Reads with the context that it returns take no other slot: this one is for a page and for
// the payloads that it names.
func (rd *reader) acquire(ctx context.Context, stream, subject string) (_ context.Context, release func(), err error) {
	if ctx.Value(hasSlot{}) != nil {
		return ctx, func() {}, nil
	}
	a := readFor(subject)
	if err := rd.slots.Acquire(ctx, a); err != nil {
		return nil, nil, coded("read from "+stream, err)
	}
	return context.WithValue(ctx, hasSlot{}, true), func() { rd.slots.Release(a) }, nil
}

// getPageNear reads a page from whichever copy is nearest, which may lag behind.
func (rd *reader) getPageNear(
	ctx context.Context, stream, subject string, from uint64, since *time.Time, limit int,
) (page []stored, more bool, err error) {
	ctx, release, err := rd.acquire(ctx, stream, subject)
	if err != nil {
		return nil, false, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	r := getRequest{Seq: max(from, 1), Next: subject, Batch: limit, MaxBytes: pageBytes}
	if since != nil {
		r.Seq, r.StartTime = 0, since
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, false, coded("read", err)
	}
	inbox := nats.NewInbox()
	answers := make(chan *nats.Msg, limit+1)
	sub, err := rd.conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, false, coded("read from "+stream, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // nothing follows from it
	lost := rd.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer rd.conn.RemoveStatusListener(lost)
	if err := rd.conn.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return nil, false, coded("read from "+stream, err)
	}
	last := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil, false, coded("read from "+stream, ctx.Err())
		case <-lost:
			return nil, false, coded("read from "+stream, nats.ErrDisconnected)
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
				page, last = append(page, p.message), p.message.seq
			case partNone:
				return page, false, nil
			case partAway:
				return nil, false, coded("read from "+stream, nats.ErrNoResponders)
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
	message stored
	pending uint64
	last    uint64 // of a page: the sequence of the message before it, 0: it is the first
}

// follows reports whether nothing is missing between a part of a page and the message before it.
func (p part) follows(last uint64) bool {
	return p.last == last || p.kind != partMessage && p.kind != partEnd
}

// lastSequence reads the sequence of the message before a part of a page. The server adds it behind the message's own headers.
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
	return part{last: last, message: stored{
		stream: m.Header.Get("Nats-Stream"), subject: m.Header.Get("Nats-Subject"), seq: seq, time: at,
		headers: m.Header, data: m.Data, id: m.Header.Get(nats.MsgIdHdr),
	}}, nil
}
