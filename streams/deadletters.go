package streams

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/subjects"
)

// DeadLetters are the messages that failed for good: people list them, read them and send them again.
type DeadLetters struct{ bus *Bus }

// OpenDeadLetters returns the dead letters of the log.
func OpenDeadLetters(b *Bus) *DeadLetters { return &DeadLetters{bus: b} }

// write stores a dead letter. Repeating it has no further effect.
func (l *DeadLetters) write(ctx context.Context, d schemas.DeadLetter) error {
	if l.bus.faults.noDeadLetters {
		return schemas.OpErrorf(schemas.Unavailable, "dead-letter", "a fault of the test")
	}
	have, err := l.has(ctx, d)
	if err != nil || have {
		return err
	}
	if h := nats.Header(d.Headers); h.Get(payloads.Header) != "" && d.Stream != streamIntake {
		// The letter outlives the payload that the message names: it gets its own copy.
		data, err := l.bus.payloads.Whole(ctx, d.Stream, h, d.Payload, d.First)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		if err != nil { // it has aged out: what is left of a call is enough to end it
			data = []byte(h.Get(payloads.HeaderSummary))
		}
		d.Payload = data
	}
	h := intake.CleanHeader(nats.Header(d.Headers))
	if d.Stream == streamIntake && h.Get(intake.HeaderPublication) == "" {
		h.Set(intake.HeaderPublication, publicationNote(d.First, Headers(d.Headers).Get(intake.HeaderMsgID)))
	}
	d.Headers = map[string][]string(h)
	delete(d.Headers, payloads.Header)
	delete(d.Headers, payloads.HeaderSize)
	return Dead.Publish(ctx, l.bus, d)
}

// has reports whether the letter is there already, from another try or another process.
func (l *DeadLetters) has(ctx context.Context, d schemas.DeadLetter) (bool, error) {
	subject, err := deadPlace(l.bus, d)
	if err != nil {
		return false, err
	}
	m, err := l.bus.reader.GetLast(ctx, streamDead, subject)
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	there, err := l.head(ctx, m)
	if err != nil {
		return false, err
	}
	return there.First.Equal(d.First), nil
}

// letterLog writes lines about dead letters. It is safe for concurrent use.
type letterLog struct {
	logger *slog.Logger
	lines  sometimes.Counted
}

// log logs that a message has become a dead letter. An account whose messages all do, of which there may be thousands, gets one line a
// minute for each consumer and code, with the number of those that were left out; at the level of debugging they are there.
func (l *letterLog) log(m *message, consumer string, err error) {
	level, attrs := slog.LevelWarn, []any{"stream", m.meta.Stream, "seq", m.meta.Sequence.Stream, "attempt", m.meta.NumDelivered, "error", err}
	switch leftOut, due := l.lines.Due(consumer + " " + string(subjects.AccountOf(m.Subject)) + " " + string(schemas.CodeOf(err))); {
	case !due:
		level = slog.LevelDebug
	case leftOut > 0:
		attrs = append(attrs, "left_out", leftOut)
	}
	l.logger.Log(context.Background(), level, "message dead-lettered", attrs...)
}

// List returns the latest letters, the latest first and without their payloads, which may be very large: of one stream, or of all when
// stream is empty; at most limit, or all when it is 0.
func (l *DeadLetters) List(ctx context.Context, stream string, limit int) ([]schemas.DeadLetter, error) {
	_, subject, err := Dead.source(l.bus, stream)
	if err != nil {
		return nil, err
	}
	var list []schemas.DeadLetter
	for next, more := uint64(1), true; more; {
		var page []direct.Message
		page, more, err = l.bus.reader.GetPage(ctx, streamDead, subject, next, nil, 0)
		if err != nil {
			return nil, err
		}
		more = more && len(page) > 0
		for _, m := range page {
			next = m.Seq + 1
			d, err := l.head(ctx, m)
			switch code := schemas.CodeOf(err); {
			case err == nil:
				list = append(list, d)
			case code == schemas.Unavailable || ctx.Err() != nil:
				return nil, err
			default:
				l.bus.log.Error("dead letter not readable, skipped", "seq", m.Seq, "error", err)
			}
		}
		if limit > 0 && len(list) > 2*limit {
			list = slices.Delete(list, 0, len(list)-limit)
		}
	}
	slices.Reverse(list)
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, nil
}

// head reads a letter without its payload: if that is in the object store, from a header of the message. Letters of older versions lack
// the header and are read whole.
func (l *DeadLetters) head(ctx context.Context, m direct.Message) (schemas.DeadLetter, error) {
	var d schemas.DeadLetter
	if head := m.Headers.Get(payloads.HeaderSummary); head != "" && m.Headers.Get(payloads.Header) != "" && json.Unmarshal([]byte(head), &d) == nil {
		return d, nil
	}
	e, err := Dead.entry(ctx, l.bus, "", m)
	return e.Value.WithoutPayload(), err
}

