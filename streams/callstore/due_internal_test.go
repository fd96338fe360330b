package callstore

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/payloads"
)

// FuzzDueOf: whatever lies on the log, a deadline is found where there is one.
func FuzzDueOf(f *testing.F) {
	for _, s := range []string{`{"deadline":"2026-11-22T12:00:00Z"}`, `{}`, `[`, `{"deadline":1}`} {
		f.Add(s, "")
		f.Add("", s)
	}
	f.Fuzz(func(t *testing.T, data, summary string) {
		h := nats.Header{}
		if summary != "" {
			h.Set(payloads.HeaderSummary, summary)
		}
		due := DueOf(h, []byte(data), time.Time{})
		if c, err := schemas.DecodeCall([]byte(data)); err == nil && summary == "" && !due.Equal(Due(c, time.Time{}, nats.Header{})) {
			t.Errorf("due %s, the call says %s", due, c.Deadline)
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
		headers nats.Header
		answer  schemas.ApprovalID
		want    time.Duration
	}{
		"at once":                               {want: life},
		"the log's clock was set ahead":         {stored: time.Hour, want: time.Hour + life},
		"it was set back":                       {stored: -time.Hour, want: life},
		"it was put aside":                      {stored: time.Hour, headers: nats.Header{jetstream.SchedulerHeader: {"x"}}, want: life},
		"a dead letter that is sent again":      {stored: time.Hour, headers: nats.Header{intake.HeaderRedriven: {"CALLS.1"}}, want: life},
		"released some time after it was asked": {stored: time.Hour, answer: "ap_1", want: life},
	} {
		call := schemas.Call{Accepted: at, Deadline: at.Add(life), Approval: c.answer}
		if got := Due(call, at.Add(c.stored), c.headers).Sub(at); got != c.want {
			t.Errorf("%s: due %s after it was accepted, want %s", name, got, c.want)
		}
	}
}
