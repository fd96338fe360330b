package streams

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/gopool"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Defaults of [ConsumeOptions].
const (
	DefaultMaxAttempts = 20
	DefaultAckWait     = 3 * time.Second

	// ManyPending is the MaxPending of those who have accounts take turns.
	ManyPending = 100_000

	// sparedDeliveries is how many deliveries the server has beyond ours: tries to dead-letter a message.
	sparedDeliveries = 5
	maxAckPending    = 20_000
	maxWaiting       = 4096
)

// ConsumeOptions say what to consume and how.
type ConsumeOptions struct {
	// Name is the durable's: all that consume under one name share the messages.
	Name string
	// Filter narrows the topic; see each topic. Empty: all.
	Filter string
	// Slots is how many messages are in flight at most. 0: 1.
	Slots int
	// Grace is how long handlers may continue once ctx has ended; then their contexts end too.
	Grace time.Duration
	// AckWait is how long the server waits for a sign of life before it hands a message to another;
	// the sign is given at a third of it. Counts when the durable is made. 0: 3 s.
	AckWait time.Duration
	// MaxAttempts is how often a message is tried. 0: 20.
	MaxAttempts int
	// MaxPending is how many messages may be in flight or wait for their next try, of all that consume under the name; with more, none is
	// handed out. 0: 20,000.
	MaxPending int
	// Turns makes accounts take turns: behind any number of messages of one account, those of others are found and get a slot. Messages of an
	// account above its share are nak'ed meanwhile, to be redelivered about when there is a slot for them; thousands wait on the log itself,
	// where the topic has timers. That uses up attempts, so it needs a MaxAttempts that is out of reach.
	Turns bool
}

// Delivery is one message in flight.
type Delivery[T schemas.Eventer] struct {
	Value     T
	Attempt   int // 1 at the first delivery; a message that was put aside keeps its count
	Subject   string
	Account   schemas.AccountID // from the subject; empty where it has none
	Published time.Time         // by the server's clock
	Seq       uint64            // in its stream
	Headers   Headers
	// Late reports whether our signs of life may have come too late, so that the server may have
	// given the message to another.
	Late func() bool
	// Arrived is when this process received the message.
	Arrived clock.Reading
	// Generation is that of the Bus from before the message was asked for: while [Bus.Generation] is the same,
	// the server has held this process for living all the time.
	Generation uint64
}

// retryAfter is the verdict of [RetryAfter].
type retryAfter struct {
	delay time.Duration
	err   error
}

func (r retryAfter) Error() string { return r.err.Error() }
func (r retryAfter) Unwrap() error { return r.err }

// RetryAfter is the verdict that the message is redelivered after d because of err. It counts as an attempt. The message stays in flight
// during the delay, so use it for seconds, not for hours.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = schemas.Errorf(schemas.Unavailable, "to be tried again")
	}
	return retryAfter{delay: max(d, 0), err: err}
}

// terminateError is the verdict of [Terminate].
type terminateError struct{ error }

func (g terminateError) Unwrap() error { return g.error }

// Terminate is the verdict that the message becomes a dead letter because of err, also if the code of err is one that is usually retried.
func Terminate(err error) error { return terminateError{err} }

