package streams

import (
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

// SureWithin is how long the log surely recognises what is published a second time. What is older is
// looked up.
const SureWithin = dedupe / 2

// Certainty is a time since which this process has missed no change by other processes. A delivery or a read has one.
type Certainty struct {
	Since      clock.Reading
	Generation uint64 // of the Bus, from before that
}

// Certainty returns one that begins now.
func (b *Bus) Certainty() Certainty {
	return Certainty{Since: clock.Now(), Generation: b.Generation()}
}

// Holds reports whether the log itself still detects changes that other processes have made since c, as duplicates. A process that was
// suspended notices it by the time, or, if all clocks of its host stopped, by its lost connections: the server closes those of silent
// clients. A log whose clock was set ahead forgets message ids too early; a restarted server knows ids again whose timestamps are young by
// its clock.
func (b *Bus) Holds(c Certainty) bool {
	return clock.Since(c.Since) < SureWithin && b.Generation() == c.Generation && b.clock.SteadySince(c.Since)
}

// Absence is the knowledge that a message was not on the log at a time.
type Absence struct {
	at   time.Time // by the log's clock
	sure Certainty // since when the process knows that time, so that it notices a suspension
	now  bool      // at is when sure began: how long that is ago needs no clock of the log
	// cautious says that what may have been stored since, and removed by retention, is not stored again: see [StoreOnce].
	cautious bool
}

// Cautiously returns the same knowledge for a caller that would rather store nothing than store the message twice.
func (a Absence) Cautiously() Absence {
	a.cautious = true
	return a
}

// Since returns the same knowledge as of an earlier time, by the log's clock: other processes may have stored the message since then.
func (a Absence) Since(at time.Time) Absence {
	a.at, a.now = at, false
	return a
}

// Absent returns the knowledge that a message is not on the log now.
func (b *Bus) Absent() Absence {
	a := b.AbsentAt(b.Now())
	a.now = true
	return a
}

// AbsentAt returns the knowledge that a message was not on the log at a time.
func (b *Bus) AbsentAt(at time.Time) Absence {
	return Absence{at: at, sure: b.Certainty()}
}

// detected reports whether the log itself detects, as duplicates, messages that other processes stored since then.
func (a Absence) detected(b *Bus) bool {
	return b.Holds(a.sure) && (a.now || b.Recognises(a.at))
}
