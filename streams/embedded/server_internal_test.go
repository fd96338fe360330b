package embedded

import (
	"testing"

	"github.com/sandjet/sandjet/streams/usage"
)

// TestTheLimitOfTheStore: what was asked for, else three quarters of the disk; never so little that what is there could not be removed.
func TestTheLimitOfTheStore(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name              string
		asked, used, free int64
		want              int64
		lifted            bool
	}{
		{"asked for, empty", gib, 0, 8 * gib, gib, false},
		{"asked for, half full", gib, gib / 2, 8 * gib, gib, false},
		{"by the disk, empty", 0, 0, 8 * gib, 6 * gib, false},
		{"by the disk, again with what it keeps", 0, 4 * gib, 4 * gib, 6 * gib, false},
	} {
		if got, lifted := storeLimit(c.asked, c.used, c.free); got != c.want || lifted != c.lifted {
			t.Errorf("%s: %d %v, want %d %v", c.name, got, lifted, c.want, c.lifted)
		}
	}
	for _, asked := range []int64{gib, 0} {
		got, lifted := storeLimit(asked, 4*gib, 0)
		if going, fresh := got/100*usage.AcceptedUpTo, got/100*usage.RequestedUpTo; !lifted || 4*gib+1<<20 > going || 4*gib <= fresh || got > 5*gib {
			t.Errorf("asked for %d with more kept: %d %v", asked, got, lifted)
		}
	}
}
