package natsapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// answering are records whose answers a test decides.
type answering struct {
	book

	answer func(a schemas.AccountID) error // nil: as the book says
	asked  *atomic.Int64
}

func (r answering) Resolve(ctx context.Context, a schemas.AccountID, req schemas.Request) (schemas.Call, error) {
	if r.asked != nil {
		r.asked.Add(1)
	}
	if err := r.answer(a); err != nil {
		return schemas.Call{}, err
	}
	return r.book.Resolve(ctx, a, req)
}

// routing runs a router until the test wants it to end.
func routing(t *testing.T, b *streams.Bus, r admission.Records, patience ...time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- natsapi.IntakeConsumer{Bus: b, Records: r, Patience: slices.Max(append(patience, 0))}.Run(ctx)
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the router ended with %v", err)
		}
	}
}

func publishRaw(t *testing.T, b *streams.Bus, a schemas.AccountID, body string) {
	t.Helper()
	if err := streams.Intake.Publish(t.Context(), b, streams.Raw{Account: a, Data: []byte(body)}); err != nil {
		t.Fatal(err)
	}
}

// toldOn lists the events of a conversation as "type" or "call.rejected: code".
func toldOn(t *testing.T, b *streams.Bus, a schemas.AccountID, conv string) []string {
	t.Helper()
	var list []string
	for e, err := range streams.Events.Replay(t.Context(), b, string(a)+"/"+conv, schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		kind := string(e.Value.Type)
		if e.Value.Type == schemas.CallRejected {
			var d schemas.RejectedData
			if err := json.Unmarshal(e.Value.Data, &d); err != nil || d.Error == nil {
				t.Fatalf("%s: %v", e.Value.Data, err)
			}
			kind += ": " + string(d.Error.Code)
		}
		list = append(list, kind)
	}
	return list
}

func bashRequest(id, conv string) string {
	return fmt.Sprintf(`{"id":%q,"conversation":%q,"tool":"bash","input":{"command":"x"}}`, id, conv)
}

// TestPublicationsOutliveADayWithoutAGateway: what was confirmed is admitted when one is there.
//
//guarantee:one-result-for-every-accepted-call
func TestPublicationsOutliveADayWithoutAGateway(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		publishRaw(t, b, alice, bashRequest("mine", "c_1"))
		time.Sleep(25 * time.Hour)
		stop := routing(t, b, book{})
		time.Sleep(time.Minute)
		stop()
		if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.accepted]" {
			t.Errorf("the conversation has %s, want its call accepted", got)
		}
	})
}

// TestAPublicationIsTriedForAWeek: a part that is unavailable costs no publication its call. When it stays unavailable, the true reason
// is published on the conversation.
//
//guarantee:one-result-for-every-accepted-call
func TestAPublicationIsTriedForAWeek(t *testing.T) {
	natstest.Hours(t)
	away := schemas.Errorf(schemas.Unavailable, "a record cannot be read now")
	t.Run("back after ten minutes", func(t *testing.T) {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			back := time.Now().Add(10 * time.Minute)
			stop := routing(t, b, answering{answer: func(schemas.AccountID) error {
				if time.Now().Before(back) {
					return away
				}
				return nil
			}})
			publishRaw(t, b, alice, bashRequest("mine", "c_1"))
			time.Sleep(11 * time.Minute)
			stop()
			if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.accepted]" {
				t.Errorf("the conversation has %s, want its call accepted", got)
			}
		})
	})
	t.Run("away for good", func(t *testing.T) {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			asked := new(atomic.Int64)
			publishRaw(t, b, alice, bashRequest("mine", "c_1"))
			stop := routing(t, b, answering{answer: func(schemas.AccountID) error { return away }, asked: asked}, time.Hour)
			time.Sleep(50 * time.Minute)
			if got := toldOn(t, b, alice, "c_1"); len(got) > 0 || asked.Load() < 60 {
				t.Errorf("within its time it was told %v after %d tries", got, asked.Load())
			}
			time.Sleep(time.Hour)
			stop()
			if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.rejected: unavailable]" {
				t.Errorf("the conversation has %s, want why it was given up", got)
			}
			letters := letters(t, b)
			if len(letters) != 1 || !strings.Contains(letters[0].Reason, "cannot be read now") {
				t.Errorf("dead letters %+v, want one with the true reason", letters)
			}
		})
	})
	t.Run("a defect", func(t *testing.T) {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			stop := routing(t, b, answering{answer: func(schemas.AccountID) error { panic("a defect") }})
			publishRaw(t, b, alice, bashRequest("mine", "c_1"))
			time.Sleep(30 * time.Minute)
			stop()
			if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.rejected: internal]" {
				t.Errorf("the conversation has %s, want that it was given up", got)
			}
		})
	})
}

