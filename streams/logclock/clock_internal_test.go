package logclock

import (
	"testing"
	"time"
)

//guarantee:a-wrong-clock-ends-nothing-before-its-time
//guarantee:pauses-cuts-and-full-disks
func TestTheLogsTimeIsTakenWithCare(t *testing.T) {
	t.Parallel()
	const exact = 100 * time.Millisecond
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	type reading struct {
		log, elapsed, ahead time.Duration
		reconnected         bool
	}
	for name, c := range map[string]struct {
		readings []reading
		want     time.Duration // of the log, at the last of them
		doubt    bool
	}{
		"at the start, whatever it says": {[]reading{{log: 24 * time.Hour}}, 24 * time.Hour, false},
		"a steady clock":                 {[]reading{{}, {log: time.Hour, elapsed: time.Hour}}, time.Hour, false},
		"noise":                          {[]reading{{}, {log: time.Hour + exact/2, elapsed: time.Hour}}, time.Hour, false},
		"a correction":                   {[]reading{{}, {log: time.Hour + 10*time.Second, elapsed: time.Hour}}, time.Hour + 10*time.Second, false},
		"back":                           {[]reading{{}, {log: -time.Hour, elapsed: time.Hour}}, -time.Hour, false},
		"a leap":                         {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Hour}}, time.Hour, true},
		"a leap of a day":                {[]reading{{}, {log: 25 * time.Hour, elapsed: time.Hour}}, time.Hour, true},
		"a leap, and back": {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Hour},
			{log: 66 * time.Minute, elapsed: 66 * time.Minute}}, 66 * time.Minute, false},
		"a leap that lasts": {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Hour},
			{log: 130 * time.Minute, elapsed: 70 * time.Minute}}, 130 * time.Minute, false},
		"two leaps, each short": {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Hour},
			{log: 65 * time.Minute, elapsed: 65 * time.Minute}, {log: 3 * time.Hour, elapsed: 71 * time.Minute}}, 71 * time.Minute, true},
		"another connection, suspended for as long": {
			[]reading{{}, {log: 2 * time.Hour, elapsed: time.Minute, ahead: 119 * time.Minute, reconnected: true}}, 2 * time.Hour, false},
		"another connection, to a server whose clock is wrong": {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Minute, reconnected: true}}, time.Minute, true},
		"the same, suspended for less": {
			[]reading{{}, {log: 2 * time.Hour, elapsed: time.Minute, ahead: time.Hour, reconnected: true}}, time.Minute, true},
		"the same connection, the wall clock was set too": {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Minute, ahead: 119 * time.Minute}}, time.Minute, true},
		"another connection, a leap that lasts": {[]reading{{}, {log: 2 * time.Hour, elapsed: time.Hour, reconnected: true},
			{log: 130 * time.Minute, elapsed: 70 * time.Minute}}, 130 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l estimate
			var doubted bool
			last := time.Duration(0)
			for _, s := range c.readings {
				last = s.elapsed
				doubted = l.observe(begin.Add(s.log), s.elapsed, exact, s.ahead, s.reconnected)
			}
			if got := l.now(last).Sub(begin); got != c.want || doubted != c.doubt {
				t.Errorf("taken %s, doubted %v; want %s, %v", got, doubted, c.want, c.doubt)
			}
		})
	}
}

// What the clock that cannot be set counts does not depend on what the clock says that can.
func TestElapsedTimeIsCountedByAClockThatCannotBeSet(t *testing.T) {
	t.Parallel()
	c := New(nil, nil)
	if a, b := c.Elapsed(), c.Elapsed(); b < a {
		t.Errorf("it went back from %s to %s", a, b)
	}
	const night = 8 * time.Hour
	slept := New(nil, nil)
	slept.slept -= night             // the host says so,
	slept.apart.Store(-int64(night)) // and its wall clock went ahead with it
	const apart = time.Second        // the clocks are read one after the other
	if got := slept.Elapsed(); got < night-apart || got > night+time.Hour {
		t.Errorf("after a night's sleep %s have passed", got)
	}
	if got := slept.Elapsed(); got < night-apart || got > night+time.Hour {
		t.Errorf("some time later %s have passed", got)
	}
	set := New(nil, nil)
	set.apart.Store(-int64(night)) // the wall clock was set
	if got := set.Elapsed(); got > time.Hour {
		t.Errorf("after the wall clock was set %s have passed", got)
	}
}

func TestAClockThatJumpsAheadIsNotFollowedForADay(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	const year = 365 * day
	for name, c := range map[string]struct {
		steps [][2]time.Duration // the wall clock since begin, and what has passed
		want  time.Duration      // since begin, at the last step
		doubt bool
	}{
		"the first look":     {[][2]time.Duration{{0, 0}}, 0, false},
		"a steady clock":     {[][2]time.Duration{{0, 0}, {time.Hour, time.Hour}, {9 * time.Hour, 9 * time.Hour}}, 9 * time.Hour, false},
		"a small correction": {[][2]time.Duration{{0, 0}, {time.Hour + time.Second, time.Hour}}, time.Hour + time.Second, false},
		"a jump ahead":       {[][2]time.Duration{{0, 0}, {year, time.Hour}}, time.Hour, true},
		"still ahead, later": {[][2]time.Duration{{0, 0}, {year, time.Hour}, {year + 20*time.Hour, 21 * time.Hour}}, 21 * time.Hour, true},
		"ahead for a day":    {[][2]time.Duration{{0, 0}, {year, time.Hour}, {year + day, 25 * time.Hour}}, year + day, false},
		"ahead and back":     {[][2]time.Duration{{0, 0}, {year, time.Hour}, {2 * time.Hour, 2 * time.Hour}}, 2 * time.Hour, false},
		"again ahead, a day on": {[][2]time.Duration{{0, 0}, {year, time.Hour}, {2 * time.Hour, 2 * time.Hour}, {year, 26 * time.Hour}},
			26 * time.Hour, true},
		"a jump back":             {[][2]time.Duration{{0, 0}, {-year, time.Hour}}, -year, false},
		"back, and on from there": {[][2]time.Duration{{0, 0}, {-year, time.Hour}, {-year + time.Hour, 2 * time.Hour}}, -year + time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock Steady
			var got time.Time
			var doubted bool
			for _, s := range c.steps {
				wall := begin.Add(s[0])
				if got, doubted = clock.Now(wall, s[1]); got.After(wall) {
					t.Fatalf("at %s: %s is ahead of the clock", wall, got)
				}
			}
			if got.Sub(begin) != c.want || doubted != c.doubt {
				t.Errorf("taken %s, doubted %v; want %s, %v", got.Sub(begin), doubted, c.want, c.doubt)
			}
		})
	}
}
