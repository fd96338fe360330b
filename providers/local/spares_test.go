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
		counted, left, gone int // seconds
		dying, began        int
		want                bool
	}{
		"it began after the end, and was not measured since":    {1, 2, 2, 0, 3, true},
		"it was there before":                                   {1, 3, 3, 0, 2, false},
		"it is what has grown since the last measurement":       {4, 2, 2, 0, 3, false},
		"another left after it began":                           {1, 4, 4, 0, 3, false},
		"the other was told to end, and wrote until it had":     {3, 2, 4, 0, 5, true},
		"the other was told to end and has not":                 {4, 2, 0, 1, 5, true},
		"the other has ended, and it was measured since":        {5, 2, 4, 0, 6, false},
		"it was there when the other, still there, was told to": {4, 3, 0, 1, 2, false},
	} {
		s := &space{counted: at(c.counted), left: at(c.left), gone: at(c.gone), dying: c.dying}
		if got := s.spares(at(c.began)); got != c.want {
			t.Errorf("%s: spared is %v", name, got)
		}
	}
	if (&space{}).spares(at(1)) {
		t.Error("no process has gone, and it is spared")
	}
}
