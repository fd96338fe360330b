package records_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Who accepts a call stamps it by the log's clock: its deadline is judged by that, in other processes.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAHostWhoseClockIsWrongStampsCallsByTheLogs(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour} {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			s, err := records.Open(t.Context(), b, nil, recordstest.Providers())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_1", Key: key, Provider: "local"}); err != nil {
				t.Fatal(err)
			}
			c, err := s.Resolve(t.Context(), "acct_1", schemas.Request{ID: "one", Conversation: "c", Tool: schemas.ToolBash,
				Input: []byte(`{"command":"true"}`)})
			if err != nil {
				t.Fatal(err)
			}
			if off := time.Until(c.Accepted) + ahead; off.Abs() > time.Minute {
				t.Errorf("ahead by %s, the call is accepted %s off the log's time", ahead, off)
			}
			if left := c.Deadline.Sub(c.Accepted); left <= 0 || left > 25*time.Hour {
				t.Errorf("its deadline is %s from its acceptance", left)
			}
		}, func(s *natstest.Settings) {
			s.Log.LogClock = func() time.Time { return time.Now().Add(-ahead) }
		})
	}
}