func letters(t *testing.T, b *streams.Bus) []schemas.DeadLetter {
	t.Helper()
	list, err := streams.OpenDeadLetters(b).List(t.Context(), "INTAKE", 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAnAccountThatIsHeldUpDelaysNoOther: hundreds of publications that cannot be admitted now cost a try a
// second, and another account's goes through at once.
//
//guarantee:one-result-for-every-accepted-call
func TestAnAccountThatIsHeldUpDelaysNoOther(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const flood = 200
		asked, locked := new(atomic.Int64), new(atomic.Bool)
		locked.Store(true)
		for n := range flood {
			publishRaw(t, b, alice, bashRequest(fmt.Sprint("call-", n), "c_alice"))
		}
		stop := routing(t, b, answering{asked: asked, answer: func(a schemas.AccountID) error {
			if a != alice || !locked.Load() {
				return nil
			}
			time.Sleep(5 * time.Second) // as a log that does not answer
			return schemas.Errorf(schemas.Unavailable, "the account's record is locked")
		}})
		time.Sleep(time.Minute)
		before := asked.Load()
		begun := time.Now()
		publishRaw(t, b, bob, bashRequest("bobs", "c_bob"))
		for len(toldOn(t, b, bob, "c_bob")) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("another account waited for %s", took)
		}
		time.Sleep(time.Minute)
		if tries := asked.Load() - before; tries > 100 {
			t.Errorf("%d tries for the account in a minute, want about one a second", tries)
		}
		locked.Store(false)
		time.Sleep(2 * time.Minute)
		stop()
		if got := len(toldOn(t, b, alice, "c_alice")); got != flood {
			t.Errorf("%d of %d calls were admitted when the record could be read", got, flood)
		}
	})
}

// taken hands a publication to a router that dies after it did something: nothing was acknowledged.
func taken(t *testing.T, b *streams.Bus, do func(streams.Publication)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		o := streams.ConsumeOptions{Name: "intake", MaxAttempts: 1_000_000, MaxPending: 100_000}
		done <- streams.Intake.Consume(ctx, b, o, func(_ context.Context, d streams.Delivery[streams.Raw]) error {
			do(streams.PublicationOf(d))
			cancel()
			return streams.RetryAfter(time.Second, nil)
		})
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestAPublicationIsHandledOnce: a router that died before its acknowledgement leaves no second outcome to
// the next one, however late that comes.
//
//guarantee:one-result-for-every-accepted-call
func TestAPublicationIsHandledOnce(t *testing.T) {
	t.Run("rejected", func(t *testing.T) {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			publishRaw(t, b, alice, bashRequest("mine", "c_1"))
			taken(t, b, func(p streams.Publication) {
				if err := streams.Reject(t.Context(), b, p, &schemas.Error{Code: schemas.NotFound, Message: "there is no workspace"},
					b.Certainty()); err != nil {
					t.Error(err)
				}
			})
			stop := routing(t, b, book{}) // the workspace is there by now
			time.Sleep(time.Minute)
			stop()
			if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.rejected: not_found]" {
				t.Errorf("the conversation has %s, want the one rejection", got)
			}
			if _, err := b.Calls().Find(t.Context(), alice, "mine"); schemas.CodeOf(err) != schemas.NotFound {
				t.Errorf("the rejected request is a call (%v)", err)
			}
		})
	})
	t.Run("admitted long ago", func(t *testing.T) {
		natstest.Hours(t)
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			for _, body := range []string{bashRequest("mine", "c_1"), `{"tool":"bash","input":{"command":"x"}}`} {
				publishRaw(t, b, alice, body)
				conv := "c_1"
				taken(t, b, func(p streams.Publication) {
					c := schemas.Call{ID: "mine", Account: alice, Conversation: "c_1"}
					if body != bashRequest("mine", "c_1") {
						c.ID, c.Conversation = p.CallID(), p.Conversation()
						conv = string(c.Conversation)
					}
					r := schemas.Result{Call: c.ID, Status: schemas.StatusCompleted}
					e := schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), time.Now(), r)
					if err := streams.Events.Publish(t.Context(), b, e); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(25 * time.Hour)
				stop := routing(t, b, book{})
				time.Sleep(time.Minute)
				stop()
				if got := fmt.Sprint(toldOn(t, b, alice, conv)); got != "[call.finished]" {
					t.Errorf("the conversation has %s, want the one end", got)
				}
			}
		})
	})
}

