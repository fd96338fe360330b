package clustertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestALeaderThatIsCutOffMissesNothing: while the former leader takes itself for the leader, others have elected another and stored
// more. Who asks the former must not hear that this is not there.
func TestALeaderThatIsCutOffMissesNothing(t *testing.T) {
	longtest.Only(t, "three servers: make long-cluster")
	const former, other = 0, 1
	c := natstest.StartCluster(t, natstest.ClusterOptions{Streams: streams.Options{Shards: 1}})
	// Which of them is connected to whom is fixed: a client stays with its server while that is cut off.
	there, here := c.Open(other), c.Open(former)
	led := []string{"CALLS", "EVENTS_00", "JOBS", "KV_jobs"}
	c.Lead(former, led...)
	first := newCall("call_first", []byte(`{"command":"true"}`))
	if err := streams.Calls.Publish(t.Context(), there, first); err != nil {
		t.Fatal(err)
	}
	if _, err := patiently(func() (schemas.Call, error) { return streams.FindCall(t.Context(), here, account, first.ID) }); err != nil {
		t.Fatal(err)
	}

	call, job := newCall("call_later", []byte(`{"command":"true"}`)), newCall("call_job", []byte(`{"command":"true"}`))
	job.Job = schemas.NewJobID()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	items := map[string]struct{ store, ask func() error }{
		"the call": {
			func() error { return streams.Calls.Publish(ctx, there, call) },
			func() error { _, err := streams.FindCall(ctx, here, account, call.ID); return err },
		},
		"the event": {
			func() error { return streams.Events.Publish(ctx, there, newEvent("later", 1, "x")) },
			func() error {
				page, err := streams.ReadEvents(ctx, here, account, "later", 0, 0)
				if err == nil && len(page.Events) == 0 {
					return schemas.Errorf(schemas.NotFound, "read events", "the page is empty")
				}
				return err
			},
		},
		"the job": {
			func() error { _, err := lifecycle.EnsureJob(ctx, there, job); return err },
			func() error { _, err := lifecycle.FindJob(ctx, here, account, job.Job); return err },
		},
	}
	c.Cut(former)
	cut := time.Now()
	var all sync.WaitGroup
	for what, item := range items {
		all.Go(func() {
			for err := item.store(); err != nil; err = item.store() {
				if errors.Is(err, schemas.ErrConflict) {
					t.Logf("%s, %s after the cut: %v", what, time.Since(cut), err)
					break // a try that was not confirmed has stored it
				}
				if ctx.Err() != nil {
					t.Errorf("%s is not stored by the others: %v", what, err)
					return
				}
				time.Sleep(lag)
			}
			t.Logf("%s is stored %s after the cut", what, time.Since(cut))
			for range 50 {
				if err := item.ask(); err != nil && schemas.CodeOf(err) != schemas.Unavailable {
					t.Errorf("%s, %s after the cut: %v", what, time.Since(cut), err)
				}
				time.Sleep(lag)
			}
		})
	}
	all.Wait()
	c.Join(former)
	for what, item := range items {
		if _, err := patiently(func() (struct{}, error) { return struct{}{}, item.ask() }); err != nil {
			t.Errorf("%s, when all are together again: %v", what, err)
		}
	}
}
