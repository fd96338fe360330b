// Package intake stores what NATS clients publish as calls.
//
// All accounts share the stream in which publications wait, and a NATS server decides by the headers of a publication about the whole
// stream: by message ids and expected sequences. So no client publishes to it directly. The [Listener] receives what clients publish on
// sandjet.calls.auto.<account>, follows JetStream's rules toward the publisher, and stores it for the account: a message id becomes the
// account's own, and headers that compare with messages of others are refused.
package intake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// HeaderMsgID names a publication. Under the account it makes two of them one.
const HeaderMsgID = jetstream.MsgIDHeader

// HeaderPublication says of a publication that is sent again what it was at first. Publishers cannot set it.
const HeaderPublication = "Sandjet-Publication"

// HeaderRedriven marks a message that was sent again with the id of its dead letter. Publishers cannot set it.
const HeaderRedriven = "Sandjet-Redriven"

// intakeSlots is how many publications of all accounts are on their way into the log.
const intakeSlots = 256

// maxPending is how many publications may be unconfirmed at a time: more than there are slots.
const maxPending = 1024

// Options configure a [Listener].
type Options struct {
	Conn   *nats.Conn // for the listener alone
	Stream string     // the work queue in which publications wait
	// Shares bound what one account may have on its way into the log.
	Shares fair.Shares
	// Admit returns an error if the message of an account may not be stored. It must not block.
	Admit func(a schemas.AccountID, stored *nats.Msg) error
	Warn  func(msg string, args ...any)
}

// Listener accepts publications of clients, over a connection of its own.
type Listener struct {
	o     Options
	js    jetstream.JetStream
	turns *fair.Queue[*nats.Msg]
	sub   *nats.Subscription
}

// Open accepts publications from its return on. They are stored while [Listener.Run] runs.
func Open(o Options) (*Listener, error) {
	const op = "open the listener for publications"
	if o.Shares.Slots <= 0 {
		o.Shares.Slots = intakeSlots
	}
	js, err := jetstream.New(o.Conn, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(direct.RequestTime))
	if err != nil {
		return nil, natserr.Coded(op, err)
	}
	d := &Listener{o: o, js: js, turns: fair.NewQueue[*nats.Msg](o.Shares)}
	// Several processes share the work; a publication is taken by one of them.
	if d.sub, err = o.Conn.QueueSubscribe(subjects.Intake+"*", subjects.SharedQueue, d.arrive); err != nil {
		return nil, natserr.Coded(op, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), direct.RequestTime)
	defer cancel()
	if err := o.Conn.FlushWithContext(ctx); err != nil {
		return nil, natserr.Coded(op, err)
	}
	return d, nil
}

// closeGrace is how long publications that are on their way into the log may take when the listener closes. Behind it
// may be a log that cannot write, and is waited for to be started again.
const closeGrace = time.Second

// Run stores publications until ctx ends, and returns when those in flight are confirmed or refused.
func (d *Listener) Run(ctx context.Context) {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(closeGrace, end) })()
	var inFlight sync.WaitGroup
	d.turns.Run(ctx, func(m *nats.Msg, done func()) { d.store(over, &inFlight, m, done) }, d.refuse)
	if err := d.sub.Unsubscribe(); err != nil && d.o.Conn.Status() == nats.CONNECTED {
		d.o.Warn("the subscription of the listener for publications was not ended", "error", err)
	}
	inFlight.Wait()
}

// arrive is called by the subscription, which all accounts share. It never blocks.
func (d *Listener) arrive(m *nats.Msg) {
	a := subjects.AccountOf(m.Subject)
	err := a.Validate()
	if err == nil {
		err = d.turns.Offer(a, m.Size(), m, time.Now())
	}
	if err != nil {
		d.refuse(m, err)
	}
}

// store writes one publication to the log. Those of an account keep their order. One that is not confirmed when over ends is refused; its
// publisher can safely repeat it under the same id.
func (d *Listener) store(over context.Context, inFlight *sync.WaitGroup, m *nats.Msg, done func()) {
	stored, err := Message(m, d.o.Stream)
	if err == nil {
		err = d.o.Admit(subjects.AccountOf(m.Subject), stored)
	}
	if err != nil {
		d.refuse(m, err)
		done()
		return
	}
	ack, err := d.js.PublishMsgAsync(stored)
	if err != nil {
		d.refuse(m, err)
		done()
		return
	}
	inFlight.Go(func() {
		defer done()
		select {
		case ok := <-ack.Ok():
			d.confirm(m, ok)
		case err := <-ack.Err():
			if !acks.Undecided(err) {
				d.refuse(m, err)
				return
			}
			d.again(over, m, stored)
		case <-over.Done():
			d.refuse(m, schemas.Errorf(schemas.Unavailable,
				"the log has not confirmed it before this process closed: publish it again, under the same %s if it has one", HeaderMsgID))
		}
	})
}