// Consume passes messages to handle until ctx ends; then it takes no more, gives handlers in flight the grace, cancels the context of the
// rest, waits for all and returns nil. It creates the durable consumer if there is none, and again if it is deleted; while the log is
// unavailable it waits. It returns an error only when the log refuses the durable as wrong.
//
// The handler's return value is the verdict: nil acknowledges; [RetryAfter], a retryable code or the end of its context has the message
// redelivered, up to MaxAttempts; [Terminate] and anything else ends it among the dead letters with its reason. While the handler runs, the log
// gets progress acks. Handlers run at the same time, each in a goroutine of its own; messages start in the order of the log. A panic of the
// handler counts as an internal error.
func (t Topic[T]) Consume(ctx context.Context, b *Bus, o ConsumeOptions, handle func(context.Context, Delivery[T]) error) error {
	if t.filter == nil || t.stream == "" {
		return schemas.OpErrorf(schemas.Unsupported, "consume", "this topic is replayed, not consumed")
	}
	if !subjects.IsToken(o.Name) || o.Filter != "" && !subjects.IsToken(o.Filter) {
		return schemas.Invalidf("name", "%q with filter %q cannot name a consumer", schemas.Quotable(o.Name), schemas.Quotable(o.Filter))
	}
	o.Slots, o.MaxAttempts = max(o.Slots, 1), orDefault(o.MaxAttempts, DefaultMaxAttempts)
	o.AckWait = orDefault(o.AckWait, DefaultAckWait)
	hard, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(o.Grace, func() { cancel(context.Cause(ctx)) }) })()
	c := &consuming[T]{topic: t, bus: b, options: o, handle: handle, hard: hard, free: fair.NewSlots(o.Slots)}
	defer c.pool.Wait()
	defer c.pool.Close()
	defer c.inFlight.Wait()
	if o.Turns {
		c.fair = fair.NewScheduler(fair.Options{
			Slots: o.Slots, Largest: embedded.MaxPayload, Schedules: t.timer != nil, Now: b.Now, Go: c.pool.Go,
		})
		c.free = c.fair.Slots()
		turning, stop := context.WithCancel(ctx) // once stopped, no waiting message is begun
		c.inFlight.Go(func() { c.fair.Run(turning, c.lookAtQueue) })
		defer stop()
	}
	again := wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}
	for failed := 0; ctx.Err() == nil; {
		ackWait, err := ensureConsumer(ctx, b.jsWork, t.stream, t.consumer(o))
		if err == nil {
			failed = 0
			c.ackWait = ackWait
			err = c.pull(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errRefused):
			return err
		}
		b.log.Warn("consumer starts again", "consumer", o.Name, "error", err)
		failed++
		again.Sleep(ctx, failed)
	}
	return nil
}

func orDefault[N int | time.Duration](n, d N) N {
	if n <= 0 {
		return d
	}
	return n
}

func (t Topic[T]) consumer(o ConsumeOptions) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: o.Name, FilterSubject: t.filter(o.Filter), AckPolicy: jetstream.AckExplicitPolicy, AckWait: o.AckWait,
		MaxDeliver: o.MaxAttempts + sparedDeliveries, MaxAckPending: o.mostPending(), MaxWaiting: maxWaiting,
	}
}

func (o ConsumeOptions) mostPending() int { return orDefault(o.MaxPending, maxAckPending) }

// errRefused marks an error that waiting will not cure.
var errRefused = errors.New("the log refuses the consumer")

// ensureConsumer creates the durable consumer, or uses the existing one if it reads the same messages. It returns the AckWait that the
// server applies.
func ensureConsumer(ctx context.Context, js jetstream.JetStream, stream string, want jetstream.ConsumerConfig) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	c, err := js.CreateConsumer(ctx, stream, want)
	if err == nil {
		return c.CachedInfo().Config.AckWait, nil
	}
	op := "make the consumer " + want.Durable
	api := natserr.API(err)
	if !errors.Is(err, jetstream.ErrConsumerExists) &&
		!natserr.Is(err, jetstream.JSErrCodeConsumerAlreadyExists, jetstream.JSErrCodeConsumerExists) {
		const clientsFault = 400
		if api != nil && api.Code == clientsFault {
			return 0, fmt.Errorf("%w: %w", errRefused, natserr.Coded(op, err))
		}
		return 0, natserr.Coded(op, err)
	}
	if c, err = js.Consumer(ctx, stream, want.Durable); err != nil {
		return 0, natserr.Coded(op, err)
	}
	have := c.CachedInfo().Config
	if have.FilterSubject != want.FilterSubject {
		return 0, fmt.Errorf("%w: %w", errRefused,
			schemas.OpErrorf(schemas.Conflict, op, "it is there with the filter %q: choose another name", have.FilterSubject))
	}
	if have.MaxDeliver != want.MaxDeliver || have.MaxAckPending != want.MaxAckPending {
		next := have // AckWait stays: others pace their signs of life by it
		next.MaxDeliver, next.MaxAckPending = want.MaxDeliver, want.MaxAckPending
		if _, err := js.UpdateConsumer(ctx, stream, next); err != nil {
			return 0, natserr.Coded("upgrade the consumer "+want.Durable, err)
		}
	}
	return have.AckWait, nil
}

// consuming is one Consume.
type consuming[T schemas.Eventer] struct {
	topic    Topic[T]
	bus      *Bus
	options  ConsumeOptions
	handle   func(context.Context, Delivery[T]) error
	hard     context.Context //nolint:containedctx // handlers outlive the pull that began them
	ackWait  time.Duration
	free     *fair.Slots
	fair     *fair.Scheduler // nil: messages start in the order of the log
	inFlight sync.WaitGroup
	pool     gopool.Pool
}

