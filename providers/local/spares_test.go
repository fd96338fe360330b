//go:build linux

package local

import (
	"testing"
	"time"
)

// TestWhoBeginsAfterAnEndIsNotBlamedForIt: what a measurement finds beside the last one may be of a box that has gone. Who began
// after that is judged by the next one; who was there before is judged at once.
func TestWhoBeginsAfterAnEndIsNotBlamedForIt(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time {
		return time.Date(2030, 1, 1, 0, 0, second, 0, time.UTC)
	}
	for name, c := range map[string]struct {
		counted, left, began int // seconds
		want                 bool
	}{
		"it began after the end, and was not measured since": {1, 2, 3, true},
		"it was there before":                                {1, 3, 2, false},
		"it is what has grown since the last measurement":    {4, 2, 3, false},
		"another left after it began":                        {1, 4, 3, false},
	} {
		s := &space{counted: at(c.counted), left: at(c.left)}
		if got := s.spares(at(c.began)); got != c.want {
			t.Errorf("%s: spared is %v", name, got)
		}
	}
	if (&space{}).spares(at(1)) {
		t.Error("nobody has gone, and it is spared")
	}
}
