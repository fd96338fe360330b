package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Sender tries deliveries on one channel.
type Sender interface {
	// Send tries a delivery once and returns the try and the verdict. It returns soon after ctx is done, and by itself within about half a
	// minute. It is called concurrently.
	Send(ctx context.Context, d schemas.Delivery) (schemas.DeliveryTry, Verdict)
}

// Ender is a [Sender] that is notified of the end of a delivery.
type Ender interface {
	// Ended is called when a delivery has arrived (failure is empty) or has failed for good (failure is the reason), before its message is
	// acknowledged. After an error the message is redelivered. It may be called more than once for the same end, and concurrently.
	Ended(ctx context.Context, d schemas.Delivery, failure string) error
}

// Defaults of a [Deliverer].
const (
	DefaultSlots = 512
	DefaultGrace = 20 * time.Second // time for tries in flight when Run ends
)

const (
	ackWait = 10 * time.Second // redelivery delay after a deliverer crashed
	// unwrittenPause is the maximal delay before a redelivery if the stream did not accept the next try.
	unwrittenPause = 5 * time.Minute
	maxAttempts    = 1_000_000 // of one message; each try is a message of its own, and waiting for a slot does not count
)

// Deliverer handles the deliveries of one channel. Any number of deliverers, in any number of processes, may share a channel.
type Deliverer struct {
	Bus *streams.Bus
	// Channel is the channel whose deliveries are handled. Empty: schemas.WebhookChannel.
	Channel string
	Sender  Sender
	// Slots is the maximal number of deliveries in flight. Most of these wait for a response. 0: DefaultSlots.
	Slots int
	// Grace is how long tries may continue after Run's context is done. 0: DefaultGrace.
	Grace time.Duration
	// Log may be nil.
	Log     *slog.Logger
	Metrics Metrics
	// Waits are the delays before each of the tries. Nil: Schedule().
	Waits []time.Duration

	schedule []time.Duration    // nil: Schedule()
	logs     *sometimes.Counted // rate-limits logs about tries; created by Run
	// at is called between the effects of a delivery. An error from it stops the handling there: tests simulate crashes by it.
	at func(stage, schemas.Delivery) error
}

// Metrics are the functions by which a deliverer reports metrics. Each may be nil. They are called concurrently and must not block.
type Metrics struct {
	Tried     func(channel string, k Kind, took time.Duration) // sandjet_delivery_tries_total{channel,outcome} and _try_seconds
	Delivered func(channel string, after time.Duration)        // sandjet_delivery_seconds{channel}: from creation to arrival
	Dead      func(channel string)                             // sandjet_deliveries_dead_total{channel}
}

// stage is a point between two effects at which tests simulate a crash.
type stage string

const (
	atTried     stage = "tried"     // the receiver has responded
	atScheduled stage = "scheduled" // the next try is stored, this one is not acknowledged
)

// Run delivers until ctx ends. It then takes no further deliveries, waits for tries in flight up to the grace period and returns nil. It
// returns an error if the stream permanently refuses the consumer.
func (d *Deliverer) Run(ctx context.Context) error {
	s := *d
	s.Channel = cmp.Or(s.Channel, schemas.WebhookChannel)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.schedule == nil {
		s.schedule = s.Waits
	}
	if s.schedule == nil {
		s.schedule = Schedule()
	}
	if s.at == nil {
		s.at = func(stage, schemas.Delivery) error { return nil }
	}
	s.Metrics = s.Metrics.orQuiet()
	s.logs = new(sometimes.Counted)
	s.Log = s.Log.With("channel", s.Channel)
	err := streams.Deliveries.Consume(ctx, s.Bus, streams.ConsumeOptions{
		Name: "d-" + s.Channel, Filter: s.Channel, Slots: cmp.Or(s.Slots, DefaultSlots), Grace: cmp.Or(s.Grace, DefaultGrace),
		AckWait: ackWait, MaxAttempts: maxAttempts, Turns: true, MaxPending: streams.ManyPending,
	}, s.handle)
	if err != nil {
		return fmt.Errorf("deliver on %s: %w", s.Channel, err)
	}
	return nil
}

