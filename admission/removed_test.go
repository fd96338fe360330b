package admission

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// trim has ten messages stored on a conversation, and retention run for an hour, which leaves five of them.
func trim(t *testing.T, b *streams.Bus, c schemas.ConversationID) {
	t.Helper()
	const kept = 5
	for range 2 * kept {
		e := schemas.NewEvent(schemas.Call{ID: "m", Account: alice, Conversation: c}, schemas.Message, schemas.NewID("e_"), time.Now(), struct{}{})
		if err := streams.Events.Publish(t.Context(), b, e); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&streams.Retention{Bus: b, Count: kept}).Run(ctx) }()
	time.Sleep(time.Hour)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestWhatRetentionHasRemovedIsNotPublishedAgain: the process that took an answer dies before it can note that all is done. When that is
// done, much later, the conversation no longer has what was published.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestWhatRetentionHasRemovedIsNotPublishedAgain(t *testing.T) {
	natstest.Hours(t)
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, inBackground("x")).Call
		dieAfter(t, b, call, schemas.ApprovalDenied, 2)
		trim(t, b, call.Conversation)
		for range 2 {
			if err := (Approvals{Bus: b}).Finish(t.Context(), alice, call.Approval); err != nil {
				t.Fatal(err)
			}
		}
		got := types(t, b)
		isEvent := func(e schemas.EventType) bool { return e != schemas.Message }
		if slices.ContainsFunc(got, isEvent) || len(got) != 5 || !approval(t, b, call.Approval).Done {
			t.Errorf("the conversation has %v, want five messages", got)
		}
	})
}

// TestWhatWasNeverPublishedIsPublished: retention has removed much, of this conversation from before and of another.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestWhatWasNeverPublishedIsPublished(t *testing.T) {
	natstest.Hours(t)
	for _, conversation := range []schemas.ConversationID{"c", "c_other"} {
		inBubble(t, func(t *testing.T, b *streams.Bus) {
			trim(t, b, conversation)
			time.Sleep(late)
			call, err := (&book{}).Resolve(t.Context(), alice, bash("x", "true"))
			if err != nil {
				t.Fatal(err)
			}
			if err := streams.Parked.Publish(t.Context(), b, call); err != nil { // and it dies
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			about := schemas.NewEvent(schemas.Call{ID: "m", Account: alice, Conversation: "c"}, schemas.Message, "e_1", time.Now(), struct{}{})
			if err := streams.Events.Publish(t.Context(), b, about); err != nil {
				t.Fatal(err)
			}
			time.Sleep(late)
			for range 2 {
				admit(t, b, bash("x", "true"))
				time.Sleep(late)
			}
			got := types(t, b)
			if n := len(got); n < 2 || !slices.Equal(got[n-2:], []schemas.EventType{schemas.Message, schemas.ApprovalRequested}) {
				t.Errorf("after removals of %s: the conversation has %v, want the question at its end, once", conversation, got)
			}
		})
	}
}
