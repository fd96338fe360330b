package streams

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// message is a delivered message with its place on the log.
type message struct {
	*nats.Msg

	bus  *Bus
	meta *nats.MsgMetadata
	// generation is that of the Bus from before the message was asked for.
	generation uint64
	// confirmed is the generation of the Bus up to which the log is known to have this message at its sequence.
	confirmed atomic.Uint64
}

// whole returns how many bytes the message has with its payload.
func (m *message) whole() int {
	if size, away := m.bus.payloads.Away(m.meta.Stream, m.Header); away {
		return size
	}
	return m.Size()
}

// newMessage returns a message that was delivered while the Bus had a generation.
func newMessage(b *Bus, m *nats.Msg, generation uint64) (*message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read the place of a message: %w", err)
	}
	out := &message{Msg: m, bus: b, meta: meta, generation: generation}
	out.confirmed.Store(generation)
	return out, nil
}

// errReplaced says that the log has no such message any more, and may have another at its sequence.
var errReplaced = errors.New("the log does not have this message any more")

// inPlace reports whether the log is known to have the message at its sequence. It does not block.
func (m *message) inPlace() bool { return m.confirmed.Load() == m.bus.Generation() }

// confirm reads from the log whether it still has the message, if the connection was lost since that was known: a stream that was
// recreated, or lost its end, may have another message at its sequence, and the server knows a message that it has delivered by its
// sequence alone. It blocks for that read. [errReplaced]: the message is gone.
func (m *message) confirm(ctx context.Context) error {
	generation := m.bus.Generation()
	if m.confirmed.Load() == generation {
		return nil
	}
	at, err := m.bus.reader.GetNewest(ctx, m.meta.Stream, direct.Request{Seq: m.meta.Sequence.Stream})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return errReplaced
	case err != nil:
		return err
	case at.Subject != m.Subject || !at.Time.Equal(m.meta.Timestamp):
		return errReplaced
	}
	m.confirmed.Store(generation)
	return nil
}

// The words of a verdict. They are sent without waiting for an answer: a word that is lost means
// that the message comes again. After a loss of the connection they block until it is confirmed that they are said of
// this message and not of another at its sequence; of one that is gone nothing is said.
func (m *message) ack() error  { return m.say("+ACK") }
func (m *message) term() error { return m.say("+TERM") }

// inProgress does not block. It must be called only while the message is in its place.
func (m *message) inProgress() error { return m.send("+WPI") }

func (m *message) nak(delay time.Duration) error {
	if delay <= 0 {
		return m.say("-NAK")
	}
	return m.say(fmt.Sprintf(`-NAK {"delay":%d}`, delay.Nanoseconds()))
}

// say sends a word. Where the connection was lost it blocks for [requestWithin] at most, until the server is reached again.
func (m *message) say(word string) error {
	if m.inPlace() {
		if err := m.send(word); err == nil {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.bus.ctx), requestWithin)
	defer cancel()
	for try := 1; ; try++ {
		err := m.confirm(ctx)
		if errors.Is(err, errReplaced) {
			m.bus.log.Debug("message not acknowledged, the log does not have it any more", "stream", m.meta.Stream, "seq", m.meta.Sequence.Stream)
			return nil
		}
		if err == nil {
			err = m.send(word)
		}
		if err == nil || !(wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}).Sleep(ctx, try) {
			return err
		}
	}
}

func (m *message) send(word string) error {
	if err := m.bus.work.Publish(m.Reply, []byte(word)); err != nil {
		return fmt.Errorf("send %s to the log: %w", word, err)
	}
	return nil
}

// letter is the dead letter of a message for the reason err.
func (m *message) letter(consumer string, err error, now time.Time) schemas.DeadLetter {
	const longest = 4 << 10
	reason := err.Error()
	if r, ok := errors.AsType[retryAfter](err); ok {
		reason = r.err.Error()
	}
	if len(reason) > longest {
		reason = reason[:longest] + "…"
	}
	code := schemas.CodeOf(err)
	if errors.Is(err, context.Canceled) {
		code = schemas.Interrupted
	}
	return schemas.DeadLetter{
		ID: letterID(m.meta.Stream, m.meta.Sequence.Stream), Stream: m.meta.Stream, Subject: m.Subject, Consumer: consumer,
		Account: subjects.AccountOf(m.Subject), Reason: reason, Code: code, Deliveries: m.meta.NumDelivered,
		First: m.meta.Timestamp.UTC(), Time: now, Headers: m.Header, Payload: m.Data,
	}
}

func letterID(stream string, seq uint64) string { return fmt.Sprintf("%s.%d", stream, seq) }
