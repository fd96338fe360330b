package clustertest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A leader that is cut off from the others takes itself for the leader for some seconds more, while they elect another one and store what
// it does not have. A client of the old leader gets the answer that it cannot answer, and never that what was stored meanwhile is not
// there. The same holds in the moments in which it is joined to the others again.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestALeaderThatIsCutOffMissesNothing(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "three servers: make long-cluster")
	c := natstest.StartCluster(t, natstest.ClusterOptions{MaxPayload: mostPayload, Streams: streams.Options{Shards: 1}})
	cut := c.MetaLeader() // any other refuses every question some seconds after the cut
	if cut < 0 {
		t.Fatal("no server leads")
	}
	other := (cut + 1) % natstest.Members
	alone, rest := c.Open(cut), c.Open(other)
	ctx := t.Context()
	// What is opened with the first use is there: that a stream or a bucket is not answered is no answer here.
	first := newCall("first", []byte(`{"command":"true"}`))
	first.Job = schemas.NewJobID()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(streams.Calls.Publish(ctx, rest, first))
	must(streams.Events.Publish(ctx, rest, newEvent("first", 1, "x")))
	_, err := lifecycle.EnsureJob(ctx, rest, first)
	must(err)
	durable := streams.OpenDurable(rest)
	_, err = durable.Append(ctx, account, "first", "", 0, []byte("open"), []byte("x"))
	must(err)

	call := newCall("meanwhile", []byte(`{"command":"true"}`))
	call.Job = schemas.NewJobID()
	type read func(ctx context.Context) error
	parked := newCall("parked", []byte(`{"command":"true"}`))
	parked.Approval = "appr_parked"
	must(streams.Parked.Publish(ctx, rest, parked))
	delivery := slices.Collect(schemas.WebhookDeliveries(newEvent("first", 1, "x"), schemas.Cursor{},
		[]schemas.Endpoint{{ID: "wh_1", Account: account, URL: "https://example.com"}}, time.Now()))[0]
	things := map[string]struct {
		store read // on the other servers
		reads map[string]read
		again read // at the leader that is cut off: what store does, which is done once
	}{
		"released call": {
			store: func(ctx context.Context) error { return lifecycle.ReleaseCall(ctx, rest, parked) },
			again: func(ctx context.Context) error { return lifecycle.ReleaseCall(ctx, alone, parked) },
		},
		"approval": {
			store: func(ctx context.Context) error {
				_, err := lifecycle.EnsureApproval(ctx, rest, parked)
				return err
			},
			again: func(ctx context.Context) error {
				_, err := lifecycle.EnsureApproval(ctx, alone, parked)
				return err
			},
		},
		"delivery": {
			store: func(ctx context.Context) error { return lifecycle.Deliver(ctx, rest, delivery) },
			again: func(ctx context.Context) error { return lifecycle.Deliver(ctx, alone, delivery) },
		},
		"call": {
			store: func(ctx context.Context) error { return streams.Calls.Publish(ctx, rest, call) },
			reads: map[string]read{"the call": func(ctx context.Context) error {
				_, err := alone.Calls().Find(ctx, account, call.ID)
				return err
			}},
		},
		"event": {
			store: func(ctx context.Context) error {
				return streams.Events.Publish(ctx, rest, newEvent("meanwhile", 1, "x"))
			},
			reads: map[string]read{"the events": func(ctx context.Context) error {
				page, err := streams.ReadEvents(ctx, alone, account, "meanwhile", 1, 0)
				return missing(err, len(page.Events))
			}, "a page": func(ctx context.Context) error {
				page, err := streams.Page(ctx, alone, account, "meanwhile", schemas.Cursor{}, 0)
				return missing(err, len(page.Events))
			}},
		},
		"job": {
			store: func(ctx context.Context) error {
				_, err := lifecycle.EnsureJob(ctx, rest, call)
				return err
			},
			reads: map[string]read{"the job": func(ctx context.Context) error {
				_, err := lifecycle.FindJob(ctx, alone, account, call.Job)
				return err
			}, "its value": func(ctx context.Context) error {
				_, err := lifecycle.OpenJobs(alone).Get(ctx, schemas.JobKey(account, call.Job))
				return err
			}},
		},
		"durable stream": {
			store: func(ctx context.Context) error {
				_, err := durable.Append(ctx, account, "meanwhile", "", 0, []byte("open"), []byte("x"))
				return err
			},
			reads: map[string]read{"the durable stream": func(ctx context.Context) error {
				_, err := streams.OpenDurable(alone).Last(ctx, account, "meanwhile", "")
				return err
			}},
		},
	}
	for _, thing := range things { // each is not there yet, and that is said
		for what, read := range thing.reads {
			if _, err := patiently(func() (int, error) { return 0, read(ctx) }); !errors.Is(err, schemas.ErrNotFound) {
				t.Fatalf("%s before it is stored: %v", what, err)
			}
		}
	}

	c.Lead(cut, "CALLS", "EVENTS_00", "JOBS", "KV_jobs", "DURABLE", "KV_approvals", "DELIVERIES")
	c.Cut(cut)
	began := time.Now()
	var stored, found sync.WaitGroup
	var joined atomic.Bool
	stored.Add(len(things))
	for name, thing := range things {
		found.Go(func() {
			_, err := patiently(func() (int, error) { return 0, thing.store(ctx) })
			if err != nil && !errors.Is(err, schemas.ErrConflict) { // an attempt before that was not confirmed
				t.Errorf("store the %s: %v", name, err)
			}
			t.Logf("the %s is stored after %s", name, time.Since(began))
			looks := maps.Clone(thing.reads)
			if thing.again != nil {
				looks = map[string]read{"the " + name + ", once more,": thing.again}
			}
			for what, read := range looks { // at least once while it is cut off
				answersOrRefuses(t, what, read)
			}
			stored.Done()
			for what, read := range looks {
				times := 1
				for end := time.Now().Add(time.Minute); !answersOrRefuses(t, what, read); times++ {
					if time.Now().After(end) {
						t.Errorf("%s is not found after the servers are joined again: %v", what, joined.Load())
						break
					}
				}
				t.Logf("%s is found at the look %d", what, times)
			}
		})
	}
	stored.Wait()
	c.Join(cut)
	joined.Store(true)
	found.Wait()
	// A server that has just been joined may still show what was there before: docs/GUARANTEES.md.
	_, err = patiently(func() (bool, error) {
		m, err := streams.Calls.Last(ctx, rest, parked)
		if err == nil && streams.Parked.Holds(rest, m, parked) {
			err = schemas.Errorf(schemas.Unavailable, "the released call is not with the workers")
		}
		return true, err
	})
	must(err)
	for subject, b := range map[string]*streams.Bus{"the other servers": rest, "the one that was cut off": alone} {
		n := 0
		for _, err := range streams.Deliveries.Replay(ctx, b, "", schemas.Cursor{}) {
			must(err)
			n++
		}
		if n != 1 {
			t.Errorf("%s have %d deliveries, want one", subject, n)
		}
	}
}

// answersOrRefuses reports whether a read succeeds. It fails the test if the error is neither Unavailable nor a timeout.
func answersOrRefuses(t *testing.T, what string, read func(ctx context.Context) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := read(ctx)
	if err != nil && schemas.CodeOf(err) != schemas.Unavailable && ctx.Err() == nil {
		t.Errorf("%s: %v", what, err)
		return true // it is enough
	}
	return err == nil
}

// missing returns a NotFound error if a read succeeded with n = 0 events, and else err.
func missing(err error, n int) error {
	if err == nil && n == 0 {
		return schemas.Errorf(schemas.NotFound, "there is no event")
	}
	return err
}
