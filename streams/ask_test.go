package streams_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestAScheduledDeliveryReplacesTheFirst(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := schemas.Delivery{ID: "msg_1", Account: "acct_1", Channel: "webhook", Body: "x"}
		if err := streams.Deliveries.Publish(ctx, b, d); err != nil {
			t.Fatal(err)
		}
		if err := streams.Deliveries.Publish(ctx, b, d); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("published again: %v, want a conflict", err)
		}
		tries := make(chan streams.Delivery[schemas.Delivery], 8)
		done := make(chan error, 1)
		go func() {
			done <- streams.Deliveries.Consume(ctx, b, streams.ConsumeOptions{Name: "d-webhook", Filter: "webhook", Slots: 4},
				func(ctx context.Context, m streams.Delivery[schemas.Delivery]) error {
					tries <- m
					next := m.Value
					if next.Attempt++; next.Attempt < 3 {
						return streams.Deliveries.Schedule(ctx, b, next, time.Now().Add(time.Minute))
					}
					return nil
				})
		}()
		began := time.Now()
		for want := range 3 {
			m := <-tries
			if m.Value.Attempt != want || m.Attempt != 1 || m.Account != "acct_1" || m.Value.Body != "x" {
				t.Errorf("try %d: got attempt %d, delivery %d of %s", want, m.Value.Attempt, m.Attempt, m.Account)
			}
		}
		if took := time.Since(began); took < 2*time.Minute || took > 2*time.Minute+time.Second {
			t.Errorf("two waits of a minute took %s", took)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAskAndAnswer(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		subject := streams.JobControlSubject("worker_1")
		if _, err := b.Ask(ctx, subject, nil); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("with nobody there: %v, want unavailable", err)
		}
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- b.Answer(ctx, subject, func() { close(ready) }, func(_ context.Context, data []byte) ([]byte, error) {
				switch string(data) {
				case "":
					return nil, schemas.Errorf(schemas.Conflict, "it has ended")
				case "break":
					panic("a defect")
				}
				return append(data, '!'), nil
			})
		}()
		<-ready
		if got, err := b.Ask(ctx, subject, []byte("hi")); err != nil || string(got) != "hi!" {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := b.Ask(ctx, subject, nil); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("an error as the answer: %v, want conflict", err)
		}
		if _, err := b.Ask(ctx, subject, []byte("break")); schemas.CodeOf(err) != schemas.Internal {
			t.Errorf("a panic as the answer: %v, want internal", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestARequestThatWaitedTooLongIsNotCarriedOut: its caller has timed out by then, and may have done something else since.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestARequestThatWaitedTooLongIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		const subject = "sandjet.rpc.test"
		var mu sync.Mutex
		var done []string
		late := make(chan error, 1)
		var serving sync.WaitGroup
		serving.Go(func() {
			err := b.Share(ctx, subject, streams.Sharing{
				Slots: 1, Each: 1, Waiting: 8, Account: func([]byte) schemas.AccountID { return "acct_1" },
			}, func(ctx context.Context, data []byte) ([]byte, error) {
				if string(data) == "stands still" {
					time.Sleep(3 * time.Second)
					late <- streams.StillAwaited(ctx)
				} else if err := streams.StillAwaited(ctx); err != nil {
					t.Errorf("%s: %v", data, err)
				}
				mu.Lock()
				done = append(done, string(data))
				mu.Unlock()
				return data, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		ask := func(what string, within time.Duration) error {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			_, err := b.Ask(ctx, subject, []byte(what))
			return err
		}
		for n := 0; ask("first", time.Minute) != nil && n < 100; n++ {
			time.Sleep(10 * time.Millisecond) // until it is subscribed
		}
		var asking sync.WaitGroup
		asking.Go(func() {
			if err := ask("stands still", time.Second); err == nil {
				t.Error("it was answered in time")
			}
		})
		time.Sleep(100 * time.Millisecond)
		if err := ask("waits too long", time.Second); !errors.Is(err, schemas.ErrUnavailable) && !errors.Is(err, schemas.ErrTimeout) {
			t.Errorf("what had no turn: %v", err)
		}
		if err := ask("waits", time.Minute); err != nil {
			t.Error(err)
		}
		if err := <-late; !errors.Is(err, schemas.ErrTimeout) {
			t.Errorf("the one that stood still: %v", err)
		}
		asking.Wait()
		cancel()
		serving.Wait()
		if got := strings.Join(done, ", "); got != "first, stands still, waits" {
			t.Errorf("carried out were %s", got)
		}
	})
}

// TestAccountsTakeTurnsAtWhoAnswers: one that asks without end leaves a slot, and the next is another's.
func TestAccountsTakeTurnsAtWhoAnswers(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		const subject = "sandjet.rpc.test"
		var serving, asking sync.WaitGroup
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		serving.Go(func() {
			err := b.Share(ctx, subject, streams.Sharing{
				Slots: 4, Each: 3, Waiting: 100, Account: func(data []byte) schemas.AccountID { return schemas.AccountID(data) },
			}, func(_ context.Context, data []byte) ([]byte, error) {
				mu.Lock()
				now[string(data)]++
				most[string(data)] = max(most[string(data)], now[string(data)])
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now[string(data)]--
				mu.Unlock()
				return nil, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		ask := func(a string) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
			_, err := b.Ask(ctx, subject, []byte(a))
			return err
		}
		for n := 0; ask("first") != nil && n < 100; n++ {
			time.Sleep(10 * time.Millisecond)
		}
		for range 40 {
			asking.Go(func() {
				if err := ask("many"); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		if err := ask("one"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("another account waited for %s", took-time.Second)
		}
		asking.Wait()
		if most["many"] != 3 {
			t.Errorf("%d of one account at a time", most["many"])
		}
		cancel()
		serving.Wait()
	})
}

func TestHasEvent(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		j := schemas.Job{ID: "job_1", Account: "acct_1", Conversation: "c_1"}
		id := schemas.JobFinishedID(j.Account, j.ID)
		since := time.Now()
		if has, err := streams.HasEvent(t.Context(), b, j.Account, j.Conversation, id, since); has || err != nil {
			t.Errorf("on an empty conversation: %v, %v", has, err)
		}
		if err := streams.Events.Publish(t.Context(), b,
			schemas.NewJobEvent(j, schemas.JobFinished, id, since, schemas.JobResult{})); err != nil {
			t.Fatal(err)
		}
		if has, err := streams.HasEvent(t.Context(), b, j.Account, j.Conversation, id, since); !has || err != nil {
			t.Errorf("after it was told: %v, %v", has, err)
		}
	})
}

func TestAnEventIsStoredOnceHoweverLate(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		j := schemas.Job{ID: "job_1", Account: "acct_1", Conversation: "c_1"}
		began := time.Now()
		e := schemas.NewJobEvent(j, schemas.JobFinished, schemas.JobFinishedID(j.Account, j.ID), began, schemas.JobResult{})
		first, err := streams.StoreOnce(t.Context(), b, e, b.Absent())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := schemas.ParseCursor(first.String()); err != nil || again != first {
			t.Errorf("the cursor %q cannot be given to others: %v", first, err)
		}
		time.Sleep(time.Hour)
		for _, absent := range []streams.Absence{b.AbsentAt(began), b.Absent().Since(began)} {
			if at, err := streams.StoreOnce(t.Context(), b, e, absent); err != nil || at != first {
				t.Errorf("an hour later: at %v, %v; want %v as before", at, err, first)
			}
		}
		n := 0
		for at, err := range streams.Events.Replay(t.Context(), b, "acct_1/c_1", schemas.Cursor{}) {
			if n++; err != nil || at.Cursor != first {
				t.Errorf("replayed at %v, %v; want %v", at.Cursor, err, first)
			}
		}
		if n != 1 {
			t.Errorf("%d events, want one", n)
		}
	})
}
