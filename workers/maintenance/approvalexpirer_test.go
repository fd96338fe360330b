package maintenance_test

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// The clock of the host is a day ahead of the NATS server's: no person has less time to answer because of it.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAHostWhoseClockIsAheadEndsNoApprovalBeforeItsTime(t *testing.T) {
	natstest.Hours(t)
	for range 2 { // objects in the NATS client's timer pool survive one collection
		runtime.GC()
	}
	const ahead = 24 * time.Hour
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&maintenance.ApprovalExpirer{Bus: b}).Run(ctx) }()
		admitter := admission.Admitter{Bus: b, Records: strict{behind: ahead}, Kind: admission.API}
		got, err := admitter.Admit(t.Context(), alice,
			schemas.Request{ID: "one", Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := lifecycle.FindApproval(t.Context(), b, alice, got.Call.Approval)
		if err != nil || p.Value.Expires.After(b.Now().Add(schemas.DefaultApproval)) {
			t.Fatalf("%+v, %v", p.Value, err)
		}
		time.Sleep(schemas.DefaultApproval - time.Minute)
		if p, err = lifecycle.FindApproval(t.Context(), b, alice, got.Call.Approval); err != nil || p.Value.State != schemas.ApprovalPending {
			t.Errorf("before its time it is %s, %v", p.Value.State, err)
		}
		time.Sleep(2 * time.Minute)
		if p, err = lifecycle.FindApproval(t.Context(), b, alice, got.Call.Approval); err != nil || p.Value.State != schemas.ApprovalExpired {
			t.Errorf("after its time it is %s, %v", p.Value.State, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}, func(s *natstest.Settings) {
		s.Log.LogClock = func() time.Time { return time.Now().Add(-ahead) }
	})
}

const alice schemas.AccountID = "acct_alice"

// strict resolves each request into a call that needs an approval, with a clock that may be behind the host's.
type strict struct{ behind time.Duration }

func (r strict) Resolve(_ context.Context, a schemas.AccountID, req schemas.Request) (schemas.Call, error) {
	now := time.Now().UTC().Add(-r.behind)
	return schemas.Call{
		ID: req.ID, Account: a, Conversation: req.Conversation, Tool: req.Tool, Input: req.Input, Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour),
		Digest: req.Digest(), Approval: schemas.NewApprovalID(),
	}, nil
}

// Two ApprovalExpirers handle approvals without an answer, and approvals whose answer was received by a process that crashed.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAbandonedApprovalsAreEnded(t *testing.T) {
	longtest.Only(t, "23 hours of virtual time")
	for range 2 { // objects in the NATS client's timer pool survive one collection
		runtime.GC()
	}
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- (&maintenance.ApprovalExpirer{Bus: b}).Run(ctx) }()
		}
		admitter := admission.Admitter{Bus: b, Records: strict{}, Kind: admission.API}
		calls := map[schemas.CallID]schemas.Call{}
		for _, id := range []schemas.CallID{"left", "died"} {
			got, err := admitter.Admit(t.Context(), alice,
				schemas.Request{ID: id, Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)})
			if err != nil {
				t.Fatal(err)
			}
			calls[id] = got.Call
		}
		unasked, err := strict{}.Resolve(t.Context(), alice,
			schemas.Request{ID: "unasked", Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)})
		if err == nil {
			err = streams.Parked.Publish(t.Context(), b, unasked)
		}
		if err == nil {
			_, err = lifecycle.EnsureApproval(t.Context(), b, unasked)
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := lifecycle.FindApproval(t.Context(), b, alice, calls["died"].Approval)
		if err != nil {
			t.Fatal(err)
		}
		p.Value.State, p.Value.Decided, p.Value.DecidedBy = schemas.ApprovalApproved, time.Now().UTC(), "api"
		if _, err := lifecycle.OpenApprovals(b).Update(t.Context(), p.Key, p.Value, p.Revision); err != nil {
			t.Fatal(err)
		}
		state := func(id schemas.CallID) callstate.State {
			t.Helper()
			s, err := b.States().Read(t.Context(), calls[id])
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		time.Sleep(3 * maintenance.DefaultApprovalEvery)
		if !state("died").Accepted || state("left").Result != nil {
			t.Errorf("after a moment: %+v, %+v", state("died"), state("left"))
		}
		if p, err := lifecycle.FindApproval(t.Context(), b, alice, unasked.Approval); err != nil || !p.Value.Asked {
			t.Errorf("nobody has asked where the process died that should have: %v", err)
		}
		time.Sleep(schemas.DefaultApproval)
		if r := state("left").Result; r == nil || r.Status != schemas.StatusExpired {
			t.Errorf("after its time: %+v", r)
		}
		seen := map[string]int{}
		for e, err := range streams.Events.Replay(t.Context(), b, string(alice)+"/c", schemas.Cursor{}) {
			if err != nil {
				t.Fatal(err)
			}
			seen[string(e.Value.Type)+" "+e.Value.Subject]++
		}
		for _, want := range []string{
			"approval.requested unasked", "approval.decided unasked", "call.finished unasked",
			"approval.requested left", "approval.decided left", "call.finished left",
			"approval.requested died", "approval.decided died", "call.accepted died",
		} {
			if seen[want] != 1 {
				t.Errorf("%s: %d times", want, seen[want])
			}
			delete(seen, want)
		}
		if len(seen) > 0 {
			t.Errorf("and %v", seen)
		}
		time.Sleep(streams.SettledKept + time.Hour) // records of answered approvals have expired, and are no longer handled
		if keys, err := lifecycle.OpenApprovals(b).Keys(t.Context()); err != nil || len(keys) > 0 {
			t.Errorf("kept: %v, %v", keys, err)
		}
		stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
