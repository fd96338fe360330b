package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A process that dies after the first write leaves a call without a published question. Its client, which got no answer, repeats the
// request.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestARepeatCompletesWhatACrashLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call, err := (&book{}).Resolve(t.Context(), alice, bash("x", "true"))
		if err != nil {
			t.Fatal(err)
		}
		if err := streams.Parked.Publish(t.Context(), b, call); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute) // longer than the log recognises an event by its id
		for range 2 {
			got := admit(t, b, bash("x", "true"))
			if !got.Awaiting || got.Call.Approval != call.Approval {
				t.Errorf("%+v", got)
			}
			if a := approval(t, b, call.Approval); a.State != schemas.ApprovalPending || !a.Requested.Equal(call.Accepted) {
				t.Errorf("%+v", a)
			}
			time.Sleep(20 * time.Minute)
		}
		if have := types(t, b); !slices.Equal(have, []schemas.EventType{schemas.ApprovalRequested}) {
			t.Errorf("the conversation has %v", have)
		}
	})
}

// leaving is the context of a client that goes away as soon as its call is on the log.
type leaving struct {
	context.Context //nolint:containedctx // it is one

	stored func() bool
}

func (l leaving) Done() <-chan struct{} {
	if !l.stored() {
		return nil
	}
	gone := make(chan struct{})
	close(gone)
	return gone
}

func (l leaving) Err() error {
	if l.stored() {
		return context.Canceled
	}
	return nil
}

// A client disconnects once its call is parked: the question is still asked.
func TestAParkedCallHasItsQuestionThoughItsClientLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		ctx := leaving{t.Context(), func() bool {
			_, err := b.Calls().Find(t.Context(), alice, "x")
			return err == nil
		}}
		got, _ := Admitter{Bus: b, Records: &book{}, Kind: API}.Admit(ctx, alice, bash("x", "true"))
		if ctx.Err() == nil {
			t.Fatal("the call is not on the log")
		}
		call, err := b.Calls().Find(t.Context(), alice, "x")
		if err != nil {
			t.Fatal(err)
		}
		if a := approval(t, b, call.Approval); a.State != schemas.ApprovalPending {
			t.Errorf("%+v", a)
		}
		if have := types(t, b); !slices.Equal(have, []schemas.EventType{schemas.ApprovalRequested}) {
			t.Errorf("the conversation has %v; the answer was %+v", have, got)
		}
	})
}

// The process that took an answer dies after each of its writes. The process that continues does what is left, and nothing twice, however
// late.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAnAnswerIsFinishedAfterACrashAtAnyStage(t *testing.T) {
	for name, state := range map[string]schemas.ApprovalState{"approved": schemas.ApprovalApproved, "denied": schemas.ApprovalDenied} {
		for stage := range 6 {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *streams.Bus) {
					call := admit(t, b, inBackground("x")).Call
					s := Approvals{Bus: b}
					a := dieAfter(t, b, call, state, stage)
					time.Sleep(20 * time.Minute) // longer than the log recognises an event by its id
					for range 2 {
						if err := s.Finish(t.Context(), alice, call.Approval); err != nil {
							t.Fatal(err)
						}
					}
					want := []schemas.EventType{schemas.ApprovalRequested, schemas.ApprovalDecided, schemas.CallAccepted}
					runs := 1
					if state == schemas.ApprovalDenied {
						want[2], runs = schemas.CallFinished, 0
					}
					if have := types(t, b); !slices.Equal(have, want) {
						t.Errorf("dead after %d writes: the conversation has %v, want %v", stage, have, want)
					}
					calls := queued(t, b)
					if len(calls) != runs || runs == 1 && !calls[0].Deadline.Equal(a.Decided.Add(time.Hour)) {
						t.Errorf("dead after %d writes: a worker finds %+v", stage, calls)
					}
					if j, err := lifecycle.FindJob(t.Context(), b, alice, call.Job); err != nil {
						t.Errorf("dead after %d writes: the job %+v, %v", stage, j.Value, err)
					}
					_, err := lifecycle.FindCompletion(t.Context(), b, alice, call.Job)
					if errors.Is(err, schemas.ErrNotFound) != (runs == 1) {
						t.Errorf("dead after %d writes: the job's end: %v", stage, err)
					}
					if !approval(t, b, call.Approval).Done {
						t.Errorf("dead after %d writes: it is not done", stage)
					}
				})
			})
		}
	}
}

