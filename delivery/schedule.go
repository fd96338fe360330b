package delivery

import (
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Kind is the outcome of a try.
type Kind string

// The outcomes.
const (
	Delivered Kind = "delivered" // the receiver has accepted it
	Failed    Kind = "failed"    // the try counts, and may be repeated
	Dropped   Kind = "dropped"   // the delivery is no longer wanted
	Stopped   Kind = "stopped"   // not tried: the receiver no longer accepts deliveries
	Busy      Kind = "busy"      // not tried: no slot was free
	Held      Kind = "held"      // not tried: the receiver is paused
)

// Verdict is the outcome of a try.
type Verdict struct {
	Kind Kind
	// After is the minimal delay before the next try: requested by the receiver after a failed try, or the rest of a held receiver's
	// pause.
	After time.Duration
	// Reason is why the delivery was dropped or stopped, or why the receiver is paused.
	Reason string
}

// Schedule returns the delays before each try of a delivery, each counted from the try before: 75.6 hours in total.
func Schedule() []time.Duration {
	return []time.Duration{
		0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
		14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const (
	jitterPart  = 0.1            // of a delay, in both directions
	longestWait = 24 * time.Hour // that a receiver may request
	// longestHeld is how long a delivery may wait without a try: about as long as all tries take.
	longestHeld = 3 * 24 * time.Hour

	// parkedFor is the maximal delay before a message that found no free slot is redelivered. With thousands of messages of the account it
	// is longer, see streams.ConsumeOptions.
	parkedFor = 4 * time.Second
)

// step is what a deliverer does with a message after a try.
type step struct {
	kind  stepKind
	wait  time.Duration    // of stepPark
	at    time.Time        // of stepLater
	later schemas.Delivery // of stepLater
	err   error            // of stepDead
}

type stepKind int

const (
	stepDone  stepKind = iota // acknowledge
	stepLater                 // schedule the next try, then acknowledge
	stepPark                  // redeliver the message after wait
	stepDead                  // dead-letter it, with err
)

// next returns the step after a try of a delivery. Handed is how often the message was delivered to a deliverer; chance is a random number
// from 0 up to 1. It has no side effects.
func next(d schemas.Delivery, try schemas.DeliveryTry, v Verdict, handed int, schedule []time.Duration,
	now time.Time, chance float64) step {
	switch v.Kind {
	case Delivered, Dropped:
		return step{kind: stepDone}
	case Stopped:
		return step{kind: stepDead, err: endedUntried(d, v.Reason)}
	case Busy, Held:
		return untried(d, v, handed, now, chance)
	case Failed:
	}
	d.Attempt, d.Last = d.Attempt+1, &try
	if d.Attempt >= len(schedule) || d.Tries > 0 && d.Attempt >= d.Tries {
		return step{kind: stepDead, err: deadReason(d)}
	}
	wait := max(spread(schedule[d.Attempt], chance), min(v.After, longestWait))
	return step{kind: stepLater, later: d, at: now.Add(wait)}
}

// untried is the part of [next] for a delivery that was not tried.
func untried(d schemas.Delivery, v Verdict, handed int, now time.Time, chance float64) step {
	since := d.Created
	if d.Replay > 0 {
		since = d.Begun
	}
	if last := d.Last; last != nil && last.Time.After(since) {
		since = last.Time
	}
	if !since.IsZero() && now.Sub(since) > longestHeld {
		return step{kind: stepDead, err: endedUntried(d, "its receiver failed so often that it could not be tried for "+longestHeld.String())}
	}
	if v.Kind == Held && v.Reason != "" && d.Tries > 0 { // a test of the channel, which reports the reason instead of waiting
		return step{kind: stepDead, err: endedUntried(d, v.Reason)}
	}
	if v.Kind == Busy {
		return step{kind: stepPark, wait: spread(min(time.Duration(handed)*time.Second, parkedFor), chance)}
	}
	// Deliveries that are held together are spread over time, so that the first of them finds out whether the pause is over.
	late := max(v.After/4, 10*time.Second)
	return step{kind: stepLater, later: d, at: now.Add(max(v.After, 0) + time.Duration(chance*float64(late)))}
}

func spread(d time.Duration, chance float64) time.Duration {
	return d + time.Duration((2*chance-1)*jitterPart*float64(d))
}

// endedUntried returns the reason of the dead letter of a delivery that is no longer tried. Like that of [deadReason], its code is not
// retryable.
func endedUntried(d schemas.Delivery, why string) error {
	return schemas.OpErrorf(schemas.Timeout, "deliver", "%s to %s ended after %d tries: %s", d.ID, receiverOf(d), d.Attempt, why)
}

// deadReason returns the reason of the dead letter of a delivery whose tries are used up. Its code is not retryable, because a retryable
// error would redeliver the message.
func deadReason(d schemas.Delivery) error {
	met := "error " + d.Last.Error
	if d.Last.Status != 0 {
		met = fmt.Sprintf("status %d", d.Last.Status)
	}
	text := fmt.Sprintf("%s to %s failed %d times since %s; the last time at %s with %s", d.ID, receiverOf(d), d.Attempt,
		d.Created.UTC().Format(time.RFC3339), d.Last.Time.UTC().Format(time.RFC3339), met)
	if d.Last.Response != "" {
		text += ": " + d.Last.Response
	}
	return schemas.OpErrorf(schemas.Timeout, "deliver", "%s", text)
}

func receiverOf(d schemas.Delivery) string {
	if d.Endpoint != "" {
		return string(d.Endpoint)
	}
	return d.Channel
}
