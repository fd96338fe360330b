package streams

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/intake"
)

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
		"a dead letter that is sent again":      {stored: time.Hour, headers: Headers{intake.HeaderRedriven: {"CALLS.1"}}, want: life},
		"released some time after it was asked": {stored: time.Hour, answer: "ap_1", want: life},
	} {
		call := schemas.Call{Accepted: at, Deadline: at.Add(life), Approval: c.answer}
		if got := Due(call, at.Add(c.stored), c.headers).Sub(at); got != c.want {
			t.Errorf("%s: due %s after it was accepted, want %s", name, got, c.want)
		}
	}
}
