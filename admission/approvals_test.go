package admission

import (
	"errors"
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

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	yes, no := lifecycle.Decision{State: schemas.ApprovalApproved, By: "api", Reason: "fine"},
		lifecycle.Decision{State: schemas.ApprovalDenied, By: "websocket", Reason: "no"}
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

//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAParkedCallWaitsForItsAnswerAndThenHasItsWholeTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		got := admit(t, b, bash("x", "true"))
		if !got.Awaiting || got.Existing || got.Call.Approval == "" {
			t.Fatalf("%+v", got)
		}
		if calls := queued(t, b); len(calls) != 0 {
			t.Fatalf("a worker finds %+v", calls)
		}
		if c, err := b.Calls().Find(t.Context(), alice, "x"); err != nil || c.Approval != got.Call.Approval {
			t.Errorf("%+v, %v", c, err)
		}
		time.Sleep(5 * time.Hour) // of virtual time: longer than the call's own
		a, err := Approvals{Bus: b}.Decide(t.Context(), alice, got.Call.Approval,
			lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: "go"})
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

func TestCallsThatAreNotApprovedEndWithoutBeingRun(t *testing.T) {
	for state, want := range map[schemas.ApprovalState]struct {
		status schemas.Status
		text   string
	}{
		schemas.ApprovalDenied:    {schemas.StatusDenied, "denied by a person: why not"},
		schemas.ApprovalCancelled: {schemas.StatusCancelled, "Cancelled before it was approved. It was not run. Reason: why not"},
		schemas.ApprovalExpired:   {schemas.StatusExpired, "Expired: nobody approved this call in time. It was not run."},
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
				if have := types(t, b); !slices.Equal(have,
					[]schemas.EventType{schemas.ApprovalRequested, schemas.ApprovalDecided, schemas.CallFinished}) {
					t.Errorf("the conversation has %v", have)
				}
				// Its group must not wait for the job.
				if c, err := lifecycle.FindCompletion(t.Context(), b, alice, call.Job); err != nil || c.State != schemas.JobUnstarted {
					t.Errorf("the job: %+v, %v", c, err)
				}
				if _, err := s.Decide(t.Context(), alice, call.Approval,
					lifecycle.Decision{State: schemas.ApprovalApproved}); !errors.Is(err, schemas.ErrConflict) {
					t.Errorf("approved afterwards: %v", err)
				}
			})
		})
	}
}

func TestTooLateAnAnswerEndsTheCall(t *testing.T) {
	natstest.Hours(t)
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, bash("x", "true")).Call
		time.Sleep(schemas.DefaultApproval)
		a, err := Approvals{Bus: b}.Decide(t.Context(), alice, call.Approval,
			lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: ""})
		if !errors.Is(err, schemas.ErrConflict) || a.State != schemas.ApprovalExpired || len(queued(t, b)) != 0 {
			t.Errorf("%+v, %v", a, err)
		}
		if r := result(t, b, call); r == nil || r.Status != schemas.StatusExpired {
			t.Errorf("%+v", r)
		}
	})
}

//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
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
		for id, size := range map[schemas.CallID]int{"x": 100 << 10, "y": schemas.MaxCommand} { // the second is larger than a message
			r := bash(id, strings.Repeat("#", size))
			call := admit(t, b, r).Call
			a := approval(t, b, call.Approval)
			if a.Call.Input != nil || a.InputSize != len(r.Input) || !a.LeftOut() {
				t.Errorf("the record has %d of %d bytes", len(a.Call.Input), a.InputSize)
			}
			if again := admit(t, b, r); !again.Awaiting {
				t.Errorf("the repeat: %+v", again.Existing)
			}
			if _, err := (Approvals{Bus: b}).Decide(t.Context(), alice, call.Approval,
				lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: ""}); err != nil {
				t.Fatal(err)
			}
			if c, err := b.Calls().FindWhole(t.Context(), alice, id); err != nil || string(c.Input) != string(r.Input) {
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

func TestCancellingAnApprovedCallIsNotItsEndYet(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		call := admit(t, b, bash("x", "true")).Call
		s := Approvals{Bus: b}
		if _, err := s.Decide(t.Context(), alice, call.Approval,
			lifecycle.Decision{State: schemas.ApprovalApproved, By: API, Reason: ""}); err != nil {
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
