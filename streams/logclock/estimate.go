package logclock

import "time"

const (
	// slack is by how much a clock may be corrected forward without a doubt.
	slack = time.Minute
	// jumpFollowed is for how long the log's clock must have been ahead of the time that has passed, over a connection that was kept,
	// before it is followed.
	jumpFollowed = 10 * time.Minute
)

// estimate computes the log's time from a reading of the log's clock and a monotonic clock. It is pure.
type estimate struct {
	at      time.Time     // the log's time at the last reading that was followed
	elapsed time.Duration // of the clock that cannot be set, then
	jumped  time.Duration // the same, since when the log's clock is ahead of it; 0: it is not
}

// now returns the log's time at a reading of the monotonic clock.
func (l *estimate) now(elapsed time.Duration) time.Time { return l.at.Add(elapsed - l.elapsed) }

// observe updates the estimate with a reading of the log's clock, which is exact to a tolerance. Reconnected says that the connection is
// another than at the last reading: this process may have been suspended, with the clock that cannot be set. Ahead is by how much its wall
// clock has gone ahead of that clock since: how long such a suspension lasted, if the host's clock was set right after it.
//
// A clock that jumps ahead would make everything overdue at once. It is not followed at once, unless this process may have been suspended
// for as long: a server that is started on a host whose clock is wrong brings a new connection too. A clock that is behind does no harm and
// is followed. Doubted reports that the reading was not followed.
func (l *estimate) observe(reading time.Time, elapsed, exact, ahead time.Duration, reconnected bool) (doubted bool) {
	off := reading.Sub(l.now(elapsed))
	switch {
	case l.at.IsZero() || off < -exact || off > exact && off <= slack || reconnected && off > exact && off <= ahead+slack:
	case off <= exact:
		l.jumped = 0
		return false
	case l.jumped == 0:
		l.jumped = max(elapsed, 1)
		return true
	case elapsed-l.jumped < jumpFollowed:
		return true
	}
	*l = estimate{at: reading, elapsed: elapsed}
	return false
}