// handle tries a delivery and acts on the verdict. A retry is stored before the message is acknowledged: a crash in between causes an
// additional delivery, never a lost one.
func (d *Deliverer) handle(ctx context.Context, m streams.Delivery[schemas.Delivery]) error {
	v := m.Value
	if m.Account != "" {
		v.Account = m.Account // the subject is authoritative, not the body
	}
	began := time.Now()
	try, verdict := d.Sender.Send(ctx, v)
	took, now := time.Since(began), d.Bus.Now()
	if ctx.Err() != nil && verdict.Kind != Delivered && verdict.Kind != Dropped {
		return context.Cause(ctx) // ended by this process, so it does not count as a try
	}
	d.Metrics.Tried(d.Channel, verdict.Kind, took)
	if err := d.at(atTried, v); err != nil {
		return err
	}
	d.report(v, try, verdict, now)
	s := next(v, try, verdict, m.Attempt, d.schedule, now, rand.Float64())
	switch s.kind {
	case stepPark:
		return streams.RetryAfter(s.wait, nil)
	case stepLater:
		if err := streams.Deliveries.Schedule(ctx, d.Bus, s.later, s.at); errors.Is(err, schemas.ErrUnavailable) {
			// The message is redelivered, which gives its receiver one try more than is counted: at the time of the next try, or after
			// unwrittenPause if that is sooner.
			return streams.RetryAfter(min(max(s.at.Sub(now), time.Second), unwrittenPause), err)
		} else if err != nil {
			return err
		}
		return d.at(atScheduled, v)
	case stepDead:
		if err := d.ended(ctx, v, cmp.Or(verdict.Reason, try.Error, s.err.Error())); err != nil {
			return err
		}
		d.Metrics.Dead(d.Channel)
		return s.err
	case stepDone:
		if verdict.Kind == Delivered {
			return d.ended(ctx, v, "")
		}
	}
	return nil
}

// ended notifies the sender of the end of a delivery, if it is an [Ender]. After an error, with whatever code, the message is redelivered.
func (d *Deliverer) ended(ctx context.Context, v schemas.Delivery, failure string) error {
	e, ok := d.Sender.(Ender)
	if !ok {
		return nil
	}
	if err := e.Ended(ctx, v, failure); err != nil {
		d.Log.Warn("end of a delivery not published, retrying", "delivery", v.ID, "account", v.Account, "error", err)
		return streams.RetryAfter(time.Second, err)
	}
	return nil
}

// report counts and logs a try. For a receiver whose deliveries all fail it logs one line per minute and kind of verdict, with the number
// of lines left out; these are logged at debug level.
func (d *Deliverer) report(v schemas.Delivery, try schemas.DeliveryTry, verdict Verdict, now time.Time) {
	log := d.Log.With("delivery", v.ID, "account", v.Account, "endpoint", v.Endpoint, "event", v.Event, "attempt", v.Attempt+1)
	level := slog.LevelInfo
	switch verdict.Kind {
	case Failed, Stopped, Dropped:
		leftOut, due := d.logs.Due(string(verdict.Kind) + " " + string(v.Account) + " " + cmp.Or(string(v.Endpoint), string(v.ChannelID)))
		if !due {
			level = slog.LevelDebug
		}
		if leftOut > 0 {
			log = log.With("left_out", leftOut)
		}
	case Delivered, Busy, Held:
	}
	ctx := context.Background() // the logger needs no context
	switch verdict.Kind {
	case Delivered:
		d.Metrics.Delivered(d.Channel, now.Sub(v.Created))
		log.Debug("delivered", "status", try.Status, "took", time.Duration(try.Duration))
	case Failed:
		log.Log(ctx, level, "delivery attempt failed", "status", try.Status, "error", try.Error, "took", time.Duration(try.Duration))
	case Stopped:
		log.Log(ctx, level, "delivery ended without an attempt", "reason", verdict.Reason)
	case Dropped:
		log.Log(ctx, level, "delivery dropped", "reason", verdict.Reason, "status", try.Status)
	case Busy, Held:
		log.Debug("delivery waiting", "why", verdict.Kind)
	}
}

// orQuiet returns m with a function in every field.
func (m Metrics) orQuiet() Metrics {
	if m.Tried == nil {
		m.Tried = func(string, Kind, time.Duration) {}
	}
	if m.Delivered == nil {
		m.Delivered = func(string, time.Duration) {}
	}
	if m.Dead == nil {
		m.Dead = func(string) {}
	}
	return m
}
