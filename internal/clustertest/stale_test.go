package clustertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	lag  = 40 * time.Millisecond
	each = 3 // of every case
)

func newEvent(conversation schemas.ConversationID, n int, data any) schemas.Event {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return schemas.Event{
		ID: fmt.Sprintf("%s.%s.%d", account, conversation, n), Account: account, Conversation: conversation, Subject: "one",
		Type: schemas.CallOutput, Time: time.Now().UTC(), Data: text,
	}
}

// patiently calls ask until it returns something else than Unavailable, for eight seconds at most. A log is unavailable for a moment when
// leaders change.
func patiently[T any](ask func() (T, error)) (v T, err error) {
	for range 200 { // eight seconds
		if v, err = ask(); schemas.CodeOf(err) != schemas.Unavailable {
			break
		}
		time.Sleep(lag)
	}
	return v, err
}

// TestWhatIsConfirmedIsFoundAtAServerThatIsBehind: what one server has confirmed is found at once by a reader at another server, even if
// the replicas there lag behind.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestWhatIsConfirmedIsFoundAtAServerThatIsBehind(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "three servers: make long-cluster")
	c := natstest.StartCluster(t, natstest.ClusterOptions{Lag: lag, MaxPayload: mostPayload, Streams: streams.Options{Shards: 1}})
	write, read := c.Open(0), c.Open(2)
	// The stores of large payloads are made by the first that needs them.
	if err := streams.Calls.Publish(t.Context(), write, newCall("first", large())); err != nil {
		t.Fatal(err)
	}
	if err := streams.Events.Publish(t.Context(), write, newEvent("first", 1, largeText())); err != nil {
		t.Fatal(err)
	}
	c.Lead(0, "CALLS", "EVENTS_00", "JOBS", "KV_jobs", "OBJ_payloads_2d", "OBJ_payloads_39d")

	t.Run("a call", func(t *testing.T) {
		for n := range each {
			call := newCall(schemas.CallID(fmt.Sprint("call", n)), []byte(`{}`))
			if err := streams.Calls.Publish(t.Context(), write, call); err != nil {
				t.Fatal(err)
			}
			if _, err := patiently(func() (schemas.Call, error) { return read.Calls().Find(t.Context(), account, call.ID) }); err != nil {
				t.Errorf("the call: %v", err)
			}
			if err := streams.Calls.Publish(t.Context(), read, call); !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("the call, repeated: %v", err)
			}
		}
	})
	t.Run("a large call", func(t *testing.T) {
		for n := range each {
			call := newCall(schemas.CallID(fmt.Sprint("large", n)), large())
			if err := streams.Calls.Publish(t.Context(), write, call); err != nil {
				t.Fatal(err)
			}
			got, err := patiently(func() (schemas.Call, error) { return read.Calls().FindWhole(t.Context(), account, call.ID) })
			if err != nil || len(got.Input) != len(call.Input) {
				t.Errorf("the call: %d bytes of %d, %v", len(got.Input), len(call.Input), err)
			}
		}
	})
	t.Run("a job", func(t *testing.T) {
		for n := range each {
			call := newCall(schemas.CallID(fmt.Sprint("job", n)), []byte(`{"command":"true"}`))
			call.Job = schemas.NewJobID()
			made, err := patiently(func() (streams.BucketEntry[schemas.Job], error) { return lifecycle.EnsureJob(t.Context(), write, call) })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := patiently(func() (streams.BucketEntry[schemas.Job], error) {
				return lifecycle.FindJob(t.Context(), read, account, call.Job)
			}); err != nil {
				t.Errorf("the job: %v", err)
			}
			made.Value.Command = "changed"
			jobs := lifecycle.OpenJobs(write)
			revision, err := jobs.Update(t.Context(), made.Key, made.Value, made.Revision)
			if err != nil {
				t.Fatal(err)
			}
			// Who changes a value that has just been changed finds what is there.
			if p, err := patiently(func() (streams.BucketEntry[schemas.Job], error) {
				return lifecycle.FindJob(t.Context(), read, account, call.Job)
			}); err != nil || p.Revision != revision {
				t.Errorf("the job is at %d and not %d, %v", p.Revision, revision, err)
			}
			if p, err := patiently(func() (streams.BucketEntry[schemas.Job], error) {
				return lifecycle.EnsureJob(t.Context(), read, call)
			}); err != nil || p.Value.Command != "changed" {
				t.Errorf("the job, ensured: %q, %v", p.Value.Command, err)
			}
			end := schemas.Completion{Job: call.Job, Account: account, State: schemas.JobCompleted}
			if _, err := lifecycle.Complete(t.Context(), write, end); err != nil {
				t.Fatal(err)
			}
			other := end
			other.State = schemas.JobFailed
			if first, err := lifecycle.Complete(t.Context(), read, other); !errors.Is(err, schemas.ErrConflict) || first.State != end.State {
				t.Errorf("completed again: %s, %v", first.State, err)
			}
		}
	})
	t.Run("a cursor", func(t *testing.T) {
		for n := range each {
			s, err := patiently(func() (streams.Stored, error) {
				return streams.Events.Store(t.Context(), write, newEvent("cursors", n, "x"))
			})
			if err != nil {
				t.Fatal(err)
			}
			place, err := patiently(func() (streams.Place, error) { return streams.Locate(t.Context(), read, account, "cursors", s.Cursor) })
			if err != nil || place.Gap != nil || place.At.Seq != s.Cursor.Seq {
				t.Errorf("behind %v: at %v with gap %v, %v", s.Cursor, place.At, place.Gap, err)
			}
			last, err := patiently(func() (schemas.Cursor, error) { return streams.LastEvent(t.Context(), read, account, "cursors") })
			if err != nil || last.Seq != s.Cursor.Seq {
				t.Errorf("the last is %v and not %v, %v", last, s.Cursor, err)
			}
			page, err := patiently(func() (streams.EventPage, error) {
				return streams.ReadEvents(t.Context(), read, account, "cursors", 1, 0)
			})
			if err != nil || len(page.Events) != n+1 || page.More {
				t.Errorf("%d events of %d, %v", len(page.Events), n+1, err)
			}
		}
	})
	t.Run("large events", func(t *testing.T) {
		for n := range each {
			if err := streams.Events.Publish(t.Context(), write, newEvent("large", n, largeText())); err != nil {
				t.Fatal(err)
			}
			page, err := patiently(func() (streams.PageResult, error) {
				return streams.Page(t.Context(), read, account, "large", schemas.Cursor{}, 0)
			})
			if err != nil || len(page.Events) != n+1 || !page.Recovered {
				t.Errorf("%d events of %d, recovered %v, %v", len(page.Events), n+1, page.Recovered, err)
			}
		}
	})
	t.Run("a reader that attaches", func(t *testing.T) {
		for n := range each {
			if err := streams.Events.Publish(t.Context(), write, newEvent("late", n, "x")); err != nil {
				t.Fatal(err)
			}
			// Nothing comes after it: what is not replayed now is never sent.
			ctx, cancel := context.WithTimeout(t.Context(), 20*lag)
			seen := 0
			for item, err := range streams.Follow(ctx, read, account, "late", schemas.Cursor{}) {
				if err != nil || item.Gap != nil {
					t.Errorf("gap %v, %v", item.Gap, err)
				}
				if item.Kind == streams.ItemEvent {
					seen++
				}
				if item.Kind == streams.ItemLive {
					break
				}
			}
			cancel()
			if seen != n+1 {
				t.Errorf("%d events of %d", seen, n+1)
			}
		}
	})
	t.Run("a reader that is attached", func(t *testing.T) {
		const events = 12
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun, done := make(chan struct{}), make(chan int, 1)
		go func() {
			seen := 0
			for item, err := range streams.Follow(ctx, read, account, "attached", schemas.Cursor{}) {
				if err != nil || item.Gap != nil {
					t.Errorf("gap %v, %v", item.Gap, err)
				}
				switch item.Kind {
				case streams.ItemLive:
					close(begun)
				case streams.ItemEvent:
					seen++
				case streams.ItemAttached:
				}
				if seen == events {
					break
				}
			}
			done <- seen
		}()
		<-begun
		for n := range events {
			var data any = "x"
			if n%4 == 1 { // its payload is behind, too
				data = largeText()
			}
			if err := streams.Events.Publish(t.Context(), write, newEvent("attached", n, data)); err != nil {
				t.Fatal(err)
			}
		}
		if seen := <-done; seen != events {
			t.Errorf("%d events of %d", seen, events)
		}
	})
	t.Run("a large call at a worker", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan int, 100)
		done := make(chan error, 1)
		go func() {
			done <- streams.Calls.Consume(ctx, read, streams.ConsumeOptions{Name: "far", Filter: "far", Slots: 4},
				func(_ context.Context, d streams.Delivery[schemas.Call]) error {
					got <- len(d.Value.Input)
					return nil
				})
		}()
		for n := range each {
			call := newCall(schemas.CallID(fmt.Sprint("far", n)), large())
			call.Provider = "far"
			if err := streams.Calls.Publish(t.Context(), write, call); err != nil {
				t.Fatal(err)
			}
		}
		for range each {
			select {
			case n := <-got:
				if n != len(large()) {
					t.Errorf("a call of %d bytes", n)
				}
			case <-ctx.Done():
				t.Fatal("calls did not come")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		dead, err := streams.OpenDeadLetters(read).List(t.Context(), "", 10)
		if err != nil || len(dead) > 0 {
			t.Errorf("dead letters %v, %v", dead, err)
		}
	})
}