// letterSummary is the header of a letter whose payload is in the object store.
func letterSummary(d schemas.DeadLetter) string {
	const mostReason = 1 << 10
	d = d.WithoutPayload()
	d.Headers, d.Reason = nil, schemas.CutText(d.Reason, mostReason, mostReason)
	head, err := json.Marshal(d) // in ASCII but for letters, without line breaks
	if err != nil {
		return ""
	}
	return string(head)
}

// Show returns one letter. Code: not_found.
func (l *DeadLetters) Show(ctx context.Context, id string) (schemas.DeadLetter, error) {
	m, err := l.find(ctx, id)
	if err != nil {
		return schemas.DeadLetter{}, err
	}
	e, err := Dead.entry(ctx, l.bus, "", m)
	return e.Value, err
}

func (l *DeadLetters) find(ctx context.Context, id string) (direct.Message, error) {
	stream, seq, ok := strings.Cut(id, ".")
	if _, err := strconv.ParseUint(seq, 10, 64); !ok || err != nil || !subjects.IsToken(stream) {
		return direct.Message{}, schemas.Invalidf("id", "%q is not the id of a dead letter: want <stream>.<sequence>", schemas.Quotable(id))
	}
	m, err := l.bus.reader.GetLast(ctx, streamDead, subjects.Dead+stream+".*."+seq)
	if errors.Is(err, schemas.ErrNotFound) {
		return direct.Message{}, schemas.Errorf(schemas.NotFound, "there is no dead letter %q: letters are kept for 30 days", schemas.Quotable(id))
	}
	return m, err
}

// Redrive sends a letter's message to its stream again and removes the letter. A call that has a result is not run again: its worker finds
// the result. A delivery has all its tries again. A publication names the call that it named at first, so it is one call however often its
// letter is redriven. Codes: not_found, conflict (a call of that id was admitted since). After unavailable it may have been sent; a repeat
// soon afterwards is dropped as a duplicate.
func (l *DeadLetters) Redrive(ctx context.Context, id string) error {
	at, err := l.find(ctx, id)
	if err != nil {
		return err
	}
	e, err := Dead.entry(ctx, l.bus, "", at)
	if err != nil {
		return err
	}
	if err := l.resend(ctx, e.Value); err != nil {
		return err
	}
	return l.remove(ctx, at.Seq)
}

// resend sends a letter's message to where it was.
func (l *DeadLetters) resend(ctx context.Context, d schemas.DeadLetter) error {
	m := nats.NewMsg(d.Subject)
	m.Data, m.Header = d.Payload, intake.CleanHeader(nats.Header(d.Headers))
	m.Header.Set(intake.HeaderRedriven, d.ID)
	o := []jetstream.PublishOpt{jetstream.WithMsgID("redrive." + d.ID)}
	switch d.Stream {
	case streamIntake:
		m.Subject = subjects.WaitingSubject(subjects.AccountOf(d.Subject)) // which was another one once
		if m.Header.Get(intake.HeaderPublication) == "" {                  // a letter of an older version does not say it
			m.Header.Set(intake.HeaderPublication, publicationNote(d.First, ""))
		}
	case streamDeliver:
		v, err := Deliveries.decode(d.Subject, nil, d.Payload)
		if err != nil {
			return err
		}
		if m.Data, err = Deliveries.encode(v.Again(l.bus.Now())); err != nil {
			return err
		}
	case streamCalls:
		seq, err := l.callPlace(ctx, d)
		if err != nil {
			return err
		}
		o = []jetstream.PublishOpt{jetstream.WithExpectLastSequenceForSubject(seq, d.Subject)}
	default:
		return schemas.OpErrorf(schemas.Unsupported, "redrive", "messages of %s cannot be sent again", schemas.Quotable(d.Stream))
	}
	if err := l.bus.payloads.Offload(ctx, d.Stream, m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	_, err := acks.PublishDecided(ctx, l.bus.js, m, o...)
	return natserr.Coded("redrive", err)
}

// callPlace returns the sequence that the call's stored message must have to be replaced: that of the failed message, or 0 if it has aged
// out.
func (l *DeadLetters) callPlace(ctx context.Context, d schemas.DeadLetter) (uint64, error) {
	have, err := l.bus.reader.GetLast(ctx, streamCalls, d.Subject)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case letterID(streamCalls, have.Seq) == d.ID, have.Headers.Get(intake.HeaderRedriven) == d.ID:
		return have.Seq, nil
	}
	return 0, schemas.OpErrorf(schemas.Conflict, "redrive", "a call of this id was admitted again since: it is the one that counts")
}

func (l *DeadLetters) remove(ctx context.Context, seq uint64) error {
	s, err := l.bus.jsBulk.Stream(ctx, streamDead)
	if err == nil {
		err = s.DeleteMsg(ctx, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return natserr.Coded("remove a dead letter", err)
}
