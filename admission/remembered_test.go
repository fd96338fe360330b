package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// remembering is a yes that counts for the conversation.
func remembering() lifecycle.Decision {
	return lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Remember: schemas.RememberConversation}
}

func TestARememberedAnswerLetsLaterCallsRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		approvals := Approvals{Bus: b}
		first := admit(t, b, bash("call_1", "ls"))
		if _, err := approvals.Decide(t.Context(), alice, first.Call.Approval, remembering()); err != nil {
			t.Fatal(err)
		}
		second := admit(t, b, bash("call_2", "rm -r build"))
		if second.Awaiting || second.Call.GrantedBy != first.Call.Approval || second.Call.Approval != "" {
			t.Fatalf("%+v: want it to run by the answer", second)
		}
		if again := admit(t, b, bash("call_2", "rm -r build")); !again.Existing || again.Call.GrantedBy != first.Call.Approval {
			t.Errorf("%+v: want the same call", again)
		}
		if got := queued(t, b); len(got) != 2 {
			t.Errorf("%d calls are with the workers, want both", len(got))
		}
		if data := string(schemas.AcceptedEvent(second.Call).Data); !strings.Contains(data, `"granted_by":"`+string(first.Call.Approval)+`"`) {
			t.Errorf("%s does not name the answer", data)
		}
		id := schemas.ApprovalGrantID(second.Call)
		if err := lifecycle.RevokeApprovalGrant(t.Context(), b, bob, id); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("another account: %v", err)
		}
		if err := lifecycle.RevokeApprovalGrant(t.Context(), b, alice, id); err != nil {
			t.Fatal(err)
		}
		if third := admit(t, b, bash("call_3", "ls")); !third.Awaiting {
			t.Errorf("%+v: want a question after the answer was revoked", third)
		}
		if err := lifecycle.RevokeApprovalGrant(t.Context(), b, alice, id); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("twice: %v", err)
		}
	})
}

func TestARememberedAnswerEnds(t *testing.T) {
	natstest.Hours(t)
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		first := admit(t, b, bash("call_1", "ls"))
		if _, err := (Approvals{Bus: b}).Decide(t.Context(), alice, first.Call.Approval, remembering()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(schemas.ApprovalGrantLifetime - time.Minute)
		if got := admit(t, b, bash("call_2", "ls")); got.Awaiting {
			t.Error("it has ended before its time")
		}
		time.Sleep(2 * time.Minute)
		if got := admit(t, b, bash("call_3", "ls")); !got.Awaiting {
			t.Error("it counts after its time")
		}
	})
}

// The process that took the answer died before it did what follows.
func TestAnAnswerIsRememberedByWhoeverFinishesIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		first := admit(t, b, bash("call_1", "ls"))
		p, err := lifecycle.FindApproval(t.Context(), b, alice, first.Call.Approval)
		if err != nil {
			t.Fatal(err)
		}
		decided, err := lifecycle.Judge(p.Value, remembering(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lifecycle.OpenApprovals(b).Update(t.Context(), p.Key, decided, p.Revision); err != nil {
			t.Fatal(err)
		}
		if got := admit(t, b, bash("call_2", "ls")); !got.Awaiting {
			t.Error("it counts before it was remembered")
		}
		approvals := Approvals{Bus: b}
		if err := approvals.Finish(t.Context(), alice, first.Call.Approval); err != nil {
			t.Fatal(err)
		}
		third := admit(t, b, bash("call_3", "ls"))
		if third.Awaiting {
			t.Error("it does not count")
		}
		// Revoked, and then a process that had begun before finishes the answer once more.
		if err := lifecycle.RevokeApprovalGrant(t.Context(), b, alice, schemas.ApprovalGrantID(third.Call)); err != nil {
			t.Fatal(err)
		}
		if err := approvals.finish(t.Context(), streams.BucketEntry[schemas.Approval]{Key: p.Key, Value: decided, Revision: p.Revision},
			b.AbsentAt(decided.Decided)); err != nil {
			t.Fatal(err)
		}
		if got := admit(t, b, bash("call_4", "ls")); !got.Awaiting {
			t.Error("a late end of the answer has brought it back")
		}
	})
}

func TestARememberedAnswerIsForItsScope(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	call := schemas.Call{Account: alice, Conversation: "c", Agent: "agent_1", Tool: schemas.ToolBash, Workspace: "ws_1", Sandbox: "sb_1"}
	r := schemas.ApprovalGrantOf(schemas.Approval{ID: "appr_1", Account: alice, Call: call, Decided: now})
	for name, c := range map[string]struct {
		change func(*schemas.Call)
		after  time.Duration
		want   bool
	}{
		"the same":             {func(*schemas.Call) {}, time.Hour, true},
		"another input":        {func(c *schemas.Call) { c.Input = []byte(`{}`) }, 0, true},
		"another account":      {func(c *schemas.Call) { c.Account = bob }, 0, false},
		"another conversation": {func(c *schemas.Call) { c.Conversation = "d" }, 0, false},
		"another agent":        {func(c *schemas.Call) { c.Agent = "agent_2" }, 0, false},
		"no agent":             {func(c *schemas.Call) { c.Agent = "" }, 0, false},
		"another tool":         {func(c *schemas.Call) { c.Tool = schemas.ToolWrite }, 0, false},
		"another workspace":    {func(c *schemas.Call) { c.Workspace = "ws_2" }, 0, false},
		"another sandbox":      {func(c *schemas.Call) { c.Sandbox = "sb_2" }, 0, false},
		"the next day":         {func(*schemas.Call) {}, schemas.ApprovalGrantLifetime, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := call
			c.change(&other)
			if got := r.Allows(other, now.Add(c.after)); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if same := schemas.ApprovalGrantID(other) == r.ID; c.after == 0 && same != c.want && other.Account == alice {
				t.Errorf("the id is the same: %v", same)
			}
		})
	}
}
