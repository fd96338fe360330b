package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// message is a delivered message with its place on the log.
type message struct {
	*nats.Msg

	conn *nats.Conn
	meta *nats.MsgMetadata
	// generation is that of the Bus from before the message was asked for.
	generation uint64
}

func newMessage(conn *nats.Conn, m *nats.Msg) (*message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read the place of a message: %w", err)
	}
	return &message{Msg: m, conn: conn, meta: meta}, nil
}

// The words of a verdict. They are sent without waiting for an answer: a word that is lost means
// that the message comes again.
func (m *message) ack() error        { return m.say("+ACK") }
func (m *message) term() error       { return m.say("+TERM") }
func (m *message) inProgress() error { return m.say("+WPI") }

func (m *message) nak(delay time.Duration) error {
	if delay <= 0 {
		return m.say("-NAK")
	}
	return m.say(fmt.Sprintf(`-NAK {"delay":%d}`, delay.Nanoseconds()))
}

func (m *message) say(word string) error {
	if err := m.conn.Publish(m.Reply, []byte(word)); err != nil {
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
		Account: accountOf(m.Subject), Reason: reason, Code: code, Deliveries: m.meta.NumDelivered,
		First: m.meta.Timestamp.UTC(), Time: now, Headers: m.Header, Payload: m.Data,
	}
}

func letterID(stream string, seq uint64) string { return fmt.Sprintf("%s.%d", stream, seq) }
