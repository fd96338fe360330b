package admission

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	alice schemas.AccountID = "acct_alice"
	bob   schemas.AccountID = "acct_bob"
)

// inBubble runs f in virtual time. One after the other: the NATS client keeps timers in a pool of the
// process, and one made in a bubble must not come up in another.
func inBubble(t *testing.T, f func(*testing.T, *streams.Bus)) {
	t.Helper()
	for range 2 { // what a pool keeps survives one collection
		runtime.GC()
	}
	natstest.Run(t, f)
}

// book resolves every request to one sandbox, which asks or does not.
type book struct{ bypass bool }

func (b *book) Resolve(_ context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	now := time.Now().UTC()
	c := schemas.Call{
		ID: r.ID, Account: a, Conversation: "c", Tool: r.Tool, Input: r.Input, Provider: "fake", Workspace: "ws_1", Sandbox: "sb_1",
		Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour), Group: r.Group, Digest: r.Digest(),
	}
	if !b.bypass {
		c.Approval = schemas.NewApprovalID()
	}
	return c, nil
}

func bash(id schemas.CallID, command string) schemas.Request {
	in, err := json.Marshal(schemas.BashInput{Command: command})
	if err != nil {
		panic(err)
	}
	return schemas.Request{ID: id, Tool: schemas.ToolBash, Input: in}
}

// inBackground is bash for a member of a group.
func inBackground(id schemas.CallID) schemas.Request {
	return schemas.Request{
		ID: id, Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"make","background":true}`),
		Group: &schemas.GroupRef{ID: "g", Size: 2},
	}
}

func admit(t *testing.T, b *streams.Bus, r schemas.Request) Accepted {
	t.Helper()
	got, err := Admitter{Bus: b, Records: &book{}, Kind: API}.Admit(t.Context(), alice, r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// types are those of the events on the conversation, in order; an event twice shows twice.
func types(t *testing.T, b *streams.Bus) []schemas.EventType {
	t.Helper()
	var all []schemas.EventType
	for e, err := range streams.Events.Replay(t.Context(), b, string(alice)+"/c", schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Value.Type)
	}
	return all
}

// queued are the calls that a worker of the provider finds.
func queued(t *testing.T, b *streams.Bus) []schemas.Call {
	t.Helper()
	var all []schemas.Call
	for e, err := range streams.Calls.Replay(t.Context(), b, "fake", schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Value)
	}
	return all
}

func approval(t *testing.T, b *streams.Bus, id schemas.ApprovalID) schemas.Approval {
	t.Helper()
	p, err := lifecycle.FindApproval(t.Context(), b, alice, id)
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

func result(t *testing.T, b *streams.Bus, c schemas.Call) *schemas.Result {
	t.Helper()
	s, err := b.States().Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Result
}

// end gives a call a result, as a worker does.
func end(t *testing.T, b *streams.Bus, c schemas.Call) {
	t.Helper()
	r := schemas.Result{Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: schemas.StatusCompleted}
	if err := streams.Events.Publish(t.Context(), b,
		schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), time.Now(), r)); err != nil {
		t.Fatal(err)
	}
}

// forget removes the calls that are a day old, as if each had ended.
func forget(t *testing.T, b *streams.Bus) {
	t.Helper()
	_, before, err := b.Calls().Old(t.Context(), 0)
	if err == nil {
		err = b.Calls().Forget(t.Context(), before)
	}
	if err != nil {
		t.Fatal(err)
	}
}
