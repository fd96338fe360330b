package logclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// hostSlept is for how long the host has been asleep since it was started: by so much the clock that counts sleep is
// ahead of the one that Go measures with, which does not. It is exact to some microseconds,
// and too little where the thread was held up.
func hostSlept() time.Duration {
	var all, awake unix.Timespec // in this order: a thread that is held up in between makes it too little
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(all.Nano() - awake.Nano())
}
