package streams

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

// Headers of a message that was put aside to wait for its turn, and has come again.
const (
	headerAside = "Sandjet-Aside" // how often it was handed out until then
	headerFirst = "Sandjet-First" // its first place on the log
)

// first returns the stream sequence that a message had before it was rescheduled, or its own.
func (m *message) first() uint64 {
	if m.Header.Get(jetstream.SchedulerHeader) == "" {
		return m.meta.Sequence.Stream
	}
	seq, err := strconv.ParseUint(m.Header.Get(headerFirst), 10, 64)
	if own := m.meta.Sequence.Stream; err != nil || seq == 0 || seq > own {
		return own
	}
	return seq
}

// attempt returns the number of deliveries of a message, including those before it was rescheduled.
func (m *message) attempt() int {
	const most = 1 << 30
	before := 0
	if m.Header.Get(jetstream.SchedulerHeader) != "" {
		n, err := strconv.Atoi(m.Header.Get(headerAside))
		if err == nil && n >= 0 && n <= most {
			before = n
		}
	}
	return before + int(min(m.meta.NumDelivered, most))
}

// origin classifies a delivery for the scheduler.
func (m *message) origin() fair.Origin {
	switch {
	case m.meta.NumDelivered > 1:
		return fair.Redelivered
	case m.attempt() > 1:
		return fair.FromSchedule
	}
	return fair.New
}

// putAside schedules another delivery of a message; afterwards the message can be acknowledged. If the process dies in between, there is a
// second delivery, which is marked as one.
func (t Topic[T]) putAside(ctx context.Context, b *Bus, m *message, at time.Time) error {
	next := nats.NewMsg(t.timer(m.Subject))
	next.Data, next.Header = m.Data, intake.CleanHeader(m.Header)
	next.Header.Set(headerAside, strconv.Itoa(m.attempt()))
	next.Header.Set(headerFirst, strconv.FormatUint(m.first(), 10))
	if err := b.capacity.room.Take(ctx, usage.Accepted, sizeOfMessage(next.Subject, next.Data)); err != nil {
		return err // while it stays in flight it takes no room
	}
	return b.writer.schedule(ctx, next, m.Subject, at)
}

// noteFired updates the account's usage when a rescheduled message arrives in its queue for the first time: the timer's message is gone
// then.
func (c *consuming[T]) noteFired(m *message) {
	if m.Header.Get(jetstream.SchedulerHeader) == "" || m.meta.NumDelivered > 1 {
		return
	}
	timer := c.topic.timer(m.Subject)
	c.bus.capacity.fired(timer, sizeOfMessage(timer, m.Data), m.meta.Timestamp)
}

// takeTurn queues a message until its account's turn, or naks it. It does not block.
func (c *consuming[T]) takeTurn(m *message, hold *hold) {
	done := func() {
		c.bus.progress.drop(hold)
		c.free.Give(1)
		c.inFlight.Done()
	}
	t := &fair.Message{Account: subjects.AccountOf(m.Subject), Seq: m.first(), Handled: m.whole()}
	if c.topic.due != nil && c.fair.Contended() {
		t.Due = c.topic.due(m.Header, m.Data, m.meta.Timestamp)
	}
	t.Begin = func() {
		defer done()
		defer func() { c.fair.Release(t, time.Now()) }()
		c.settle(m, t, c.consumeOne(m, hold))
	}
	t.Drop = func() {
		defer done()
		defer func() { c.fair.Release(t, time.Now()) }()
		c.bus.progress.drop(hold)
		c.refuse(m, fair.Redelivery{})
	}
	back, ok := c.fair.Admit(t, m.Size(), m.origin(), time.Now())
	switch {
	case ok:
		c.fair.Start()
	case back.Schedule: // the log has to confirm it
		c.pool.Go(func() {
			defer done()
			c.refuse(m, back)
		})
	default:
		defer done()
		c.bus.progress.drop(hold) // a sign of life would count as the time that it stays away
		c.refuse(m, back)
	}
}

// refuse naks a message for which there was no turn.
func (c *consuming[T]) refuse(m *message, back fair.Redelivery) {
	if err := c.redeliver(m, back); err != nil {
		c.bus.log.Debug("message not nak'ed, the server delivers it again", "error", err)
	}
}

// retry has a message redelivered after the delay that its handler asked for.
func (c *consuming[T]) retry(m *message, t *fair.Message, after time.Duration) error {
	if t == nil || c.hard.Err() != nil {
		return m.nak(after)
	}
	return c.redeliver(m, c.fair.Nak(t, after))
}

// redeliver has a message delivered again: by a nak, or by a scheduled message if the delay is long.
func (c *consuming[T]) redeliver(m *message, back fair.Redelivery) error {
	if !back.Schedule {
		return m.nak(back.After)
	}
	if err := c.topic.putAside(c.hard, c.bus, m, c.bus.Now().Add(back.After)); err != nil {
		c.bus.log.Debug("message not scheduled for later, it keeps its slot", "error", err)
		return m.nak(min(back.After, fair.MaxRedeliveryDelay))
	}
	return m.ack()
}

// lookAtQueue asks the log whether the queue has undelivered messages of accounts other than big.
func (c *consuming[T]) lookAtQueue(ctx context.Context, big schemas.AccountID) (fair.Backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	consumer, err := c.bus.jsBulk.Consumer(ctx, c.topic.stream, c.options.Name)
	if err != nil {
		return fair.Backlog{}, natserr.Coded("look at the queue "+c.options.Name, err)
	}
	info := consumer.CachedInfo()
	q := fair.Backlog{Crowded: info.NumAckPending > c.options.mostPending()/2}
	switch {
	case info.NumPending == 0:
		return q, nil
	case c.topic.of == nil: // what is done is removed: each subject that is left is an account
		n, err := c.bus.reader.SubjectCount(ctx, c.topic.stream)
		q.Others = n > 1
		return q, err
	}
	own := uint64(0)
	first, err := c.bus.reader.Get(ctx, c.topic.stream,
		direct.Request{Seq: info.Delivered.Stream + 1, Next: c.topic.of(c.options.Filter, subjects.OrNone(big)), Batch: 1})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
	case err != nil:
		return q, err
	default:
		if own, err = first.AndBehind(); err != nil {
			return q, err
		}
	}
	q.Others = info.NumPending > own
	return q, nil
}
