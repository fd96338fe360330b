package streams_test

import (
	"context"
	"errors"
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
					return nil, schemas.Errorf(schemas.Conflict, "", "it has ended")
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
