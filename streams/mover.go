package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

// Mover brings to the dead letters what ran out of deliveries without anybody to say so: each time
// its process died. The server tells of such a message once; a stream keeps that notice until a
// mover reads it. A sweep finds in the work queue what no notice told.
//
// One per deployment is enough, more do no harm.
type Mover struct {
	Bus *Bus
	Log *slog.Logger
	// Every is the time between two sweeps. 0: a minute.
	Every time.Duration
}

// Run moves until ctx ends, and returns nil then.
func (m *Mover) Run(ctx context.Context) error {
	log := m.Log
	if log == nil {
		log = m.Bus.log
	}
	s := &moving{bus: m.Bus, log: log}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, orDefault(m.Every, time.Minute)) {
			if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
				log.Warn("sweep of the work queue failed", "error", err)
			}
		}
	}()
	err := notices.Consume(ctx, m.Bus, ConsumeOptions{Name: "mover", Slots: 4, Grace: requestWithin, AckWait: 10 * requestWithin, MaxAttempts: 1000}, s.move)
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
	if !plain(n.Stream) || !plain(n.Consumer) || n.Seq == 0 {
		return n, schemas.Errorf(schemas.Invalid, "notice of the server", "names no message")
	}
	return n, nil
}

type moving struct {
	bus *Bus
	log *slog.Logger
	// stuck is what the last sweep counted, to act on what is seen twice only.
	stuck uint64
}

// move buries the message of a notice. If the process dies in between, the notice comes again.
func (s *moving) move(ctx context.Context, d Delivery[notice]) error {
	n := d.Value
	err := s.bury(ctx, n.Stream, n.Consumer, n.Seq, n.Deliveries)
	if err != nil {
		return RetryAfter(5*time.Second, err)
	}
	return nil
}

func (s *moving) bury(ctx context.Context, stream, consumer string, seq, deliveries uint64) error {
	m, err := s.bus.getOne(ctx, stream, getRequest{Seq: seq})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil // somebody was faster, or it has aged out
	}
	if err != nil {
		return err
	}
	letter := schemas.DeadLetter{
		ID: letterID(stream, seq), Stream: stream, Subject: m.subject, Consumer: consumer, Account: accountOf(m.subject),
		Reason:     fmt.Sprintf("handed out %d times and never finished: each time its process ended", deliveries),
		Code:       schemas.Exhausted,
		Deliveries: deliveries, First: m.time.UTC(), Time: time.Now().UTC(), Headers: m.headers, Payload: m.data,
	}
	if err := s.bus.bury(ctx, letter); err != nil {
		return err
	}
	s.log.Warn("a message out of deliveries was brought to the dead letters", "stream", stream, "seq", seq)
	if stream == streamIntake { // it would lie in the work queue until it ages out
		return s.remove(ctx, stream, seq)
	}
	return nil
}

func (s *moving) remove(ctx context.Context, stream string, seq uint64) error {
	str, err := s.bus.jsBulk.Stream(ctx, stream)
	if err == nil {
		err = str.DeleteMsg(ctx, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return coded("remove a message out of deliveries", err)
}

// sweep looks for messages in the work queue that its consumer neither waits for nor will be handed:
// they ran out of deliveries and no notice told. Two sweeps must see the same.
func (s *moving) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*requestWithin)
	defer cancel()
	stream, err := s.bus.jsBulk.Stream(ctx, streamIntake)
	if err != nil {
		return coded("sweep", err)
	}
	var pending, floor uint64
	var consumer string
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		pending += c.NumPending + uint64(max(c.NumAckPending, 0))
		floor, consumer = max(floor, c.Delivered.Stream), c.Name
	}
	if err := list.Err(); err != nil {
		return coded("sweep", err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return coded("sweep", err)
	}
	before := s.stuck
	s.stuck = 0
	if consumer == "" || info.State.Msgs <= pending {
		return nil
	}
	s.stuck = info.State.Msgs - pending
	if before == 0 {
		return nil
	}
	return s.collect(ctx, consumer, floor, min(before, s.stuck))
}

// collect buries the stuck messages: the oldest ones, of which the consumer must have tried each as
// often as it may. What is in its hands is younger or counted as pending.
func (s *moving) collect(ctx context.Context, consumer string, delivered, n uint64) error {
	page, _, err := s.bus.getPage(ctx, streamIntake, prefixIntake+"*", 1, nil, 0)
	if err != nil {
		return err
	}
	const old = 2 * time.Minute // older than any hold of the consumer without a sign of life
	for _, m := range page {
		if n == 0 || m.seq > delivered || time.Since(m.time) < old {
			return nil
		}
		if err := s.bury(ctx, streamIntake, consumer, m.seq, DefaultMaxAttempts+sparedDeliveries); err != nil {
			return err
		}
		n--
	}
	return nil
}
