package streams

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/runs"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Stored says where a message was put.
type Stored struct {
	Cursor schemas.Cursor // of an event, with an empty epoch when that cannot be had now; else only Seq counts
	// Duplicate says that the same event id was there already and nothing was stored again. It may
	// be this very publish, repeated after its confirmation was lost.
	Duplicate bool
}

// Publish stores v and returns when the log has confirmed it. Codes: conflict ([Calls] whose id is there), exhausted (a quota), invalid,
// unavailable (also: the log is full). After unavailable or timeout it is unknown whether the message is stored: publish it again, which
// stores it once.
func (t Topic[T]) Publish(ctx context.Context, b *Bus, v T) error {
	_, err := t.Store(ctx, b, v)
	return err
}

// Store is Publish that also returns where v was stored.
func (t Topic[T]) Store(ctx context.Context, b *Bus, v T) (Stored, error) {
	m, err := t.message(ctx, b, v)
	if err != nil {
		return Stored{}, err
	}
	if s := b.options.Server; s != nil && t.stream == streamCalls { // only new calls are refused, events of accepted ones are retried
		if err := s.Refusing(); err != nil {
			return Stored{}, err
		}
	}
	if b.group != nil && t.expect != nil && t.stream == streamCalls { // a batch is of one stream
		return b.group.store(ctx, m)
	}
	stored, err := b.writer.store(ctx, m)
	if err == nil && t.stream == "" {
		stored.Cursor.Mark = schemas.MarkOf(v.EventID())
		stored.Cursor.Epoch, _ = b.reader.Epoch(ctx, t.streamOf(m.Subject)) // it is stored even without an epoch
	}
	return stored, err
}

// writer stores messages over one connection. It is safe for concurrent use.
type writer struct {
	acks     *acks.Publisher
	trouble  *trouble
	capacity *capacity
}

// store publishes one message and waits for the confirmation.
func (w *writer) store(ctx context.Context, m *nats.Msg) (Stored, error) {
	ack, err := w.acks.Publish(ctx, m)
	if err != nil {
		w.trouble.failed(m.Subject, err, ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded))
		return Stored{}, natserr.Coded("publish", err)
	}
	w.trouble.wrote(m.Subject)
	if !ack.Duplicate {
		w.capacity.wrote(m.Subject, sizeOfMessage(m.Subject, m.Data))
	}
	return Stored{Cursor: schemas.Cursor{Seq: ack.Seq}, Duplicate: ack.Duplicate}, nil
}

// schedule stores a message that the server publishes to a subject of the same stream at a time.
func (w *writer) schedule(ctx context.Context, m *nats.Msg, subject string, at time.Time) error {
	// the client's own option cuts off what is not a whole second
	m.Header.Set(jetstream.ScheduleHeader, "@at "+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(jetstream.ScheduleTargetHeader, subject)
	_, err := w.store(ctx, m)
	return err
}

// expectLast makes a publish conditional: the last message of a subject, which may have wildcards, must have the sequence; 0: there must
// be none.
func expectLast(m *nats.Msg, seq uint64, subject string) {
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(seq, 10))
	m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, subject)
}

// Future is an unconfirmed publish.
type Future struct {
	ack     jetstream.PubAckFuture
	trouble *trouble
}

// Wait returns when the log has confirmed or refused, or ctx has ended.
func (f Future) Wait(ctx context.Context) error {
	select {
	case <-f.ack.Ok():
		f.trouble.wrote(f.ack.Msg().Subject)
		return nil
	case err := <-f.ack.Err():
		f.trouble.failed(f.ack.Msg().Subject, err, errors.Is(err, jetstream.ErrAsyncPublishTimeout))
		return natserr.Coded("publish", err)
	case <-ctx.Done():
		return natserr.Coded("publish", ctx.Err())
	}
}

// PublishAsync sends v and returns before it is confirmed. At most 1024 publishes of a Bus are unconfirmed at a time; beyond that it waits
// up to five seconds. Messages are stored in the order in which they are sent. Payloads for the object store are stored there before it
// returns.
func (t Topic[T]) PublishAsync(ctx context.Context, b *Bus, v T) (Future, error) {
	m, err := t.message(ctx, b, v)
	if err != nil {
		return Future{}, err
	}
	f, err := b.js.PublishMsgAsync(m, jetstream.WithStallWait(requestWithin))
	if err != nil {
		return Future{}, natserr.Coded("publish", err)
	}
	b.capacity.wrote(m.Subject, sizeOfMessage(m.Subject, m.Data))
	return Future{f, &b.trouble}, nil
}

// message returns the message for v, with its conditions.
func (t Topic[T]) message(ctx context.Context, b *Bus, v T) (*nats.Msg, error) {
	subject, err := t.subject(b, v)
	if err != nil {
		return nil, err
	}
	data, err := t.encode(v)
	if err != nil {
		return nil, err
	}
	if err := b.capacity.admit(ctx, t.work, subject, sizeOfMessage(subject, data)); err != nil {
		return nil, err
	}
	m := nats.NewMsg(subject)
	m.Data = data
	if r, ok := any(v).(Raw); ok {
		m.Header = intake.CleanHeader(nats.Header(r.Header))
	}
	if trace := traceOf(v); trace != "" {
		m.Header.Set(headerTrace, trace)
	}
	if err := b.payloads.Offload(ctx, t.streamOf(subject), m); err != nil {
		return nil, err
	}
	if t.summary != nil && m.Header.Get(payloads.Header) != "" {
		if s := t.summary(v); s != "" {
			m.Header.Set(payloads.HeaderSummary, s)
		}
	}
	if t.outline != nil && m.Header.Get(payloads.Header) != "" {
		m.Header.Set(runs.HeaderOutline, t.outline(v))
	}
	if id := v.EventID(); t.once && id != "" {
		m.Header.Set(jetstream.MsgIDHeader, id)
	}
	if t.expect != nil {
		expectLast(m, 0, t.expect(v))
	}
	return m, nil
}

// streamOf returns the name of the stream that has the subject.
func (t Topic[T]) streamOf(subject string) string {
	if t.stream != "" {
		return t.stream
	}
	return subjects.StreamOfEvents(subject)
}

// Reply sends data to an inbox that a tenant named. The inbox begins with "_INBOX." and is then looked for among the tenant's own
// connections only (embedded server), or with "sandjet.reply.<account>." or "_INBOX_<account>.", which permissions keep to the tenant
// (servers outside). There may be no listener: that is no error.
func (b *Bus) Reply(_ context.Context, a schemas.AccountID, inbox string, data []byte) error {
	subject, err := subjects.InboxSubject(a, inbox)
	if err != nil {
		return err
	}
	if err := b.publish.Publish(subject, data); err != nil {
		return natserr.Coded("reply", err)
	}
	return nil
}