// again stores a publication while an earlier one with the same id is still in process.
func (d *Listener) again(ctx context.Context, m, stored *nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, direct.RequestTime)
	defer cancel()
	var ok *jetstream.PubAck
	err := acks.UntilDecided(ctx, func() (err error) {
		ok, err = d.js.PublishMsg(ctx, stored)
		return err
	})
	if err != nil {
		d.refuse(m, err)
		return
	}
	d.confirm(m, ok)
}

// pubAck is a JetStream PubAck, or its error.
type pubAck struct {
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate,omitzero"`
	Error     *jetstream.APIError `json:"error,omitzero"`
}

// confirm sends the PubAck to the publisher. Sequences are common to all accounts, so it has the time in milliseconds in their place,
// which only grows too.
func (d *Listener) confirm(m *nats.Msg, ack *jetstream.PubAck) {
	d.answer(m, pubAck{Stream: d.o.Stream, Sequence: uint64(max(time.Now().UnixMilli(), 1)), Duplicate: ack.Duplicate})
}

func (d *Listener) refuse(m *nats.Msg, err error) {
	d.answer(m, pubAck{Stream: d.o.Stream, Error: RefusalOf(err)})
}

func (d *Listener) answer(m *nats.Msg, a pubAck) {
	if m.Reply == "" {
		return
	}
	body, err := schemas.EncodeJSON(a)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil && d.o.Conn.Status() == nats.CONNECTED {
		d.o.Warn("answer to publisher not sent", "subject", m.Subject, "error", err)
	}
}

// RefusalOf describes an error as a JetStream server would.
func RefusalOf(err error) *jetstream.APIError {
	if api := natserr.API(err); api != nil && !acks.Undecided(err) {
		return api
	}
	public := schemas.Public(natserr.Coded("publish", err))
	const codeBadRequest, codeUnavailable = 10003, 10008
	switch public.Code {
	case schemas.Exhausted:
		return &jetstream.APIError{Code: http.StatusTooManyRequests, ErrorCode: natserr.StoreFailed, Description: public.Message}
	case schemas.Invalid, schemas.Denied:
		return &jetstream.APIError{Code: http.StatusBadRequest, ErrorCode: codeBadRequest, Description: public.Error()}
	default:
		return &jetstream.APIError{Code: http.StatusServiceUnavailable, ErrorCode: codeUnavailable, Description: public.Message}
	}
}

// Message returns the message to store in the stream for a publication. It is pure. Code: invalid.
func Message(m *nats.Msg, stream string) (*nats.Msg, error) {
	const longestID = 1 << 10
	a := subjects.AccountOf(m.Subject)
	out := nats.NewMsg(subjects.WaitingSubject(a))
	out.Data, out.Header = m.Data, CleanHeader(m.Header)
	for k, values := range m.Header {
		switch {
		case strings.EqualFold(k, HeaderPublication), strings.EqualFold(k, HeaderRedriven): // only we send something again
			delete(out.Header, k)
		case !strings.HasPrefix(strings.ToLower(k), "nats-"), strings.EqualFold(k, "Nats-Request-Info"): // the latter is the server's own
		case strings.EqualFold(k, HeaderMsgID):
			if len(values) != 1 || len(values[0]) > longestID {
				return nil, schemas.Invalidf(HeaderMsgID, "must be one value of at most %d bytes", longestID)
			}
			if values[0] != "" {
				out.Header.Set(HeaderMsgID, PublicationID(a, values[0]))
			}
		case strings.EqualFold(k, jetstream.ExpectedStreamHeader):
			if len(values) != 1 || values[0] != stream {
				return nil, schemas.Invalidf(jetstream.ExpectedStreamHeader, "must be %s", stream)
			}
		default:
			return nil, schemas.Invalidf(schemas.Quotable(k), "is not taken here: name a publication with %s alone", HeaderMsgID)
		}
	}
	return out, nil
}

// PublicationID returns the message id of a publication, made unique to the account.
func PublicationID(a schemas.AccountID, id string) string {
	h := sha256.Sum256([]byte(string(a) + "\x00" + id))
	return string(a) + "." + hex.EncodeToString(h[:16])
}

// CleanHeader removes headers that belong to the server or to the message's position: a copy sent elsewhere must not have them.
func CleanHeader(h nats.Header) nats.Header {
	out := nats.Header{}
	for k, v := range h {
		if !strings.HasPrefix(strings.ToLower(k), "nats-") {
			out[k] = v
		}
	}
	return out
}
