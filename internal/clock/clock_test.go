package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

func TestTheLargerDifferenceCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := clock.Now()
		time.Sleep(time.Minute)
		now := clock.Now()
		for name, c := range map[string]struct {
			now  clock.Reading
			want time.Duration
		}{
			"both clocks ran":              {now, time.Minute},
			"the host slept":               {now.Asleep(time.Hour), time.Hour + time.Minute},
			"the wall clock was set back":  {now.Asleep(-time.Hour), time.Minute},
			"the wall clock was set ahead": {now.Asleep(time.Second), time.Minute + time.Second},
		} {
			if got := c.now.Sub(begin); got != c.want {
				t.Errorf("%s: %v have gone by, want %v", name, got, c.want)
			}
		}
		if now.Sub(clock.Reading{}) < time.Hour {
			t.Error("the zero reading is not long ago")
		}
		if !now.Asleep(-time.Hour).After(begin) || begin.After(now) {
			t.Error("the order of two readings depends on the wall clock")
		}
	})
}
