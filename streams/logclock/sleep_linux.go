package logclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// hostSlept returns how long the host has slept since its start: the difference between the clock that counts sleep and the one that Go
// uses, which does not. It is exact to some microseconds, and too small if the thread was delayed between the two readings.
func hostSlept() time.Duration {
	var all, awake unix.Timespec // in this order: a thread that is held up in between makes it too little
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(all.Nano() - awake.Nano())
}
