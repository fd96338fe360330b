package admission

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
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
		ID: id, Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"make","background":true}`), Group: &schemas.GroupRef{ID: "g", Size: 2},
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
	s, err := streams.ReadCallState(t.Context(), b, c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Result
}

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	yes, no := lifecycle.Decision{State: schemas.ApprovalApproved, By: "api", Reason: "fine"}, lifecycle.Decision{State: schemas.ApprovalDenied, By: "websocket", Reason: "no"}
	for name, c := range map[string]struct {
		state   schemas.ApprovalState
		expires time.Time
		answer  lifecycle.Decision
		want    schemas.ApprovalState
		by      string
		late    bool
	}{
		"yes":                       {schemas.ApprovalPending, now.Add(time.Second), yes, schemas.ApprovalApproved, "api", false},
		"no":                        {schemas.ApprovalPending, now.Add(time.Second), no, schemas.ApprovalDenied, "websocket", false},
		"yes at the very end":       {schemas.ApprovalPending, now, yes, schemas.ApprovalExpired, "deadline", false},
		"yes after the end":         {schemas.ApprovalPending, now.Add(-time.Hour), yes, schemas.ApprovalExpired, "deadline", false},
		"yes after yes":             {schemas.ApprovalApproved, now.Add(time.Second), yes, schemas.ApprovalApproved, "", true},
		"no after yes":              {schemas.ApprovalApproved, now.Add(time.Second), no, schemas.ApprovalApproved, "", true},
		"yes after no":              {schemas.ApprovalDenied, now.Add(time.Second), yes, schemas.ApprovalDenied, "", true},
		"yes after a cancellation":  {schemas.ApprovalCancelled, now.Add(time.Second), yes, schemas.ApprovalCancelled, "", true},
		"yes when it is expired":    {schemas.ApprovalExpired, now.Add(-time.Second), yes, schemas.ApprovalExpired, "", true},
		"yes to a state of the day": {"later", now.Add(time.Second), yes, "later", "", true},
	} {
		got, err := lifecycle.Judge(schemas.Approval{State: c.state, Expires: c.expires}, c.answer, now)
		if errors.Is(err, schemas.ErrConflict) != c.late || (err != nil) != c.late {
			t.Errorf("%s: %v", name, err)
		}
		if got.State != c.want || got.DecidedBy != c.by || !c.late && !got.Decided.Equal(now) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAParkedCallWaitsForItsAnswerAndThenHasItsWholeTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		got := admit(t, b, bash("x", "true"))
		if !got.Awaiting || got.Existing || got.Call.Approval == "" {
			t.Fatalf("%+v", got)
		}
		if calls := queued(t, b); len(calls) != 0 {
			t.Fatalf("a worker finds %+v", calls)
		}
		if c, err := streams.FindCall(t.Context(), b, alice, "x"); err != nil || c.Approval != got.Call.Approval {
			t.Errorf("%+v, %v", c, err)
		}
		time.Sleep(5 * time.Hour) // of virtual time: longer than the call's own
		a, err := Approvals{Bus: b}.Decide(t.Context(), alice, got.Call.Approval, lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: "go"})
		if err != nil || a.State != schemas.ApprovalApproved || a.Reason != "go" {
			t.Fatalf("%+v, %v", a, err)
		}
		calls := queued(t, b)
		if len(calls) != 1 || calls[0].ID != "x" || !calls[0].Deadline.Equal(a.Decided.Add(time.Hour)) || !calls[0].Accepted.Equal(a.Decided) ||
			calls[0].Digest != got.Call.Digest || string(calls[0].Input) != string(got.Call.Input) {
			t.Errorf("the worker finds %+v", calls)
		}
		want := []schemas.EventType{schemas.ApprovalRequested, schemas.ApprovalDecided, schemas.CallAccepted}
		if have := types(t, b); !slices.Equal(have, want) {
			t.Errorf("the conversation has %v, want %v", have, want)
		}
		if a := approval(t, b, a.ID); !a.Done {
			t.Error("it is not done")
		}
		// A repeat finds it, and does not ask again.
		if again := admit(t, b, bash("x", "true")); !again.Existing || again.Awaiting || len(queued(t, b)) != 1 {
			t.Errorf("the repeat: %+v", again)
		}
	})
}

func TestARepeatFindsTheParkedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		first := admit(t, b, bash("x", "true"))
		time.Sleep(time.Hour)
		again := admit(t, b, bash("x", "true"))
		if !again.Existing || !again.Awaiting || again.Call.Approval != first.Call.Approval {
			t.Errorf("%+v after %+v", again, first)
		}
		// Whatever the sandbox has become since: the first admission counts.
		bypass := Admitter{Bus: b, Records: &book{bypass: true}, Kind: API}
		got, err := bypass.Admit(t.Context(), alice, bash("x", "true"))
		if err != nil || !got.Awaiting || len(queued(t, b)) != 0 {
			t.Errorf("in a sandbox that no longer asks: %+v, %v", got, err)
		}
		for name, d := range map[string]Admitter{"asking": {Bus: b, Records: &book{}}, "not asking": bypass} {
			if _, err := d.Admit(t.Context(), alice, bash("x", "false")); !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("%s, other content: %v", name, err)
			}
		}
		// And the other way round: what runs without an approval is not asked about later.
		if _, err := bypass.Admit(t.Context(), alice, bash("y", "true")); err != nil {
			t.Fatal(err)
		}
		if got := admit(t, b, bash("y", "true")); got.Awaiting || !got.Existing {
			t.Errorf("%+v", got)
		}
		if have := types(t, b); !slices.Equal(have, []schemas.EventType{schemas.ApprovalRequested, schemas.CallAccepted}) {
			t.Errorf("the conversation has %v", have)
		}
	})
}

// A process that dies after the first write leaves a call that nobody is asked about; its client, which
// got no answer, repeats the request.
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

func TestCallsThatAreNotApprovedEndWithoutBeingRun(t *testing.T) {
	for state, want := range map[schemas.ApprovalState]struct {
		status schemas.Status
		text   string
	}{
		schemas.ApprovalDenied:    {schemas.DeniedBy, "denied by a person: why not"},
		schemas.ApprovalCancelled: {schemas.Cancelled, "Cancelled before it was approved. It was not run. Reason: why not"},
		schemas.ApprovalExpired:   {schemas.Expired, "Expired: nobody approved this call in time. It was not run."},
	} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *streams.Bus) {
				call := admit(t, b, inBackground("x")).Call
				s := Approvals{Bus: b}
				var err error
				switch state {
				case schemas.ApprovalDenied:
					_, err = s.Decide(t.Context(), alice, call.Approval, lifecycle.Decision{State: state, By: API, Reason: "why not"})
				case schemas.ApprovalCancelled:
					var ended bool
					if ended, err = s.Cancel(t.Context(), call, API, "why not"); !ended {
						t.Error("it was not ended")
					}
				default:
					if err := s.Expire(t.Context(), alice, call.Approval); err != nil || approval(t, b, call.Approval).State != schemas.ApprovalPending {
						t.Errorf("expired before its time: %v", err)
					}
					time.Sleep(schemas.DefaultApproval)
					err = s.Expire(t.Context(), alice, call.Approval)
				}
				if err != nil {
					t.Fatal(err)
				}
				r := result(t, b, call)
				if r == nil || r.Status != want.status || r.Text != want.text || len(queued(t, b)) != 0 {
					t.Errorf("%+v", r)
				}
				if have := types(t, b); !slices.Equal(have, []schemas.EventType{schemas.ApprovalRequested, schemas.ApprovalDecided, schemas.CallFinished}) {
					t.Errorf("the conversation has %v", have)
				}
				// Its group must not wait for the job.
				if c, err := lifecycle.FindCompletion(t.Context(), b, alice, call.Job); err != nil || c.State != schemas.JobUnstarted {
					t.Errorf("the job: %+v, %v", c, err)
				}
				if _, err := s.Decide(t.Context(), alice, call.Approval, lifecycle.Decision{State: schemas.ApprovalApproved}); !errors.Is(err, schemas.ErrConflict) {
					t.Errorf("approved afterwards: %v", err)
				}
			})
		})
	}
}

func TestTooLateAnAnswerEndsTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, bash("x", "true")).Call
		time.Sleep(schemas.DefaultApproval)
		a, err := Approvals{Bus: b}.Decide(t.Context(), alice, call.Approval, lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: ""})
		if !errors.Is(err, schemas.ErrConflict) || a.State != schemas.ApprovalExpired || len(queued(t, b)) != 0 {
			t.Errorf("%+v, %v", a, err)
		}
		if r := result(t, b, call); r == nil || r.Status != schemas.Expired {
			t.Errorf("%+v", r)
		}
	})
}

func TestTheFirstAnswerCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		for _, id := range []schemas.CallID{"x1", "x2", "x3"} {
			call := admit(t, b, bash(id, "true")).Call
			answers := []schemas.ApprovalState{schemas.ApprovalApproved, schemas.ApprovalDenied, schemas.ApprovalCancelled}
			var mu sync.Mutex
			var won []schemas.ApprovalState
			var race sync.WaitGroup
			for i := range 9 {
				race.Go(func() {
					d := lifecycle.Decision{State: answers[i%3], By: API}
					a, err := Approvals{Bus: b}.Decide(t.Context(), alice, call.Approval, d)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won = append(won, a.State)
					} else if !errors.Is(err, schemas.ErrConflict) {
						t.Error(err)
					}
				})
			}
			race.Wait()
			if len(won) != 1 || approval(t, b, call.Approval).State != won[0] {
				t.Fatalf("these won: %v; the record says %s", won, approval(t, b, call.Approval).State)
			}
			if r := result(t, b, call); (r == nil) != (won[0] == schemas.ApprovalApproved) {
				t.Errorf("%s: result %+v", won[0], r)
			}
		}
	})
}

func TestAnotherAccountsApprovalIsNotThere(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, bash("x", "true")).Call
		s := Approvals{Bus: b}
		_, foreign := s.Decide(t.Context(), bob, call.Approval, lifecycle.Decision{State: schemas.ApprovalApproved})
		_, never := s.Decide(t.Context(), bob, "appr_never", lifecycle.Decision{State: schemas.ApprovalApproved})
		if !errors.Is(foreign, schemas.ErrNotFound) || strings.Replace(foreign.Error(), string(call.Approval), "appr_never", 1) != never.Error() {
			t.Errorf("%v\n%v", foreign, never)
		}
		if a := approval(t, b, call.Approval); a.State != schemas.ApprovalPending {
			t.Errorf("it is %s", a.State)
		}
	})
}

func TestALargeInputStaysWithTheParkedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		for id, size := range map[schemas.CallID]int{"x": 100 << 10, "y": 2 << 20} { // the second is larger than a message
			r := bash(id, strings.Repeat("#", size))
			call := admit(t, b, r).Call
			a := approval(t, b, call.Approval)
			if a.Call.Input != nil || a.InputSize != len(r.Input) || !a.LeftOut() {
				t.Errorf("the record has %d of %d bytes", len(a.Call.Input), a.InputSize)
			}
			if again := admit(t, b, r); !again.Awaiting {
				t.Errorf("the repeat: %+v", again.Existing)
			}
			if _, err := (Approvals{Bus: b}).Decide(t.Context(), alice, call.Approval, lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: ""}); err != nil {
				t.Fatal(err)
			}
			if c, err := streams.FindCall(t.Context(), b, alice, id); err != nil || string(c.Input) != string(r.Input) {
				t.Errorf("the call has %d of %d bytes: %v", len(c.Input), len(r.Input), err)
			}
		}
		for e, err := range streams.Events.Replay(t.Context(), b, string(alice)+"/c", schemas.Cursor{}) {
			if err != nil || len(e.Value.Data) > 64<<10 {
				t.Errorf("%s has %d bytes, %v", e.Value.Type, len(e.Value.Data), err)
			}
		}
	})
}

// The process that took an answer dies after each of its writes. Whoever goes on does what is left, and
// nothing twice, however late.
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
				Job: c.Job, Account: alice, State: schemas.JobUnstarted, Via: schemas.ViaCall, Finished: time.Now().UTC(),
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
		if r := result(t, b, large); r == nil || r.Status != schemas.Failed || !strings.Contains(r.Text, "call again") {
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
		if c, err := streams.FindCall(t.Context(), b, alice, "z"); err != nil || c.Approval != other.Approval || len(queued(t, b)) != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// forget removes the calls that are a day old, as if each had its end.
func forget(t *testing.T, b *streams.Bus) {
	t.Helper()
	_, before, err := streams.OldCalls(t.Context(), b, 0)
	if err == nil {
		err = streams.ForgetCalls(t.Context(), b, before)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// end gives a call a result, as a worker does.
func end(t *testing.T, b *streams.Bus, c schemas.Call) {
	t.Helper()
	r := schemas.Result{Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: schemas.Completed}
	if err := streams.Events.Publish(t.Context(), b, schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), time.Now(), r)); err != nil {
		t.Fatal(err)
	}
}

// An answer whose call has been handed on, run and forgotten is only noted: the call is not handed on again.
func TestAnAnswerWhoseCallHasRunIsNotHandedOnAgain(t *testing.T) {
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

// unserved are providers of which one is served.
type unserved struct{ only string }

func (u unserved) Serves(_ context.Context, provider string) (bool, error) {
	return provider == u.only, nil
}

// A call that nobody would take is refused at once, with the remedy, unless it says that it waits. The repeat of one
// that was taken is that one.
func TestACallThatNobodyWouldTakeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		admitter := Admitter{Bus: b, Records: &book{}, Kind: API, Serving: unserved{"other"}}
		_, err := admitter.Admit(t.Context(), alice, bash("x", "true"))
		if schemas.CodeOf(err) != schemas.Unavailable || !strings.Contains(err.Error(), "wait_for_worker") {
			t.Errorf("%v: want it refused with the remedy", err)
		}
		if _, err := streams.FindCall(t.Context(), b, alice, "x"); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("%v: it is a call all the same", err)
		}
		waits := bash("x", "true")
		waits.WaitForWorker = true
		first, err := admitter.Admit(t.Context(), alice, waits)
		if err != nil {
			t.Fatal(err)
		}
		again, err := admitter.Admit(t.Context(), alice, bash("x", "true"))
		if err != nil || !again.Existing || again.Call.Accepted != first.Call.Accepted {
			t.Errorf("%+v, %v: want the call that waits", again, err)
		}
		admitter.Serving = unserved{first.Call.Provider}
		if _, err := admitter.Admit(t.Context(), alice, bash("y", "true")); err != nil {
			t.Errorf("where it is served: %v", err)
		}
	})
}

// An id is free again a day after its call was admitted, once that has its end, also before it is forgotten.
func TestAnIDIsUsedAgainAfterADay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		ended, open := admit(t, b, bash("ended", "true")).Call, admit(t, b, bash("open", "true")).Call
		end(t, b, ended)
		time.Sleep(25 * time.Hour)
		again := admit(t, b, bash("ended", "echo other"))
		if again.Existing || again.Call.Digest == ended.Digest {
			t.Errorf("%+v: want a new call", again)
		}
		if got, err := streams.FindCall(t.Context(), b, alice, "ended"); err != nil || got.Digest != again.Call.Digest {
			t.Errorf("%v, %v", got.Digest, err)
		}
		if got := admit(t, b, bash("open", "true")); !got.Existing || got.Call.Accepted != open.Accepted {
			t.Errorf("%+v: want the call that has no end yet", got)
		}
	})
}

func TestCancellingAnApprovedCallIsNotItsEndYet(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, bash("x", "true")).Call
		s := Approvals{Bus: b}
		if _, err := s.Decide(t.Context(), alice, call.Approval, lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: ""}); err != nil {
			t.Fatal(err)
		}
		if ended, err := s.Cancel(t.Context(), call, API, ""); ended || err != nil {
			t.Errorf("%v, %v: it is with the workers", ended, err)
		}
		if ended, err := s.Cancel(t.Context(), schemas.Call{}, API, ""); ended || err != nil {
			t.Errorf("a call without an approval: %v, %v", ended, err)
		}
	})
}
