package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// DeadLetterForwarder turns messages that ran out of deliveries, because their process died each time, into dead letters. The server
// publishes one advisory for such a message, which a stream stores until it is handled here. A read of the work queue finds messages
// without an advisory. The publisher of a request gets call.rejected first.
//
// One per deployment is enough; several do no harm, since a dead letter is written once.
type DeadLetterForwarder struct {
	Bus *Bus
	Log *slog.Logger
	// Every is the time between two looks at the work queue. 0: a minute.
	Every time.Duration
}

// Run forwards until ctx ends, and returns nil then.
func (m *DeadLetterForwarder) Run(ctx context.Context) error {
	log := m.Log
	if log == nil {
		log = m.Bus.log
	}
	s := &forwarding{bus: m.Bus, log: log}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait.Sleep(ctx, orDefault(m.Every, time.Minute)) {
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				log.Warn("work queue not read, retrying", "error", err)
			}
		}
	}()
	o := ConsumeOptions{Name: "mover", Slots: 4, Grace: requestWithin, AckWait: 10 * requestWithin, MaxAttempts: 1000}
	err := notices.Consume(ctx, m.Bus, o, s.forward)
	<-done
	return err
}

// notices are what the server says about messages out of deliveries.
var notices = Topic[notice]{ //nolint:gochecknoglobals // a row of the table
	stream: streamAdv, decode: decodeNotice, filter: func(string) string { return "" },
}

// notice is the part of an advisory that counts.
type notice struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Seq        uint64 `json:"stream_seq"`
	Deliveries uint64 `json:"deliveries"`
}

// EventID names the message that the notice is about.
func (n notice) EventID() string { return letterID(n.Stream, n.Seq) }

func decodeNotice(_ string, _ Headers, data []byte) (notice, error) {
	var n notice
	if err := json.Unmarshal(data, &n); err != nil {
		return n, fmt.Errorf("notice of the server: %w", err)
	}
	if !subjects.IsToken(n.Stream) || !subjects.IsToken(n.Consumer) || n.Seq == 0 {
		return n, schemas.OpErrorf(schemas.Invalid, "notice of the server", "names no message")
	}
	return n, nil
}

type forwarding struct {
	bus *Bus
	log *slog.Logger
}

// forward stores the message of a notice as a dead letter. If the process dies in between, the notice is delivered again.
func (s *forwarding) forward(ctx context.Context, d Delivery[notice]) error {
	n := d.Value
	err := s.deadLetter(ctx, n, Certainty{Since: d.Arrived, Generation: d.Generation})
	if err != nil {
		return RetryAfter(5*time.Second, err)
	}
	return nil
}

func (s *forwarding) deadLetter(ctx context.Context, n notice, sure Certainty) error {
	stream, consumer, seq, deliveries := n.Stream, n.Consumer, n.Seq, n.Deliveries
	m, err := s.bus.reader.Get(ctx, stream, direct.Request{Seq: seq})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil // another process was faster, or it has aged out
	}
	if err != nil {
		return err
	}
	why := &schemas.Error{Code: schemas.Exhausted, Message: fmt.Sprintf(
		"handed out %d times without an end: each time its process died, or the log did not take the end", deliveries)}
	if stream == streamIntake { // first: its publisher must get the answer
		p := publicationOf(subjects.AccountOf(m.Subject), m.Subject, m.Time, Headers(m.Headers), m.Data)
		if err := Reject(ctx, s.bus, p, why, sure); err != nil {
			return err
		}
	}
	letter := schemas.DeadLetter{
		ID: letterID(stream, seq), Stream: stream, Subject: m.Subject, Consumer: consumer, Account: subjects.AccountOf(m.Subject),
		Reason: why.Message, Code: schemas.Exhausted,
		Deliveries: deliveries, First: m.Time.UTC(), Time: s.bus.Now(), Headers: m.Headers, Payload: m.Data,
	}
	if err := OpenDeadLetters(s.bus).write(ctx, letter); err != nil {
		return err
	}
	s.log.Warn("exhausted message forwarded to the dead letters", "stream", stream, "seq", seq)
	if stream == streamIntake { // it would lie in the work queue until it ages out
		return s.remove(ctx, stream, seq)
	}
	return nil
}

func (s *forwarding) remove(ctx context.Context, stream string, seq uint64) error {
	str, err := s.bus.jsBulk.Stream(ctx, stream)
	if err == nil {
		err = str.DeleteMsg(ctx, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return natserr.Coded("remove a message out of deliveries", err)
}

// intakeStuck is the age at which no process can still handle a request that was delivered: an IntakeConsumer ends each before. An older
// one ran out of deliveries, and there was no notice of it.
const intakeStuck = 8 * day

// look forwards requests that are stuck in the work queue to the dead letters. Usually it costs one read.
func (s *forwarding) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*requestWithin)
	defer cancel()
	first, err := s.bus.reader.Get(ctx, streamIntake, direct.Request{Seq: 1, Next: subjects.Intake + "*"})
	if errors.Is(err, schemas.ErrNotFound) || err == nil && s.bus.Now().Sub(first.Time) < intakeStuck {
		return nil
	}
	if err != nil {
		return err
	}
	stream, err := s.bus.jsBulk.Stream(ctx, streamIntake)
	if err != nil {
		return natserr.Coded("look through the work queue", err)
	}
	var delivered uint64
	var consumer string
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		if consumer == "" || c.Delivered.Stream > delivered {
			delivered, consumer = c.Delivered.Stream, c.Name
		}
	}
	if err := list.Err(); err != nil || consumer == "" {
		return natserr.Coded("look through the work queue", err)
	}
	page, _, err := s.bus.reader.GetPage(ctx, streamIntake, ">", 1, nil, 0)
	if err != nil {
		return err
	}
	for _, m := range page {
		if m.Seq > delivered || s.bus.Now().Sub(m.Time) < intakeStuck {
			return nil
		}
		n := notice{Stream: streamIntake, Consumer: consumer, Seq: m.Seq, Deliveries: DefaultMaxAttempts + sparedDeliveries}
		if err := s.deadLetter(ctx, n, s.bus.Certainty()); err != nil {
			return err
		}
	}
	return nil
}
