package streams_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// skewed makes the clock of the test that of a host which is so much ahead of the log.
func skewed(ahead time.Duration) natstest.Option {
	return func(s *natstest.Settings) {
		s.Log.LogClock = func() time.Time { return time.Now().Add(-ahead) }
	}
}

func TestTheLogsTimeIsThatOfItsServer(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for range 3 {
			if off := time.Since(b.Now()); off.Abs() > 50*time.Millisecond || b.Now().Location() != time.UTC {
				t.Errorf("it is off by %s: %s", off, b.Now())
			}
			time.Sleep(25 * time.Hour)
		}
		if w := b.ClockWarning(); w != "" {
			t.Error(w)
		}
	})
}

//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAHostWhoseClockIsWrongGoesByTheLogsAndSaysSo(t *testing.T) {
	natstest.Hours(t)
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour} {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			for range 3 {
				if off := time.Since(b.Now()) - ahead; off.Abs() > 50*time.Millisecond {
					t.Errorf("ahead by %s: it is off by %s", ahead, off)
				}
				time.Sleep(time.Hour)
			}
			where := map[bool]string{true: " ahead of ", false: " behind "}[ahead > 0]
			if w := b.ClockWarning(); !strings.Contains(w, ahead.Abs().String()) || !strings.Contains(w, where) {
				t.Errorf("ahead by %s, it says %q", ahead, w)
			}
		}, skewed(ahead))
	}
}

//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAClockThatIsSetRightIsNoticed(t *testing.T) {
	var wrong atomic.Int64 // the log's clock is read by each process that asks the log
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		if b.ClockWarning() != "" {
			t.Fatal("it begins with a warning")
		}
		wrong.Store(int64(-time.Hour)) // the log is behind from now on: the host's clock was set ahead
		time.Sleep(6 * time.Minute)
		if off := b.ClockOff(); off.Round(time.Second) != time.Hour || b.ClockWarning() == "" {
			t.Errorf("the difference is %s, and it says %q", off, b.ClockWarning())
		}
		wrong.Store(0) // and back: the log's clock has jumped, which is doubted first
		time.Sleep(6 * time.Minute)
		if off := b.ClockOff(); off.Round(time.Second) != time.Hour {
			t.Errorf("a leap was believed at once: %s", off)
		}
		time.Sleep(15 * time.Minute)
		if off := b.ClockOff(); off.Abs() > 50*time.Millisecond || b.ClockWarning() != "" {
			t.Errorf("it is not believed yet: %s, %q", off, b.ClockWarning())
		}
	}, func(s *natstest.Settings) {
		s.Log.LogClock = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
	})
}
