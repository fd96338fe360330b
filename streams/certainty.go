package streams

import (
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

// SureWithin is how long the log surely recognises what is published a second time. What is older is
// looked up.
const SureWithin = dedupe / 2

// Certainty is from when on nothing that others did can have escaped a process: a delivery, or a look.
type Certainty struct {
	Since      clock.Reading
	Generation uint64 // of the Bus, from before that
}

// Certainty is one that begins now.
func (b *Bus) Certainty() Certainty {
	return Certainty{Since: clock.Now(), Generation: b.Generation()}
}

// Holds reports whether what others did since then is found by the log itself. A process that stood still
// has missed the minutes or, where all clocks of its host stood still with it, its connections: the server
// ends those of a client that is silent for so long. A log whose clock was set forgets by that clock, too early,
// and a server that starts anew knows again what its stamps say is young.
func (b *Bus) Holds(c Certainty) bool {
	return clock.Since(c.Since) < SureWithin && b.Generation() == c.Generation && b.clock.steadySince(c.Since)
}

// Absence is the knowledge that something was not on the log at a time.
type Absence struct {
	at   time.Time // by the log's clock
	sure Certainty // from when the process has that time in mind, so that it notices that it stood still since
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

// recognises reports whether the log itself would recognise what others stored since then.
func (b *Bus) recognises(a Absence) bool {
	return b.Holds(a.sure) && (a.now || b.Recognises(a.at))
}
