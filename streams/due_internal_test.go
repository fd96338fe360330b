package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// FuzzDueOfCall: whatever lies on the log, a deadline is found where there is one.
func FuzzDueOfCall(f *testing.F) {
	for _, s := range []string{`{"deadline":"2026-11-22T12:00:00Z"}`, `{}`, `[`, `{"deadline":1}`} {
		f.Add(s, "")
		f.Add("", s)
	}
	f.Fuzz(func(t *testing.T, data, summary string) {
		h := nats.Header{}
		if summary != "" {
			h.Set(headerSummary, summary)
		}
		due := dueOfCall(h, []byte(data), time.Time{})
		if c, err := schemas.DecodeCall([]byte(data)); err == nil && summary == "" && !due.Equal(Due(c, time.Time{}, nil)) {
			t.Errorf("due %s, the call says %s", due, c.Deadline)
		}
	})
}
