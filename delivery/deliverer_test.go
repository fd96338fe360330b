package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// script is a Sender that returns configured verdicts and records the deliveries that it was given.
type script struct {
	mu     sync.Mutex
	sent   []sent
	answer func(d schemas.Delivery, n int) Verdict // n: number of earlier tries of this delivery
	came   chan schemas.DeliveryID
}

type sent struct {
	delivery schemas.Delivery
	at       time.Time
	kind     Kind
}

func (s *script) Send(_ context.Context, d schemas.Delivery) (schemas.DeliveryTry, Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.answer(d, len(s.tries(d.ID)))
	s.sent = append(s.sent, sent{d, time.Now(), v.Kind})
	if s.came != nil {
		s.came <- d.ID
	}
	return schemas.DeliveryTry{Time: time.Now(), Status: 500, Response: "no"}, v
}

func (s *script) tries(id schemas.DeliveryID) []sent {
	return slices.DeleteFunc(slices.Clone(s.sent), func(x sent) bool { return x.delivery.ID != id })
}

func (s *script) of(id schemas.DeliveryID) []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries(id)
}

// work runs a deliverer until the returned function is called.
func work(t *testing.T, d *Deliverer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the deliverer ended with %v", err)
		}
	}
}

func publish(t *testing.T, b *streams.Bus, id schemas.DeliveryID) schemas.Delivery {
	t.Helper()
	d := schemas.Delivery{
		ID: id, Account: "acct_1", Channel: schemas.WebhookChannel, Endpoint: "wh_1", Event: "e1", Type: schemas.JobFinished,
		Body: `{"id":"e1"}`, Created: time.Now().UTC(),
	}
	if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTriesKeepTheScheduleUntilTheyAreUsedUp(t *testing.T) {
	natstest.Hours(t)
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		s := &script{answer: func(schemas.Delivery, int) Verdict { return Verdict{Kind: Failed} }}
		var gone atomic.Int64
		schedule := Schedule()[:6] // the other delays are days, in which the server's own timers run too often even in virtual time
		stop := work(t, &Deliverer{Bus: b, Sender: s, schedule: schedule, Metrics: Metrics{Dead: func(string) { gone.Add(1) }}})
		d := publish(t, b, "msg_1")
		time.Sleep(9 * time.Hour)
		tries := s.of(d.ID)
		if len(tries) != len(schedule) || gone.Load() != 1 {
			t.Fatalf("%d tries, given up %d times; want %d and 1", len(tries), gone.Load(), len(schedule))
		}
		for i, x := range tries {
			if x.delivery.Body != d.Body || x.delivery.Attempt != i || i > 0 && (x.delivery.Last == nil || x.delivery.Last.Status != 500) {
				t.Errorf("try %d: %+v", i, x.delivery)
			}
			if i == 0 {
				continue
			}
			wait, want := x.at.Sub(tries[i-1].at), schedule[i]
			if low, high := want*9/10, want*11/10+time.Second; wait < low || wait > high {
				t.Errorf("try %d came after %s, want %s to %s", i, wait, low, high)
			}
		}
		letters, err := streams.OpenDeadLetters(b).List(t.Context(), "", 0)
		if err != nil || len(letters) != 1 || letters[0].Account != "acct_1" || !strings.Contains(letters[0].Reason, "status 500: no") {
			t.Fatalf("dead letters %+v, %v; want one with the last answer", letters, err)
		}

		// A person redrives it: all its tries start from the first, under the same id.
		if err := streams.OpenDeadLetters(b).Redrive(t.Context(), letters[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		stop()
		tries = s.of(d.ID)[len(schedule):]
		if len(tries) != 4 || tries[0].delivery.Attempt != 0 || tries[0].delivery.Replay != 1 || tries[0].delivery.Body != d.Body {
			t.Errorf("after the redrive: %d tries, the first %+v", len(tries), tries[0].delivery)
		}
	})
}

func TestATryThatSucceedsIsTheLast(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		s := &script{answer: func(_ schemas.Delivery, n int) Verdict {
			if n < 2 {
				return Verdict{Kind: Failed, After: time.Duration(n) * time.Hour}
			}
			return Verdict{Kind: Delivered}
		}}
		stop := work(t, &Deliverer{Bus: b, Sender: s})
		publish(t, b, "msg_1")
		time.Sleep(2 * time.Hour)
		stop()
		tries := s.of("msg_1")
		if len(tries) != 3 {
			t.Fatalf("%d tries, want 3", len(tries))
		}
		if wait := tries[2].at.Sub(tries[1].at); wait < time.Hour || wait > time.Hour+time.Second {
			t.Errorf("the receiver asked for an hour and got %s", wait)
		}
		if letters, err := streams.OpenDeadLetters(b).List(t.Context(), "", 0); err != nil || len(letters) != 0 {
			t.Errorf("dead letters %v, %v", letters, err)
		}
	})
}

