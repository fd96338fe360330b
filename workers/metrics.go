package workers

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Metrics are a worker's figures, as functions so that this package knows no metrics
// library. Each may be nil. They are called from many goroutines and must not block.
type Metrics struct {
	Wait        func(t schemas.Tool, d time.Duration)    // sandjet_call_wait_seconds{tool}: from acceptance to start
	Run         func(t schemas.Tool, d time.Duration)    // sandjet_call_run_seconds{tool}: from start to result
	Finished    func(t schemas.Tool, s schemas.Status)   // sandjet_calls_total{tool,status}: a result was written
	Redelivered func()                                   // sandjet_redeliveries_total: a call came again
	Limited     func(limit string)                       // sandjet_limited_total{cap}: a call was requeued because of a cap
	Slots       func(provider string, used, allowed int) // sandjet_slots{provider,state}: at every change
	LiveStopped func()                                   // sandjet_live_stopped_total: live output of a call ended early
	Looked      func()                                   // sandjet_call_looks_total: a conversation was read before a call was decided about
	Stuck       func(provider string, n int)             // sandjet_stuck_runs{provider}: runs that do not end and were left to themselves
	JobStarted  func(provider string)                    // sandjet_jobs_started_total{provider}: a background job was started
	Jobs        func(provider string, n int)             // sandjet_jobs{provider}: jobs that this worker manages, at each round
	Boxes       func(provider string, n int)             // sandjet_boxes{provider}: kept boxes that this worker knows of, at each look
	BoxEnded    func(provider, why string)               // sandjet_boxes_ended_total{provider,why}: a kept box was released
}

// orQuiet returns m with a function in every field.
func (m Metrics) orQuiet() Metrics {
	if m.Wait == nil {
		m.Wait = func(schemas.Tool, time.Duration) {}
	}
	if m.Run == nil {
		m.Run = func(schemas.Tool, time.Duration) {}
	}
	if m.Finished == nil {
		m.Finished = func(schemas.Tool, schemas.Status) {}
	}
	if m.Redelivered == nil {
		m.Redelivered = func() {}
	}
	if m.Limited == nil {
		m.Limited = func(string) {}
	}
	if m.Slots == nil {
		m.Slots = func(string, int, int) {}
	}
	if m.LiveStopped == nil {
		m.LiveStopped = func() {}
	}
	if m.Looked == nil {
		m.Looked = func() {}
	}
	if m.Stuck == nil {
		m.Stuck = func(string, int) {}
	}
	if m.JobStarted == nil {
		m.JobStarted = func(string) {}
	}
	if m.Jobs == nil {
		m.Jobs = func(string, int) {}
	}
	if m.Boxes == nil {
		m.Boxes = func(string, int) {}
	}
	if m.BoxEnded == nil {
		m.BoxEnded = func(string, string) {}
	}
	return m
}
