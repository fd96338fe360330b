package streams

import (
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

// SureWithin is how long the log surely recognises what is published a second time. What is older is
// looked up.
const SureWithin = dedupe / 2

// Certainty is the time since which a process has missed no change by other processes: of a delivery, or of a read.
type Certainty struct {
	Since      clock.Reading
	Generation uint64 // of the Bus, from before that
}

// Certainty is one that begins now.
func (b *Bus) Certainty() Certainty {
	return Certainty{Since: clock.Now(), Generation: b.Generation()}
}

// Holds reports whether the log itself detects changes that other processes made since then. A process that was suspended notices the time,
// or the loss of its connections if all clocks of its host stopped with it: the server closes those of a client that is silent for so long.
// A log whose clock was set ahead forgets message ids too early; a restarted server knows the ids again whose timestamps are young by its
// clock.
func (b *Bus) Holds(c Certainty) bool {
	return clock.Since(c.Since) < SureWithin && b.Generation() == c.Generation && b.clock.SteadySince(c.Since)
}

// Absence is the knowledge that something was not on the log at a time.
type Absence struct {
	at   time.Time // by the log's clock
	sure Certainty // since when the process knows that time, so that it notices a suspension
	now  bool      // at is when sure began: how long that is ago needs no clock of the log
	// cautious says that what may have been stored since, and removed by retention, is not stored again: see [StoreOnce].
	cautious bool
}

// Cautiously is the same knowledge of who had rather store nothing than the same twice.
func (a Absence) Cautiously() Absence {
	a.cautious = true
	return a
}

// Since is the same knowledge of an earlier time, by the log's clock: others may have stored it since then.
func (a Absence) Since(at time.Time) Absence {
	a.at, a.now = at, false
	return a
}

// Absent is the knowledge that something is not on the log now.
func (b *Bus) Absent() Absence {
	a := b.AbsentAt(b.Now())
	a.now = true
	return a
}

// AbsentAt is the knowledge that something was not on the log at a time.
func (b *Bus) AbsentAt(at time.Time) Absence {
	return Absence{at: at, sure: b.Certainty()}
}

// detected reports whether the log itself detects, as duplicates, messages that other processes stored since then.
func (a Absence) detected(b *Bus) bool {
	return b.Holds(a.sure) && (a.now || b.Recognises(a.at))
}
