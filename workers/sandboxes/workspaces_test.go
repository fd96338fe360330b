package sandboxes

import (
	"testing"
	"time"
)

// Only time that a process has measured between two looks counts: no wall clock, however wrong, and no suspension adds to it.
func TestTimeBetweenLooksIsMeasured(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		last, now time.Time
		want      time.Duration
	}{
		"the first look":                   {now: now},
		"an hour later":                    {last: now, now: now.Add(time.Hour), want: time.Hour},
		"after a suspension of eight days": {last: now, now: now.Add(8 * 24 * time.Hour), want: 2 * time.Hour},
		"a clock that was set back":        {last: now.Round(0), now: now.Round(0).Add(-time.Hour)},
	} {
		if got := passedSince(c.last, c.now, time.Hour); got != c.want {
			t.Errorf("%s: %v counts, want %v", name, got, c.want)
		}
	}
}
