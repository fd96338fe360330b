package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/sandjet/sandjet/internal/host"
)

// boundMemory has the collector work harder before the process takes all the memory that it may have. Much of what a server of the log
// holds is blocks that were read once, and without a bound as much garbage again stays beside them.
func boundMemory() {
	if limit := memoryLimit(os.Getenv("GOMEMLIMIT"), host.Memory()); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// memoryLimit is three quarters of the memory of the control group or the machine; 0: none, or the environment has set one.
func memoryLimit(set string, memory int64) int64 {
	if set != "" || memory <= 0 || memory == math.MaxInt64 {
		return 0
	}
	return memory / 4 * 3
}
