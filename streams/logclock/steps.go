package logclock

import "time"

// ServersApart is how far the clocks of a cluster's servers may be apart, at most. A step of the log's clock of less than that counts as
// none: a read that begins at a time begins that much earlier.
const ServersApart = 30 * time.Second

// steps are the known steps of the log's clock. After a step back, new messages get timestamps that older ones have: timestamps no longer
// say what was stored first, and a read from a time on may start too late. It is pure.
type steps struct {
	newest  time.Time     // the latest timestamp that was found before the log was first asked for its time
	said    time.Time     // what the log's clock said last
	elapsed time.Duration // of the clock that cannot be set, then
	back    time.Time     // how far the log's clock had come when it was set back; zero: it was not
	marked  time.Time     // as far is noted on the log
}

// observe records a reading of the log's clock, and reports whether that clock was set since the last reading.
func (s *steps) observe(said time.Time, elapsed time.Duration) (set bool) {
	due := s.said.Add(elapsed - s.elapsed)
	off := said.Sub(due)
	if s.said.IsZero() {
		due, off = s.newest, min(said.Sub(s.newest), 0)
	}
	if off < -ServersApart && due.After(s.back) {
		s.back = due
	}
	s.said, s.elapsed = said, elapsed
	return off.Abs() > ServersApart
}

// ageOf returns how long before now, by the log's clock, something with the timestamp at was stored. It is unknown for what may have been
// stored before the clock was set back, and while the clock is known to have been set back since.
func (s *steps) ageOf(at, now time.Time) (age time.Duration, known bool) {
	age = now.Sub(at)
	return age, age >= -ServersApart && (s.back.IsZero() || at.After(s.back))
}
