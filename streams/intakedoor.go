package streams

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
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// The stream that publications wait in belongs to all accounts, and so does everything that a NATS server reveals or decides by the headers
// of a publication: message ids that were seen, sequences that are expected. So no client publishes to it directly. The door takes what
// clients publish on sandjet.calls.auto.<account>, by JetStream's own rules for the publisher, and stores it under the account: the id of a
// message is the account's own, and headers that compare with the messages of others are refused.

// headerMsgID names a publication. Under the account it makes two of them one.
const headerMsgID = jetstream.MsgIDHeader

// intakeSlots is how many publications of all accounts are on their way into the log.
const intakeSlots = 256

// intakeDoor accepts publications of clients, over a connection of its own.
type intakeDoor struct {
	conn  *nats.Conn
	js    jetstream.JetStream
	turns *fair.Queue[*nats.Msg]
	admit func(a schemas.AccountID, n int64) error // whether so many bytes may be kept; it does not wait
	warn  func(msg string, args ...any)
	sub   *nats.Subscription
}

// openIntakeDoor accepts publications from its return on. They are stored while run runs.
func openIntakeDoor(conn *nats.Conn, s fair.Shares, admit func(schemas.AccountID, int64) error, warn func(string, ...any)) (*intakeDoor, error) {
	const op = "open the door for publications"
	s.Slots = orDefault(s.Slots, intakeSlots)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(asyncInFlight), jetstream.WithPublishAsyncTimeout(requestWithin))
	if err != nil {
		return nil, natserr.Coded(op, err)
	}
	d := &intakeDoor{conn: conn, js: js, turns: fair.NewQueue[*nats.Msg](s), admit: admit, warn: warn}
	// Several processes share the work; a publication is taken by one of them.
	if d.sub, err = conn.QueueSubscribe(subjects.Intake+"*", sharedQueue, d.arrive); err != nil {
		return nil, natserr.Coded(op, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestWithin)
	defer cancel()
	if err := conn.FlushWithContext(ctx); err != nil {
		return nil, natserr.Coded(op, err)
	}
	return d, nil
}

// doorGrace is how long publications that are on their way into the log may take when the door closes. Behind it
// may be a log that cannot write, and is waited for to be started again.
const doorGrace = time.Second

// run stores publications until ctx ends, and returns when those in flight are confirmed or refused.
func (d *intakeDoor) run(ctx context.Context) {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(doorGrace, end) })()
	var inFlight sync.WaitGroup
	d.turns.Run(ctx, func(m *nats.Msg, done func()) { d.store(over, &inFlight, m, done) }, d.refuse)
	if err := d.sub.Unsubscribe(); err != nil && d.conn.Status() == nats.CONNECTED {
		d.warn("the subscription of the door for publications was not ended", "error", err)
	}
	inFlight.Wait()
}

// arrive is called by the subscription, which all accounts share. It never blocks.
func (d *intakeDoor) arrive(m *nats.Msg) {
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
func (d *intakeDoor) store(over context.Context, inFlight *sync.WaitGroup, m *nats.Msg, done func()) {
	stored, err := intakeMessage(m)
	if err == nil {
		err = d.admit(subjects.AccountOf(m.Subject), sizeOfMessage(stored.Subject, stored.Data))
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
				"the log has not confirmed it before this process closed: publish it again, under the same %s if it has one", headerMsgID))
		}
	})
}

// again stores a publication while an earlier one with the same id is still in process.
func (d *intakeDoor) again(ctx context.Context, m, stored *nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
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
func (d *intakeDoor) confirm(m *nats.Msg, ack *jetstream.PubAck) {
	d.answer(m, pubAck{Stream: streamIntake, Sequence: uint64(max(time.Now().UnixMilli(), 1)), Duplicate: ack.Duplicate})
}

func (d *intakeDoor) refuse(m *nats.Msg, err error) {
	d.answer(m, pubAck{Stream: streamIntake, Error: refusalOf(err)})
}

func (d *intakeDoor) answer(m *nats.Msg, a pubAck) {
	if m.Reply == "" {
		return
	}
	body, err := schemas.EncodeJSON(a)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil && d.conn.Status() == nats.CONNECTED {
		d.warn("answer to publisher not sent", "subject", m.Subject, "error", err)
	}
}

// refusalOf describes an error as a JetStream server would.
func refusalOf(err error) *jetstream.APIError {
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

// intakeMessage returns the message to store for a publication. It is pure. Code: invalid.
func intakeMessage(m *nats.Msg) (*nats.Msg, error) {
	const longestID = 1 << 10
	a := subjects.AccountOf(m.Subject)
	out := nats.NewMsg(subjects.WaitingSubject(a))
	out.Data, out.Header = m.Data, clean(m.Header)
	for k, values := range m.Header {
		switch {
		case strings.EqualFold(k, headerPublication), strings.EqualFold(k, headerRedriven): // only we send something again
			delete(out.Header, k)
		case !strings.HasPrefix(strings.ToLower(k), "nats-"), strings.EqualFold(k, "Nats-Request-Info"): // the latter is the server's own
		case strings.EqualFold(k, headerMsgID):
			if len(values) != 1 || len(values[0]) > longestID {
				return nil, schemas.Invalidf(headerMsgID, "must be one value of at most %d bytes", longestID)
			}
			if values[0] != "" {
				out.Header.Set(headerMsgID, publicationID(a, values[0]))
			}
		case strings.EqualFold(k, jetstream.ExpectedStreamHeader):
			if len(values) != 1 || values[0] != streamIntake {
				return nil, schemas.Invalidf(jetstream.ExpectedStreamHeader, "must be %s", streamIntake)
			}
		default:
			return nil, schemas.Invalidf(schemas.Quotable(k), "is not taken here: name a publication with %s alone", headerMsgID)
		}
	}
	return out, nil
}

// publicationID returns the message id of a publication, made unique to the account.
func publicationID(a schemas.AccountID, id string) string {
	h := sha256.Sum256([]byte(string(a) + "\x00" + id))
	return string(a) + "." + hex.EncodeToString(h[:16])
}

// IntakeDoor accepts what clients of an outside server publish on sandjet.calls.auto.<account>. An embedded server has one of its own. Any
// number of processes may run it; while none does, publications are not confirmed.
type IntakeDoor struct {
	Bus    *Bus
	Shares fair.Shares
}

// Run accepts publications until ctx ends, then returns nil. While the log is unavailable it waits.
func (i IntakeDoor) Run(ctx context.Context) error {
	var d *intakeDoor
	err := i.Bus.insist(ctx, "intake", func() error {
		conn, err := i.Bus.dial(ctx, "intake")
		if err != nil {
			return err
		}
		if d, err = openIntakeDoor(conn, i.Shares, i.Bus.capacity.admitPublication, i.Bus.log.Warn); err != nil {
			conn.Close()
		}
		return err
	})
	if d == nil {
		return unlessEnded(ctx, err)
	}
	defer d.conn.Close()
	d.run(ctx)
	flush(d.conn) // the last answers
	return nil
}

// unlessEnded returns err, or nil when ctx has ended: not starting is no error then.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // as said
	}
	return err
}

// flush waits briefly until what was published has reached the server. It is used where a failure has no consequence. The client library's
// own timeouts would share timers between connections.
func flush(conn *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.FlushWithContext(ctx)
}
