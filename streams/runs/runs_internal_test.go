package runs

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

//guarantee:side-effects-are-started-at-most-once
func TestWhatRunsKeepsItsEventsFromItsBeginning(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type line struct {
		typ     schemas.EventType
		subject string
		call    schemas.CallID // of a job
		at      time.Duration  // since the first event
	}
	const end = 100
	for name, c := range map[string]struct {
		lines []line
		after time.Duration
		want  uint64
	}{
		"nothing":   {nil, 0, end},
		"a message": {[]line{{schemas.Message, "t", "", 0}}, 0, end},
		"a call that runs": {[]line{{schemas.Message, "t", "", 0}, {schemas.CallAccepted, "a", "", 0},
			{schemas.CallStarted, "a", "", 0}}, 0, 2},
		"a call that has ended":                            {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", 0}}, 0, end},
		"another request under the id of a call that runs": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallRejected, "a", "", 0}}, 0, 1},
		"an id that is used again": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", time.Hour},
			{schemas.CallAccepted, "a", "", day}, {schemas.CallStarted, "a", "", day}}, day, 3},
		"the second use of an id has ended": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", time.Hour},
			{schemas.CallAccepted, "a", "", day}, {schemas.CallFinished, "a", "", day}}, day, end},
		"an id that is used again by a call that a person must allow": {[]line{{schemas.CallAccepted, "a", "", 0},
			{schemas.CallFinished, "a", "", time.Hour}, {schemas.ApprovalRequested, "a", "", day}}, day, 3},
		"the same acceptance, told late": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", time.Hour},
			{schemas.CallAccepted, "a", "", 0}}, time.Hour, end},
		"the same question, told late": {[]line{{schemas.ApprovalRequested, "a", "", 0}, {schemas.CallFinished, "a", "", time.Hour},
			{schemas.ApprovalRequested, "a", "", 0}}, time.Hour, end},
		"a start of the first use, told late": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", time.Hour},
			{schemas.CallStarted, "a", "", 2 * time.Hour}}, 2 * time.Hour, end},
		"a late start": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", 0},
			{schemas.CallStarted, "a", "", 0}}, 0, end},
		"a call without an end, soon":  {[]line{{schemas.CallAccepted, "a", "", 0}}, 3 * day, 1},
		"a call without an end, later": {[]line{{schemas.CallAccepted, "a", "", 0}}, 5 * day, end},
		"a question to a person":       {[]line{{schemas.ApprovalRequested, "a", "", 0}}, 0, 1},
		"one of two calls": {[]line{{schemas.CallAccepted, "a", "", 0}, {schemas.CallAccepted, "b", "", 0},
			{schemas.CallFinished, "a", "", 0}}, 0, 2},
		"a job, with its call": {[]line{
			{schemas.CallAccepted, "a", "", 0}, {schemas.Message, "", "", 0}, {schemas.JobStarted, "j", "a", 0}, {schemas.CallFinished, "a", "", 0},
		}, 20 * day, 1},
		"a job whose call is not there": {[]line{{schemas.Message, "", "", 0}, {schemas.JobStarted, "j", "a", 0}}, 20 * day, 2},
		"a job that has ended":          {[]line{{schemas.JobStarted, "j", "a", 0}, {schemas.JobFinished, "j", "", 0}}, 0, end},
		"a job longer than any":         {[]line{{schemas.JobStarted, "j", "a", 0}}, longestJob, end},
		"a turn": {[]line{
			{schemas.Message, "", "", 0}, {schemas.AgentStarted, "t", "", 0}, {schemas.CallAccepted, "a", "", 0}, {schemas.CallFinished, "a", "", 0},
		}, 30 * day, 2},
		"a turn that has ended": {[]line{{schemas.AgentStarted, "t", "", 0}, {schemas.AgentFinished, "t", "", 0}}, 0, end},
		"a turn that failed":    {[]line{{schemas.AgentStarted, "t", "", 0}, {schemas.AgentFailed, "t", "", 0}}, 0, end},
		"a turn that began again": {[]line{{schemas.AgentStarted, "t", "", 0}, {schemas.AgentFailed, "t", "", 0},
			{schemas.AgentStarted, "t", "", 0}}, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New()
			for i, l := range c.lines {
				data, err := json.Marshal(schemas.JobStartedData{Call: l.call})
				if err != nil {
					t.Fatal(err)
				}
				s.Next(uint64(i+1), schemas.Event{Type: l.typ, Subject: l.subject, Time: begin.Add(l.at), Data: data})
			}
			if got := s.FirstNeeded(begin.Add(c.after), end); got != c.want {
				t.Errorf("kept from %d; want %d", got, c.want)
			}
		})
	}
}