// take starts the work on a message, which is counted in inFlight and has its slot. It does not block.
func (c *consuming[T]) take(m *message) {
	hold := c.bus.progress.add(m, c.ackWait)
	if c.fair == nil {
		c.pool.Go(func() {
			defer c.inFlight.Done()
			defer c.free.Give(1)
			defer c.bus.progress.drop(hold)
			c.settle(m, nil, c.consumeOne(m, hold))
		})
		return
	}
	c.takeTurn(m, hold)
}

// consumeOne runs the handler, unless the message has used up its attempts or cannot be read.
func (c *consuming[T]) consumeOne(m *message, hold *hold) (err error) {
	if m.meta.NumDelivered > uint64(c.options.MaxAttempts) {
		return schemas.Errorf(schemas.Exhausted,
			"handed out %d times without an end: each time its process died, or the log did not take the end", m.meta.NumDelivered-1)
	}
	data, err := c.bus.payloads.Whole(c.hard, c.topic.stream, m.Header, m.Data, m.meta.Timestamp)
	if err != nil {
		return err
	}
	headers := copyHeaders(m.Header)
	v, err := c.topic.decode(m.Subject, headers, data)
	if err != nil {
		return fmt.Errorf("read the message: %w", err)
	}
	defer func() {
		if p := recover(); p != nil {
			c.bus.log.Error("request handler panicked", "consumer", c.options.Name, "panic", p, "stack", string(debug.Stack()))
			err = schemas.Errorf(schemas.Internal, "the handler panicked: %v", p)
		}
	}()
	return c.handle(c.hard, Delivery[T]{
		Value: v, Attempt: m.attempt(), Subject: m.Subject, Account: subjects.AccountOf(m.Subject),
		Published: m.meta.Timestamp, Seq: m.meta.Sequence.Stream, Headers: headers,
		Late: hold.late, Arrived: hold.begun, Generation: m.generation,
	})
}

// verdict is what to do with a message after its handler.
type verdict struct {
	kind  verdictKind
	delay time.Duration
}

type verdictKind int

const (
	verdictAck verdictKind = iota
	verdictNak
	verdictDead
)

// judge turns a handler's return value into a verdict. It is pure.
func judge(err error, stopped bool, attempt uint64, most int) verdict {
	const shortage = time.Second
	r, again := errors.AsType[retryAfter](err)
	_, final := errors.AsType[terminateError](err)
	switch {
	case err == nil:
		return verdict{kind: verdictAck}
	case final:
		return verdict{kind: verdictDead}
	case stopped: // this process stops: never the message's fault
		return verdict{kind: verdictNak}
	case attempt >= uint64(max(most, 1)):
		return verdict{kind: verdictDead}
	case again:
		return verdict{kind: verdictNak, delay: r.delay}
	case schemas.CodeOf(err).Retryable():
		return verdict{kind: verdictNak, delay: min(shortage<<min(attempt-1, 3), 8*time.Second)}
	case errors.Is(err, context.Canceled):
		return verdict{kind: verdictNak, delay: shortage}
	}
	return verdict{kind: verdictDead}
}

// settle carries out the verdict. t is nil where accounts take no turns. If a message to the server is lost, the delivery is repeated.
func (c *consuming[T]) settle(m *message, t *fair.Message, err error) {
	const letterRetry = 5 * time.Second
	v := judge(err, c.hard.Err() != nil, m.meta.NumDelivered, c.options.MaxAttempts)
	if v.kind == verdictDead {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.hard), 2*requestWithin)
		defer cancel()
		if letterErr := OpenDeadLetters(c.bus).write(ctx, m.letter(c.options.Name, err, c.bus.Now())); letterErr != nil {
			c.bus.log.Error("dead letter not written yet, the message stays in its stream", "stream", m.meta.Stream, "seq",
				m.meta.Sequence.Stream, "error", letterErr)
			v = verdict{kind: verdictNak, delay: letterRetry}
		}
	}
	var ackErr error
	switch v.kind {
	case verdictAck:
		ackErr = m.ack()
	case verdictNak:
		ackErr = c.retry(m, t, v.delay)
	case verdictDead:
		c.bus.letterLog.log(m, c.options.Name, err)
		ackErr = m.term() // the reason is in the dead letter
	}
	if ackErr != nil {
		c.bus.log.Warn("message not acknowledged, the server delivers it again", "stream", m.meta.Stream, "seq",
			m.meta.Sequence.Stream, "error", ackErr)
	}
}
