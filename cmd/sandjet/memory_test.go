package main

import (
	"math"
	"testing"
)

func TestMemoryLimitIsOfWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set          string
		memory, want int64
	}{
		{"", 4 << 30, 3 << 30},
		{"1GiB", 4 << 30, 0},
		{"off", 4 << 30, 0},
		{"", 0, 0},
		{"", math.MaxInt64, 0},
	} {
		if got := memoryLimit(c.set, c.memory); got != c.want {
			t.Errorf("with GOMEMLIMIT=%q and %d bytes it is %d, want %d", c.set, c.memory, got, c.want)
		}
	}
}
