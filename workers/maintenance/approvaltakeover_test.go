package maintenance

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/internal/inturn"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// asking returns a call that waits for an approval, and stores its approval.
func (w *world) asking(id string) schemas.Call {
	w.Helper()
	now := w.bus.Now()
	request := schemas.Request{ID: schemas.CallID(id), Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)}
	c := schemas.Call{
		ID: request.ID, Account: testAccount, Conversation: request.Conversation, Tool: request.Tool, Input: request.Input, Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour),
		Digest: request.Digest(), Approval: schemas.NewApprovalID(),
	}
	if err := streams.Parked.Publish(w.Context(), w.bus, c); err != nil {
		w.Fatal(err)
	}
	if _, err := lifecycle.EnsureApproval(w.Context(), w.bus, c); err != nil {
		w.Fatal(err)
	}
	return c
}

// The result counts the events of the conversation, by type and call.
func (w *world) told() map[string]int {
	w.Helper()
	seen := map[string]int{}
	for e, err := range streams.Events.Replay(w.Context(), w.bus, string(testAccount)+"/c", schemas.Cursor{}) {
		if err != nil {
			w.Fatal(err)
		}
		seen[string(e.Value.Type)+" "+e.Value.Subject]++
	}
	return seen
}

// wantTold fails the test unless the conversation has exactly these events, each once.
func (w *world) wantTold(want ...string) {
	w.Helper()
	seen := w.told()
	for _, what := range want {
		if seen[what] != 1 {
			w.Errorf("%s: %d times, want once", what, seen[what])
		}
		delete(seen, what)
	}
	if len(seen) > 0 {
		w.Errorf("and %v", seen)
	}
}

func (w *world) approval(c schemas.Call) streams.BucketEntry[schemas.Approval] {
	w.Helper()
	p, err := lifecycle.FindApproval(w.Context(), w.bus, c.Account, c.Approval)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// One process handles approvals. When it crashes, another process handles those that are due then, and those that became due meanwhile.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAnotherProcessTakesOverApprovals(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(process)
		within time.Duration
	}{
		"the first ends": {func(p process) { p.stop() }, 15 * time.Second},
		"the first dies": {func(p process) { cut(p.bus) }, streams.DutyTakenOver},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Hours(t)
			inWorld(t, func(w *world) {
				expirer := func(b *streams.Bus) func(context.Context) error { return (&ApprovalExpirer{Bus: b}).Run }
				first := w.begin(expirer)
				defer first.stop()
				time.Sleep(time.Second)
				second := w.begin(expirer)
				defer second.stop()
				left := w.asking("left")
				time.Sleep(time.Minute)
				if !w.approval(left).Value.Asked {
					t.Error("the first has not asked")
				}
				time.Sleep(time.Until(w.approval(left).Value.Expires.Add(-time.Second)))
				c.end(first) // a second before there is something to do
				unasked := w.asking("unasked")
				time.Sleep(c.within + 10*time.Second)
				if p := w.approval(left).Value; p.State != schemas.ApprovalExpired || !p.Done {
					t.Errorf("what nobody answered is %s, done: %v", p.State, p.Done)
				}
				if p := w.approval(unasked).Value; p.State != schemas.ApprovalPending || !p.Asked {
					t.Errorf("the other one is %s, asked: %v", p.State, p.Asked)
				}
				w.wantTold("approval.requested left", "approval.decided left", "call.finished left", "approval.requested unasked")
			})
		})
	}
}

// A process reads the due approvals, is suspended for eleven minutes while a person answers, and continues: before each step, and in the
// middle of one. Nothing is published twice, and no answer is overridden.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAnApprovalExpirerThatStoodStillChangesNoAnswer(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(w *world) {
		x := &ApprovalExpirer{Bus: w.bus, Every: DefaultApprovalEvery, Log: slog.New(slog.DiscardHandler)}
		approvals := admission.Approvals{Bus: w.bus}
		answered, due := w.asking("answered"), w.asking("due")
		for _, c := range []schemas.Call{answered, due} {
			if err := approvals.Ask(w.Context(), c.Account, c.Approval); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(schemas.DefaultApproval - 5*time.Minute)
		seen := map[string]openApproval{} // just before they are due
		for _, c := range []schemas.Call{answered, due} {
			p := w.approval(c)
			seen[p.Key], _ = x.keep(p)
		}
		if _, err := approvals.Decide(w.Context(), answered.Account, answered.Approval,
			lifecycle.Decision{State: schemas.ApprovalApproved, By: "api"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute) // not noticed by the process

		x.look(w.Context(), &streams.Tenure{}, seen) // a tenure that began long ago, so that another process has the duty
		if p := w.approval(due).Value; p.State != schemas.ApprovalPending {
			t.Errorf("a process that may have lost the duty has ended an approval: %s", p.State)
		}
		for range 2 { // it was suspended right after it checked its tenure, and another process did the same meanwhile
			x.look(w.Context(), nil, seen)
		}
		if p := w.approval(answered).Value; p.State != schemas.ApprovalApproved {
			t.Errorf("the answered one is %s", p.State)
		}
		if p := w.approval(due).Value; p.State != schemas.ApprovalExpired {
			t.Errorf("the one that was due is %s", p.State)
		}
		w.wantTold("approval.requested answered", "approval.decided answered", "call.accepted answered",
			"approval.requested due", "approval.decided due", "call.finished due")
	})
}

//guarantee:what-one-tenant-can-do-to-another
func TestApprovalsAreLookedAfterInTurn(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var due []openApproval
	for i := range 10_000 {
		due = append(due, openApproval{account: "acct_flood", id: schemas.ApprovalID(fmt.Sprint("flood_", i)), due: at(i)})
	}
	due = append(due, openApproval{account: "acct_b", id: "b", due: at(20_000)}, openApproval{account: "acct_a", id: "a2", due: at(30_001)},
		openApproval{account: "acct_a", id: "a1", due: at(30_000)})
	var got []string
	for _, o := range inturn.Order(due, openApproval.of, openApproval.older)[:6] {
		got = append(got, string(o.id))
	}
	if want := []string{"flood_0", "b", "a1", "flood_1", "a2", "flood_2"}; !slices.Equal(got, want) {
		t.Errorf("looked after in the order %v, want %v", got, want)
	}
	if len(inturn.Order(due, openApproval.of, openApproval.older)) != 10_003 {
		t.Errorf("%d approvals of 10,003", len(inturn.Order(due, openApproval.of, openApproval.older)))
	}
}
