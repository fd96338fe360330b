// Package clock measures how much time has gone by at least, also if a clock was suspended.
//
// The monotonic clock of a process does not run while its host sleeps or its virtual machine is paused; the
// wall clock can be set. What must not be taken for younger than it is goes by the larger of both.
package clock

import "time"

// Reading is one look at both clocks. The zero value is before every other.
type Reading struct {
	wall   time.Time // without the monotonic clock
	steady time.Time
}

// Now reads both clocks.
func Now() Reading {
	now := time.Now()
	return Reading{wall: now.Round(0), steady: now}
}

// Sub is how much time has gone by since an earlier reading of this process: the larger of what the two
// clocks say. A wall clock that is set ahead makes it too large, never too small.
func (r Reading) Sub(earlier Reading) time.Duration {
	return max(r.wall.Sub(earlier.wall), r.steady.Sub(earlier.steady))
}

// AtLeast is how much time has gone by at least since an earlier reading of this process, whatever was set in between. What the host
// slept may be missing.
func (r Reading) AtLeast(earlier Reading) time.Duration { return r.steady.Sub(earlier.steady) }

// Since is how much time has gone by since an earlier reading.
func Since(earlier Reading) time.Duration { return Now().Sub(earlier) }

// After reports whether r was read after other. It goes by the clock that cannot be set.
func (r Reading) After(other Reading) bool { return r.steady.After(other.steady) }

// Wall is what the wall clock said.
func (r Reading) Wall() time.Time { return r.wall }

// Asleep returns what a process reads after its host has slept for d: only the wall clock ran.
func (r Reading) Asleep(d time.Duration) Reading {
	r.wall = r.wall.Add(d)
	return r
}
