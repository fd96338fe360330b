package streams

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

// clockSteps is what is known of the steps of the log's clock. After one back, what is stored has stamps that were there before, so
// stamps do not say what was stored first, and a read from a time on may begin behind what it looks for. It is pure.
//
// A step of less than the clocks of a cluster's servers may be apart is none: who reads from a time on begins that much earlier.
type clockSteps struct {
	newest  time.Time     // the latest stamp that was found before the log was asked for its time
	said    time.Time     // what the log's clock said last
	elapsed time.Duration // of the clock that cannot be set, then
	back    time.Time     // how far it had come when it was set back; zero: it was not
	marked  time.Time     // as far is noted on the log
}

// observe records a reading of the log's clock, and reports whether it was set since the last time.
func (s *clockSteps) observe(said time.Time, elapsed time.Duration) (set bool) {
	due := s.said.Add(elapsed - s.elapsed)
	off := said.Sub(due)
	if s.said.IsZero() {
		due, off = s.newest, min(said.Sub(s.newest), 0)
	}
	if off < -ClocksApart && due.After(s.back) {
		s.back = due
	}
	s.said, s.elapsed = said, elapsed
	return off.Abs() > ClocksApart
}

// ageOf is how long before now, by the log's clock, something was stored at a time. It is not known for what may have been stored before
// the clock was set back, nor where the clock was surely set back since. It is pure.
func (s *clockSteps) ageOf(at, now time.Time) (age time.Duration, known bool) {
	age = now.Sub(at)
	return age, age >= -ClocksApart && (s.back.IsZero() || at.After(s.back))
}

// clockMark is under which key of [trimMarks] is how far the log's clock had come when it was set back.
const clockMark = "clock"

// readSteps reads what other processes have noted of steps of the log's clock.
func (b *Bus) readSteps(ctx context.Context) error {
	back, err := b.trimmed(ctx, clockMark)
	if err != nil {
		return err
	}
	c := b.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps.marked = back; back.After(c.steps.back) {
		c.steps.back = back
	}
	return nil
}

// noteSteps notes on the log how far its clock had come when it was set back, for processes that begin after that, or have not noticed.
func (b *Bus) noteSteps(ctx context.Context) {
	c := b.clock
	c.mu.RLock()
	back, marked := c.steps.back, c.steps.marked
	c.mu.RUnlock()
	if !back.After(marked) {
		return
	}
	if err := b.markTrim(ctx, clockMark, back); err != nil {
		b.log.Debug("step of the log's clock not noted yet", "error", err)
		return
	}
	c.mu.Lock()
	c.steps.marked = back
	c.mu.Unlock()
}

// stored takes in when the last message of a stream was stored, before the log is first asked for its time.
func (c *timekeeper) stored(last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last.After(c.steps.newest) {
		c.steps.newest = last
	}
}

// steadySince reports whether the log's clock was not found to be set since a reading.
func (c *timekeeper) steadySince(r clock.Reading) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.set.After(r)
}

// Age is how long ago something was stored at a time by the log's clock. Where that clock was set back this may not be known: then it may
// be as old as anything.
func (b *Bus) Age(at time.Time) (age time.Duration, known bool) {
	now := b.Now()
	b.clock.mu.RLock()
	defer b.clock.mu.RUnlock()
	return b.clock.steps.ageOf(at, now)
}

// Recognises reports whether the log surely recognises what was stored at a time, by its own clock, when it is published again.
func (b *Bus) Recognises(at time.Time) bool {
	age, known := b.Age(at)
	return known && age < SureWithin
}

// foundSince reports whether a read from a time on, which has ended, has certainly found all that was stored since that time. Where the
// log's clock was set back it may have begun behind some of that. It costs two requests: ask only where something was not found. What
// this process has not noticed, as the clock was right again before it asked, another has noted.
func (b *Bus) foundSince(ctx context.Context, since time.Time) (bool, error) {
	if err := b.askTimeSince(ctx, b.clock.elapsed()); err != nil {
		return false, err
	}
	if _, known := b.Age(since); !known {
		b.noteSteps(ctx)
		return false, nil
	}
	if err := b.readSteps(ctx); err != nil {
		return false, err
	}
	_, known := b.Age(since)
	return known, nil
}