// dieAfter answers an approval and makes the first writes that follow: the event, the call or its
// result, the job's record, and call.accepted or the job's end.
func dieAfter(t *testing.T, b *streams.Bus, c schemas.Call, state schemas.ApprovalState, writes int) schemas.Approval {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := lifecycle.FindApproval(ctx, b, alice, c.Approval)
	must(err)
	a, err := lifecycle.Judge(p.Value, lifecycle.Decision{State: state, By: API, Reason: ""}, time.Now())
	must(err)
	_, err = lifecycle.OpenApprovals(b).Update(ctx, p.Key, a, p.Revision)
	must(err)
	released := c
	released.Accepted, released.Deadline = a.Decided, a.Decided.Add(time.Hour)
	steps := []func(){
		func() {
			must(streams.Events.Publish(ctx, b, schemas.NewEvent(c, schemas.ApprovalDecided, schemas.ApprovalDecidedID(alice, a.ID), a.Decided,
				schemas.ApprovalDecidedData{ID: a.ID, Call: c.ID, State: a.State, DecidedBy: API})))
		},
		func() {
			if state == schemas.ApprovalApproved {
				must(lifecycle.ReleaseCall(ctx, b, released))
				return
			}
			r := lifecycle.RefusedResult(a)
			r.Finished = time.Now().UTC()
			must(streams.Events.Publish(ctx, b, schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(alice, c.ID), r.Finished, r)))
		},
		func() {
			_, err := lifecycle.EnsureJob(ctx, b, released)
			must(err)
		},
		func() {
			if state == schemas.ApprovalApproved {
				must(streams.Events.Publish(ctx, b, schemas.AcceptedEvent(released)))
				return
			}
			_, err := lifecycle.Complete(ctx, b, schemas.Completion{
				Job: c.Job, Account: alice, State: schemas.JobUnstarted, ReportedBy: schemas.ReportedByCall, Finished: time.Now().UTC(),
			})
			must(err)
		},
		func() { must(Approvals{Bus: b}.Finish(ctx, alice, a.ID)) },
	}
	for _, step := range steps[:writes] {
		step()
	}
	return a
}

// What follows from an answer was left undone for longer than the log keeps calls.
func TestAnAnswerIsFinishedAfterTheCallHasAgedOut(t *testing.T) {
	natstest.Hours(t)
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		small, large := admit(t, b, bash("x", "true")).Call, admit(t, b, bash("y", strings.Repeat("#", 100<<10))).Call
		dieAfter(t, b, small, schemas.ApprovalApproved, 0)
		dieAfter(t, b, large, schemas.ApprovalApproved, 0)
		time.Sleep(25 * time.Hour)
		forget(t, b)
		for _, c := range []schemas.Call{small, large} {
			if err := (Approvals{Bus: b}).Finish(t.Context(), alice, c.Approval); err != nil {
				t.Fatal(err)
			}
		}
		if calls := queued(t, b); len(calls) != 1 || calls[0].ID != "x" { // its deadline has passed: a worker ends it
			t.Errorf("a worker finds %+v", calls)
		}
		if r := result(t, b, large); r == nil || r.Status != schemas.StatusFailed || !strings.Contains(r.Text, "call again") {
			t.Errorf("%+v", r)
		}
		// An id that was used again is the other call's.
		lost := admit(t, b, bash("z", "true")).Call
		dieAfter(t, b, lost, schemas.ApprovalApproved, 0)
		time.Sleep(25 * time.Hour)
		forget(t, b)
		other := admit(t, b, bash("z", "echo other")).Call
		if err := (Approvals{Bus: b}).Finish(t.Context(), alice, lost.Approval); err != nil {
			t.Fatal(err)
		}
		if c, err := b.Calls().Find(t.Context(), alice, "z"); err != nil || c.Approval != other.Approval || len(queued(t, b)) != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// An answer whose call has been handed on, run and forgotten is only noted: the call is not handed on again.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAnAnswerWhoseCallHasRunIsNotHandedOnAgain(t *testing.T) {
	natstest.Hours(t)
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, bash("x", "true")).Call
		a := dieAfter(t, b, call, schemas.ApprovalApproved, 0)
		released := call
		released.Accepted, released.Deadline = a.Decided, a.Decided.Add(time.Hour)
		if err := lifecycle.ReleaseCall(t.Context(), b, released); err != nil {
			t.Fatal(err)
		}
		end(t, b, released)
		time.Sleep(25 * time.Hour)
		forget(t, b)
		if err := (Approvals{Bus: b}).Finish(t.Context(), alice, call.Approval); err != nil {
			t.Fatal(err)
		}
		if calls := queued(t, b); len(calls) != 0 {
			t.Errorf("it was handed on again: %+v", calls[0].ID)
		}
	})
}
