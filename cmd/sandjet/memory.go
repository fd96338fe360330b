package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/sandjet/sandjet/internal/host"
)

// boundMemory sets a soft memory limit for Go's garbage collector, unless GOMEMLIMIT does. Much of the memory of a server of the log is
// blocks that were read once. Without a limit, as much garbage again stays beside them.
func boundMemory() {
	if limit := memoryLimit(os.Getenv("GOMEMLIMIT"), host.Memory()); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// memoryLimit returns three quarters of the memory of the control group or the host; 0, for no limit, if that is unknown or the
// environment has set one.
func memoryLimit(set string, memory int64) int64 {
	if set != "" || memory <= 0 || memory == math.MaxInt64 {
		return 0
	}
	return memory / 4 * 3
}
