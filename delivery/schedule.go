package delivery

import (
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Kind is what a try came to.
type Kind string

// The kinds.
const (
	Delivered Kind = "delivered" // the receiver has it
	Failed    Kind = "failed"    // it counts as a try
	Dropped   Kind = "dropped"   // it is no longer wanted
	Stopped   Kind = "stopped"   // nothing was tried: its receiver gets nothing any more
	Busy      Kind = "busy"      // nothing was tried: there was no place for it
	Held      Kind = "held"      // nothing was tried: the receiver is left alone for a time
)

// Verdict is what a try came to, with what follows from it.
type Verdict struct {
	Kind Kind
	// After is how long to wait at least: as the receiver asked after a failed try, or until a held
	// delivery may be tried.
	After time.Duration
	// Reason says why it was dropped or stopped, or why the receiver is left alone.
	Reason string
}

// Schedule is how long a delivery waits before each of its tries, from the one before it: 75.6 hours
// in all.
func Schedule() []time.Duration {
	return []time.Duration{
		0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
		14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const (
	jitterPart  = 0.1            // of a wait, to either side
	longestWait = 24 * time.Hour // that a receiver may ask for
	// longestHeld is how long a delivery waits without a try at most: about as long as all tries take.
	longestHeld = 3 * 24 * time.Hour

	// A message that finds no place comes again so soon at most; with thousands of the account later, see
	// streams.ConsumeOptions.
	parkedFor = 4 * time.Second
)

// step is what becomes of a message.
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
	stepLater                 // schedule it, then acknowledge
	stepPark                  // hand the message out again
	stepDead                  // give it up, with the reason
)

// next says what becomes of a delivery after a try. Handed counts how often this message was handed out;
// chance is from 0 up to 1. It is pure.
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

// untried is next for a delivery that was not tried.
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
	if v.Kind == Held && v.Reason != "" && d.Tries > 0 { // a test, which wants to know and not to wait
		return step{kind: stepDead, err: endedUntried(d, v.Reason)}
	}
	if v.Kind == Busy {
		return step{kind: stepPark, wait: spread(min(time.Duration(handed)*time.Second, parkedFor), chance)}
	}
	// Those that come together must not come back together: one of them is enough to find out.
	late := max(v.After/4, 10*time.Second)
	return step{kind: stepLater, later: d, at: now.Add(max(v.After, 0) + time.Duration(chance*float64(late)))}
}

func spread(d time.Duration, chance float64) time.Duration {
	return d + time.Duration((2*chance-1)*jitterPart*float64(d))
}

// endedUntried is the reason of the dead letter of a delivery that is not tried any more, as with [deadReason].
func endedUntried(d schemas.Delivery, why string) error {
	return schemas.OpErrorf(schemas.Timeout, "deliver", "%s to %s ended after %d tries: %s", d.ID, receiverOf(d), d.Attempt, why)
}

// deadReason is the reason of the dead letter. Its code is not a retryable one: that would hand the message
// out again.
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