// TestAPublicationThatIsSentAgainTwiceIsOneCall: its letter is sent again, and again since the letter was not removed, soon and after the
// log has forgotten the call.
//
//guarantee:one-result-for-every-accepted-call
func TestAPublicationThatIsSentAgainTwiceIsOneCall(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var there atomic.Bool
		stop := routing(t, b, answering{answer: func(schemas.AccountID) error {
			if !there.Load() {
				return schemas.OpErrorf(schemas.NotFound, "workspace", "there is no workspace")
			}
			return nil
		}})
		publishRaw(t, b, alice, `{"conversation":"c_1","tool":"bash","input":{"command":"x"}}`)
		time.Sleep(time.Minute)
		letters := streams.OpenDeadLetters(b)
		list, err := letters.List(t.Context(), "", 0)
		if err != nil || len(list) != 1 {
			t.Fatalf("dead letters %+v, %v; want one", list, err)
		}
		letter, err := letters.Show(t.Context(), list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		redrive := func() {
			t.Helper()
			if err := letters.Redrive(t.Context(), letter.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Minute)
			if err := streams.Dead.Publish(t.Context(), b, letter); err != nil { // as if it had not been removed
				t.Fatal(err)
			}
		}
		redrive() // it is refused again, and that is reported again
		there.Store(true)
		redrive()
		redrive()
		if err := b.Calls().Forget(t.Context(), 1<<62); err != nil {
			t.Fatal(err)
		}
		redrive()
		stop()
		if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.rejected: not_found call.rejected: not_found call.accepted]" {
			t.Errorf("the conversation has %s", got)
		}
	})
}

// TestADefectAfterAnOutageCostsNoPublication: tries while a part is unavailable do not count as those that end in an error of our own.
//
//guarantee:one-result-for-every-accepted-call
func TestADefectAfterAnOutageCostsNoPublication(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const outage = 30 * time.Minute
		begun, broke := time.Now(), new(atomic.Int64)
		publishRaw(t, b, alice, bashRequest("mine", "c_1"))
		stop := routing(t, b, answering{asked: new(atomic.Int64), answer: func(schemas.AccountID) error {
			switch {
			case time.Since(begun) < outage:
				return schemas.Errorf(schemas.Unavailable, "the account's record cannot be read now")
			case broke.Add(1) < 5:
				return schemas.Errorf(schemas.Internal, "a defect of a moment")
			}
			return nil
		}})
		time.Sleep(outage + 10*time.Minute)
		stop()
		if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.accepted]" {
			t.Errorf("the conversation has %s, want the call", got)
		}
	})
}

// TestADefectThatStaysEndsAPublication is the other way round.
func TestADefectThatStaysEndsAPublication(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		asked := new(atomic.Int64)
		publishRaw(t, b, alice, bashRequest("mine", "c_1"))
		stop := routing(t, b, answering{asked: asked, answer: func(schemas.AccountID) error {
			return schemas.Errorf(schemas.Internal, "a defect that stays")
		}})
		time.Sleep(30 * time.Minute)
		stop()
		if got := fmt.Sprint(toldOn(t, b, alice, "c_1")); got != "[call.rejected: internal]" || asked.Load() != 20 {
			t.Errorf("the conversation has %s after %d tries, want it rejected after 20", got, asked.Load())
		}
	})
}

// TestAPublicationThatMayHaveBeenAdmittedIsRejected: the outcome of an earlier try is unknown, and retention has removed the events of
// its conversation since. A publication that only waited on a conversation of which as much was removed is admitted.
//
//guarantee:one-result-for-every-accepted-call
func TestAPublicationThatMayHaveBeenAdmittedIsRejected(t *testing.T) {
	natstest.Hours(t)
	for _, tried := range []bool{true, false} {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			publishRaw(t, b, alice, bashRequest("mine", "c_1"))
			c := schemas.Call{ID: "mine", Account: alice, Conversation: "c_1"}
			end := schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(alice, c.ID), time.Now(), schemas.Result{Call: c.ID})
			if tried {
				taken(t, b, func(streams.Publication) {
					if err := streams.Events.Publish(t.Context(), b, end); err != nil {
						t.Error(err)
					}
				})
			}
			for range 10 {
				e := schemas.NewEvent(schemas.Call{ID: "m", Account: alice, Conversation: "c_1"}, schemas.Message, schemas.NewID("e_"), time.Now(), struct{}{})
				if err := streams.Events.Publish(t.Context(), b, e); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- (&streams.Retention{Bus: b, Count: 5}).Run(ctx) }()
			time.Sleep(time.Hour)
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
			stop := routing(t, b, book{})
			time.Sleep(time.Minute)
			stop()
			want := map[bool]string{true: "call.rejected: conflict", false: "call.accepted"}[tried]
			if got := toldOn(t, b, alice, "c_1"); got[len(got)-1] != want {
				t.Errorf("tried before %v: the conversation has %s, want %s at its end", tried, got, want)
			}
		})
	}
}
