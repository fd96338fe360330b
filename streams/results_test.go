package streams_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
)

func finish(t *testing.T, b *streams.Bus, c schemas.Call, text string) {
	t.Helper()
	testwait.OK(t, streams.Events.Publish(t.Context(), b, eventOf(c, "finished", schemas.CallFinished,
		schemas.Result{Call: c.ID, Conversation: c.Conversation, Status: schemas.StatusCompleted, Text: text})))
}

// TestWaitersOfAConversationGetTheirOwnResults: they come and go at any time, share what is read, also when live events
// get lost, and leave nothing behind.
func TestWaitersOfAConversationGetTheirOwnResults(t *testing.T) {
	for name, lost := range map[string]func(*nats.Msg) bool{
		"all is told":        nil,
		"nothing is told":    func(*nats.Msg) bool { return true },
		"every other is not": func(m *nats.Msg) bool { return len(m.Data)%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				b.Faults(streams.Fault{DropLive: lost})
				const calls, waiters = 12, 5
				var waiting sync.WaitGroup
				var all []schemas.Call
				for n := range calls {
					c := callOf(fmt.Sprintf("call.%d", n))
					c.Conversation = "c_shared"
					testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
					all = append(all, c)
				}
				wait := func(c schemas.Call) {
					waiting.Go(func() {
						r, err := resultOf(b.AwaitCall(t.Context(), c))
						if err != nil || r.Text != "of "+string(c.ID) {
							t.Errorf("%s got %+v, %v", c.ID, r, err)
						}
					})
				}
				impatient := func(c schemas.Call) {
					waiting.Go(func() {
						short, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						state, err := b.AwaitCall(short, c)
						if !errors.Is(err, context.DeadlineExceeded) || state == nil || state.Result != nil || state.Accepted {
							t.Errorf("who is impatient got %+v, %v", state, err)
						}
					})
				}
				for i, c := range all {
					for range waiters {
						wait(c)
					}
					if i >= calls/2 {
						impatient(c)
					}
				}
				synctest.Wait()
				if n := b.Watched(); n != 1 {
					t.Errorf("%d conversations are listened to, want one", n)
				}
				for _, c := range all[:calls/2] {
					finish(t, b, c, "of "+string(c.ID))
				}
				time.Sleep(2 * time.Second) // the impatient ones leave
				for _, c := range all[calls/2:] {
					wait(c)
					finish(t, b, c, "of "+string(c.ID))
					wait(c)
				}
				for _, c := range all[:calls/2] { // long over
					wait(c)
				}
				waiting.Wait()
				if n := b.Watched(); n != 0 {
					t.Errorf("%d conversations are still listened to", n)
				}
			})
		})
	}
}

// TestAWaiterIsNotGivenAFormerUseOfTheID: a day later the id may be that of another call of the same conversation.
func TestAWaiterIsNotGivenAFormerUseOfTheID(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		older := callOf("older")
		older.Conversation = "c_shared"
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, older)) // who waits for it needs all of the conversation
		first := callOf("again")
		first.Conversation = "c_shared"
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, first))
		finish(t, b, first, "first")
		time.Sleep(25 * time.Hour)
		_, before, err := b.Calls().Old(t.Context(), 0)
		testwait.OK(t, err)
		testwait.OK(t, b.Calls().Forget(t.Context(), before))
		second := callOf("again")
		second.Conversation = "c_shared"
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, second))
		results := make(chan string, 2)
		wait := func(c schemas.Call) {
			r, err := resultOf(b.AwaitCall(t.Context(), c))
			if err != nil {
				t.Error(err)
			}
			results <- r.Text
		}
		go wait(second)
		go wait(older)
		synctest.Wait()
		if n := len(results); n != 0 {
			t.Fatalf("%d results came before there were any: %q", n, <-results)
		}
		testwait.OK(t, streams.Events.Publish(t.Context(), b, eventOf(second, "finished.2", schemas.CallFinished,
			schemas.Result{Call: second.ID, Conversation: "c_shared", Status: schemas.StatusCompleted, Text: "second"})))
		if got := <-results; got != "second" {
			t.Errorf("the second use of the id got %q", got)
		}
		finish(t, b, older, "older")
		if got := <-results; got != "older" {
			t.Errorf("the older call got %q", got)
		}
	})
}

// TestWaitersOutliveTheirStream: a stream that was recreated counts from 1 again.
func TestWaitersOutliveTheirStream(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		c := callOf("a")
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
		publishNumbers(t, b, c, 0, 20)
		result := make(chan schemas.Result, 1)
		go func() {
			r, err := resultOf(b.AwaitCall(t.Context(), c))
			if err != nil {
				t.Error(err)
			}
			result <- r
		}()
		time.Sleep(time.Minute) // streams are distinguished by when they were created
		testwait.OK(t, b.DeleteStream(t.Context(), "EVENTS_00"))
		testwait.OK(t, b.Again(t.Context()))
		finish(t, b, c, "anew")
		if r := <-result; r.Text != "anew" {
			t.Errorf("%+v", r)
		}
	})
}

// resultOf is the result of a call that [streams.Bus.AwaitCall] has returned.
func resultOf(s *callstate.State, err error) (schemas.Result, error) {
	if err != nil {
		return schemas.Result{}, err
	}
	return *s.Result, nil
}
