// Package clock measures how much time has passed at least, even if a clock was suspended.
//
// The monotonic clock of a process does not run while its host sleeps or its virtual machine is paused, and the wall clock can be set.
// Where an age must not be underestimated, the larger of both differences counts.
package clock

import "time"

// Reading is a reading of both clocks. The zero value is before every other.
type Reading struct {
	wall   time.Time // without the monotonic clock
	steady time.Time
}

// Now reads both clocks.
func Now() Reading {
	now := time.Now()
	return Reading{wall: now.Round(0), steady: now}
}

// Sub returns how much time has passed since an earlier reading of this process: the larger difference of the two clocks. A wall clock
// that is set ahead makes it too large, never too small.
func (r Reading) Sub(earlier Reading) time.Duration {
	return max(r.wall.Sub(earlier.wall), r.steady.Sub(earlier.steady))
}

// AtLeast returns the time that has certainly passed since an earlier reading of this process, by the monotonic clock. It does not depend
// on the wall clock being set, but may lack the time that the host slept.
func (r Reading) AtLeast(earlier Reading) time.Duration { return r.steady.Sub(earlier.steady) }

// Since returns how much time has passed since an earlier reading.
func Since(earlier Reading) time.Duration { return Now().Sub(earlier) }

// After reports whether r was read after other, by the monotonic clock.
func (r Reading) After(other Reading) bool { return r.steady.After(other.steady) }

// Wall returns the wall clock's time.
func (r Reading) Wall() time.Time { return r.wall }

// Asleep returns the reading that a process would make after its host has slept for d: only the wall clock has advanced.
func (r Reading) Asleep(d time.Duration) Reading {
	r.wall = r.wall.Add(d)
	return r
}
