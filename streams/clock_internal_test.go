package streams

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

//guarantee:a-wrong-clock-ends-nothing-before-its-time
//guarantee:pauses-cuts-and-full-disks
func TestTheLogsTimeIsTakenWithCare(t *testing.T) {
	t.Parallel()
	const exact = 100 * time.Millisecond
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	type said struct {
		log, elapsed, ahead time.Duration
		anew                bool
	}
	for name, c := range map[string]struct {
		said  []said
		want  time.Duration // of the log, at the last of them
		doubt bool
	}{
		"at the start, whatever it says": {[]said{{log: 24 * time.Hour}}, 24 * time.Hour, false},
		"a steady clock":                 {[]said{{}, {log: time.Hour, elapsed: time.Hour}}, time.Hour, false},
		"noise":                          {[]said{{}, {log: time.Hour + exact/2, elapsed: time.Hour}}, time.Hour, false},
		"a correction":                   {[]said{{}, {log: time.Hour + 10*time.Second, elapsed: time.Hour}}, time.Hour + 10*time.Second, false},
		"back":                           {[]said{{}, {log: -time.Hour, elapsed: time.Hour}}, -time.Hour, false},
		"a leap":                         {[]said{{}, {log: 2 * time.Hour, elapsed: time.Hour}}, time.Hour, true},
		"a leap of a day":                {[]said{{}, {log: 25 * time.Hour, elapsed: time.Hour}}, time.Hour, true},
		"a leap, and back": {[]said{{}, {log: 2 * time.Hour, elapsed: time.Hour},
			{log: 66 * time.Minute, elapsed: 66 * time.Minute}}, 66 * time.Minute, false},
		"a leap that lasts": {[]said{{}, {log: 2 * time.Hour, elapsed: time.Hour},
			{log: 130 * time.Minute, elapsed: 70 * time.Minute}}, 130 * time.Minute, false},
		"two leaps, each short": {[]said{{}, {log: 2 * time.Hour, elapsed: time.Hour},
			{log: 65 * time.Minute, elapsed: 65 * time.Minute}, {log: 3 * time.Hour, elapsed: 71 * time.Minute}}, 71 * time.Minute, true},
		"another connection, suspended for as long": {
			[]said{{}, {log: 2 * time.Hour, elapsed: time.Minute, ahead: 119 * time.Minute, anew: true}}, 2 * time.Hour, false},
		"another connection, to a server whose clock is wrong": {[]said{{}, {log: 2 * time.Hour, elapsed: time.Minute, anew: true}}, time.Minute, true},
		"the same, suspended for less": {
			[]said{{}, {log: 2 * time.Hour, elapsed: time.Minute, ahead: time.Hour, anew: true}}, time.Minute, true},
		"the same connection, the wall clock was set too": {[]said{{}, {log: 2 * time.Hour, elapsed: time.Minute, ahead: 119 * time.Minute}}, time.Minute, true},
		"another connection, a leap that lasts": {[]said{{}, {log: 2 * time.Hour, elapsed: time.Hour, anew: true},
			{log: 130 * time.Minute, elapsed: 70 * time.Minute}}, 130 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l logTime
			var doubted bool
			last := time.Duration(0)
			for _, s := range c.said {
				last = s.elapsed
				doubted = l.take(begin.Add(s.log), s.elapsed, exact, s.ahead, s.anew)
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
	c := newTimekeeper()
	if a, b := c.elapsed(), c.elapsed(); b < a {
		t.Errorf("it went back from %s to %s", a, b)
	}
	const night = 8 * time.Hour
	slept := newTimekeeper()
	slept.slept -= night             // the host says so,
	slept.apart.Store(-int64(night)) // and its wall clock went ahead with it
	const apart = time.Second        // the clocks are read one after the other
	if got := slept.elapsed(); got < night-apart || got > night+time.Hour {
		t.Errorf("after a night's sleep %s have passed", got)
	}
	if got := slept.elapsed(); got < night-apart || got > night+time.Hour {
		t.Errorf("some time later %s have passed", got)
	}
	set := newTimekeeper()
	set.apart.Store(-int64(night)) // somebody has set the wall clock
	if got := set.elapsed(); got > time.Hour {
		t.Errorf("after the wall clock was set %s have passed", got)
	}
}

func FuzzParseTime(f *testing.F) {
	f.Add([]byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response","ts":"2026-11-22T06:00:00.5Z"}`))
	f.Add([]byte(`{"error":{"code":404}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if at, err := parseTime(data); err == nil && at.IsZero() {
			t.Error("no time, and no error")
		}
	})
}

//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestACallIsDueByTheClockThatGivesItMoreTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	const life = 10 * time.Minute
	for name, c := range map[string]struct {
		stored  time.Duration // after it was accepted
		headers Headers
		answer  schemas.ApprovalID
		want    time.Duration
	}{
		"at once":                               {want: life},
		"the log's clock was set ahead":         {stored: time.Hour, want: time.Hour + life},
		"it was set back":                       {stored: -time.Hour, want: life},
		"it was put aside":                      {stored: time.Hour, headers: Headers{headerScheduler: {"x"}}, want: life},
		"a dead letter that is sent again":      {stored: time.Hour, headers: Headers{headerRedriven: {"CALLS.1"}}, want: life},
		"released some time after it was asked": {stored: time.Hour, answer: "ap_1", want: life},
	} {
		call := schemas.Call{Accepted: at, Deadline: at.Add(life), Approval: c.answer}
		if got := Due(call, at.Add(c.stored), c.headers).Sub(at); got != c.want {
			t.Errorf("%s: due %s after it was accepted, want %s", name, got, c.want)
		}
	}
}
