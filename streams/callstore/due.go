package callstore

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/payloads"
)

// Headers are the headers of a stored message: a [nats.Header], or a map that ignores case.
type Headers interface{ Get(name string) string }

// DueOf is [Due] of a call as it lies on the log; the zero time if it cannot be read.
func DueOf(h nats.Header, data []byte, stored time.Time) time.Time {
	if s := h.Get(payloads.HeaderSummary); s != "" {
		data = []byte(s)
	}
	var c struct {
		Accepted time.Time          `json:"accepted"`
		Deadline time.Time          `json:"deadline"`
		Approval schemas.ApprovalID `json:"approval"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return time.Time{}
	}
	return Due(schemas.Call{Accepted: c.Accepted, Deadline: c.Deadline, Approval: c.Approval}, stored, h)
}

// Due returns from when on a call is overdue that was stored at a time: at its deadline, but not before it was on the log for as long as
// it may wait. The deadline is by the clock of the process that accepted the call; if the log's clock was set ahead, processes that follow
// it only later would set deadlines that are over already. If the call was on the log before (released by a person, rescheduled, or a
// requeued dead letter), its deadline alone counts. It is pure.
func Due(c schemas.Call, stored time.Time, h Headers) time.Time {
	again := c.Approval != "" || h.Get(jetstream.SchedulerHeader) != "" || h.Get(intake.HeaderRedriven) != ""
	if due := stored.Add(c.Deadline.Sub(c.Accepted)); !again && !c.Accepted.IsZero() && due.After(c.Deadline) {
		return due
	}
	return c.Deadline
}
