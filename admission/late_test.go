package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// late is longer than the log recognises what is published a second time.
const late = 11 * time.Minute

// TestASuspendedWorkerReportsNothingTwice: this process is suspended after a call, or an answer, is confirmed and before its event is
// published, while other processes do all that follows. No event of a call follows its result.
//
//guarantee:one-result-for-every-accepted-call
func TestASuspendedWorkerReportsNothingTwice(t *testing.T) {
	for _, state := range []schemas.ApprovalState{"", schemas.ApprovalApproved, schemas.ApprovalDenied} {
		t.Run("answer "+string(state), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *streams.Bus) {
				admitter := Admitter{Bus: b, Records: &book{bypass: state == ""}, Kind: API}
				absent := b.Absent()
				got, err := admitter.Admit(t.Context(), alice, inBackground("x"))
				if err != nil {
					t.Fatal(err)
				}
				call := got.Call
				resume := func() { admitter.publish(t.Context(), schemas.AcceptedEvent(call), absent) }
				if state != "" {
					p, err := lifecycle.FindApproval(t.Context(), b, alice, call.Approval)
					if err != nil {
						t.Fatal(err)
					}
					absent = b.Absent()
					p.Value = dieAfter(t, b, call, state, 0)
					if err := (Approvals{Bus: b}).Finish(t.Context(), alice, p.Value.ID); err != nil {
						t.Fatal(err)
					}
					resume = func() { (Approvals{Bus: b}).finishNow(t.Context(), p, absent) }
				}
				if state != schemas.ApprovalDenied {
					end(t, b, call)
				}
				before := types(t, b)
				time.Sleep(late)
				resume()
				if after := types(t, b); !slices.Equal(before, after) || after[len(after)-1] != schemas.CallFinished {
					t.Errorf("events %v, before it stood still %v", after, before)
				}
			})
		})
	}
}

// TestAQuestionThatWasNotPublishedIsAsked: the process that parked a call died before it published the question, or the log did not take the
// event. The process that checks the approval asks, once, and never behind the answer.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAQuestionThatWasNotPublishedIsAsked(t *testing.T) {
	for _, wait := range []time.Duration{0, late} {
		for _, answered := range []bool{false, true} {
			inBubble(t, func(t *testing.T, b *streams.Bus) {
				c, err := (&book{}).Resolve(t.Context(), alice, bash("x", "true"))
				if err != nil {
					t.Fatal(err)
				}
				absent := b.Absent()
				if err := streams.Parked.Publish(t.Context(), b, c); err != nil {
					t.Fatal(err)
				}
				p, err := lifecycle.EnsureApproval(t.Context(), b, c)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(wait)
				s := Approvals{Bus: b}
				want := []schemas.EventType{schemas.ApprovalRequested}
				if answered {
					if _, err := s.Decide(t.Context(), alice, c.Approval, lifecycle.Decision{State: schemas.ApprovalDenied, By: API}); err != nil {
						t.Fatal(err)
					}
					want = append(want, schemas.ApprovalDecided, schemas.CallFinished)
				}
				for range 2 {
					if err := s.Ask(t.Context(), alice, c.Approval); err != nil {
						t.Fatal(err)
					}
					time.Sleep(wait)
				}
				if err := lifecycle.Ask(t.Context(), b, p, absent); err != nil { // the process that parked it was suspended
					t.Fatal(err)
				}
				if got := types(t, b); !slices.Equal(got, want) || !approval(t, b, c.Approval).Asked {
					t.Errorf("waited %v, answered %v: events %v, want %v", wait, answered, got, want)
				}
			})
		}
	}
}
