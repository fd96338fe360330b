package logclock

import "time"

// steadyFollowed is after how long a [Steady] takes a clock that jumped ahead to be right.
const steadyFollowed = 24 * time.Hour

// Steady is a clock for removing what is old: a clock that jumps ahead would make everything old at once. It follows such a jump after a
// day. Its zero value is ready. It is pure, and not safe for concurrent use.
type Steady struct {
	at      time.Time     // when the clock was last followed
	elapsed time.Duration // of a clock that cannot be set, then
	jumped  time.Duration // the same, since when the clock is ahead; 0: it is not
}

// Now returns the time to use when a clock reads now and elapsed has passed on a monotonic one. It is never ahead of that clock. doubted
// reports a jump ahead that is not followed.
func (s *Steady) Now(now time.Time, elapsed time.Duration) (at time.Time, doubted bool) {
	due := s.at.Add(elapsed - s.elapsed)
	if s.at.IsZero() || !now.After(due.Add(slack)) {
		*s = Steady{at: now, elapsed: elapsed}
		return now, false
	}
	if s.jumped == 0 {
		s.jumped = max(elapsed, 1)
	}
	if elapsed-s.jumped >= steadyFollowed {
		*s = Steady{at: now, elapsed: elapsed}
		return now, false
	}
	return due, true
}