func TestWhatWasNotTriedIsNotCounted(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		s := &script{answer: func(_ schemas.Delivery, n int) Verdict {
			switch {
			case n < 50:
				return Verdict{Kind: Busy}
			case n < 70:
				return Verdict{Kind: Held, After: time.Minute}
			}
			return Verdict{Kind: Failed}
		}}
		schedule := Schedule()[:3]
		stop := work(t, &Deliverer{Bus: b, Sender: s, schedule: schedule})
		publish(t, b, "msg_1")
		time.Sleep(2 * time.Hour)
		stop()
		failed := slices.DeleteFunc(s.of("msg_1"), func(x sent) bool { return x.kind != Failed })
		if len(failed) != len(schedule) {
			t.Errorf("%d tries after it had to wait, want all %d", len(failed), len(schedule))
		}
	})
}

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestADelivererThatDiesDeliversOnceMoreAndNeverLess(t *testing.T) {
	t.Parallel()
	for _, at := range []stage{atTried, atScheduled} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				s := &script{answer: func(_ schemas.Delivery, n int) Verdict {
					if at == atScheduled && n == 0 {
						return Verdict{Kind: Failed}
					}
					return Verdict{Kind: Delivered}
				}}
				ctx, die := context.WithCancel(t.Context())
				first := &Deliverer{Bus: b, Sender: s, Grace: time.Nanosecond, at: func(now stage, _ schemas.Delivery) error {
					if now != at {
						return nil
					}
					die()
					time.Sleep(time.Second) // until all its goroutines have ended
					return errors.New("dead")
				}}
				publish(t, b, "msg_1")
				if err := first.Run(ctx); err != nil {
					t.Fatal(err)
				}
				stop := work(t, &Deliverer{Bus: b, Sender: s})
				time.Sleep(time.Hour)
				stop()
				tries := s.of("msg_1")
				if len(tries) < 2 || tries[len(tries)-1].kind != Delivered {
					t.Fatalf("%d tries, want the one before the death and one after", len(tries))
				}
				for _, x := range tries {
					if x.delivery.Body != tries[0].delivery.Body {
						t.Errorf("other bytes: %q", x.delivery.Body)
					}
				}
				if letters, err := streams.OpenDeadLetters(b).List(t.Context(), "", 0); err != nil || len(letters) != 0 {
					t.Errorf("dead letters %v, %v", letters, err)
				}
			})
		})
	}
}

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestManyDeliveriesArriveThroughRestarts(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const many = 300
		arrived := map[schemas.DeliveryID]bool{}
		s := &script{}
		s.answer = func(d schemas.Delivery, n int) Verdict {
			if len(s.sent)%20 == 0 || n == 0 && strings.HasSuffix(string(d.ID), "7") {
				return Verdict{Kind: Failed}
			}
			arrived[d.ID] = true
			return Verdict{Kind: Delivered}
		}
		stop := func() {}
		for i := range many {
			if i%(many/3) == 0 {
				stop()
				stop = work(t, &Deliverer{Bus: b, Sender: s, Slots: 8})
			}
			publish(t, b, schemas.DeliveryID(fmt.Sprintf("msg_%d", i)))
		}
		time.Sleep(time.Hour)
		stop()
		if len(arrived) != many {
			t.Errorf("%d of %d arrived", len(arrived), many)
		}
	})
}

func TestATryThatWeEndIsNone(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		hung := make(chan struct{}, 1)
		stop := work(t, &Deliverer{Bus: b, Grace: time.Second, Sender: senderFunc(func(ctx context.Context) Verdict {
			hung <- struct{}{}
			<-ctx.Done()
			return Verdict{Kind: Failed}
		})})
		publish(t, b, "msg_1")
		<-hung
		stop()
		s := &script{answer: func(schemas.Delivery, int) Verdict { return Verdict{Kind: Delivered} }}
		stop = work(t, &Deliverer{Bus: b, Sender: s})
		time.Sleep(time.Minute)
		stop()
		if tries := s.of("msg_1"); len(tries) != 1 || tries[0].delivery.Attempt != 0 {
			t.Errorf("after the stop: %+v, want one try that is the first", tries)
		}
	})
}

type senderFunc func(context.Context) Verdict

func (f senderFunc) Send(ctx context.Context, _ schemas.Delivery) (schemas.DeliveryTry, Verdict) {
	return schemas.DeliveryTry{}, f(ctx)
}
