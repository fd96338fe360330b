package streams_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

var local = streams.ConsumeOptions{Name: "w-local", Filter: "local", Slots: 2}

// heap gathers values from handlers.
type heap[T any] struct {
	mu sync.Mutex
	v  []T
}

func (h *heap[T]) add(v T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.v = append(h.v, v)
}

func (h *heap[T]) all() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.v)
}

func letters(t *testing.T, b *streams.Bus) []schemas.DeadLetter {
	t.Helper()
	return testwait.Must(streams.OpenDeadLetters(b).List(t.Context(), "", 0))(t)
}

// TestRedeliveryAfterAckWait is the canary of the server's upgrades: messages that a dead process had in flight are redelivered after
// AckWait, not earlier and not much later.
func TestRedeliveryAfterAckWait(t *testing.T) {
	var log *streams.Options
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		doomed := testwait.Must(streams.Open(t.Context(), *log))(t)
		ctx, cancel := context.WithCancel(t.Context())
		died := make(chan struct{})
		go func() {
			defer close(died)
			_ = streams.Calls.Consume(ctx, doomed, local, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
				<-ctx.Done()
				return nil
			})
		}()
		testwait.OK(t, streams.Calls.Publish(ctx, b, callOf("a")))
		time.Sleep(10 * time.Second)
		kill(doomed)
		at := time.Now()
		got := make(chan streams.Delivery[schemas.Call], 9)
		stop := consume(t, b, streams.Calls, local, func(_ context.Context, d streams.Delivery[schemas.Call]) error {
			got <- d
			return nil
		})
		d := <-got
		if took := time.Since(at); took < time.Second || took > 4*time.Second || d.Attempt != 2 {
			t.Errorf("it came again after %v as attempt %d", took, d.Attempt)
		}
		cancel()
		<-died
		time.Sleep(time.Minute)
		stop()
		if len(got) > 0 {
			t.Error("it came once more though it was acknowledged")
		}
	}, func(s *natstest.Settings) { log = &s.Log })
}

// kill closes a Bus at once.
func kill(b *streams.Bus) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.Close(ctx)
}

func TestVerdicts(t *testing.T) {
	natstest.Hours(t)
	type result struct {
		attempts int
		dead     schemas.Code
	}
	for name, tc := range map[string]struct {
		verdict func(attempt int) error
		want    result
	}{
		"nil": {func(int) error { return nil }, result{1, ""}},
		"retry twice": {func(n int) error { return firstly(n, 2, streams.RetryAfter(time.Minute, errors.New("busy"))) },
			result{3, ""}},
		"retry at once":  {func(n int) error { return firstly(n, 2, streams.RetryAfter(0, errors.New("busy"))) }, result{3, ""}},
		"retryable code": {func(n int) error { return firstly(n, 2, schemas.Errorf(schemas.Unavailable, "away")) }, result{3, ""}},
		"for ever": {func(int) error { return streams.RetryAfter(time.Second, schemas.Errorf(schemas.Exhausted, "full")) },
			result{20, schemas.Exhausted}},
		"invalid":                {func(int) error { return schemas.Invalidf("x", "is wrong") }, result{1, schemas.Invalid}},
		"unknown error":          {func(int) error { return errors.New("boom") }, result{1, schemas.Internal}},
		"cancelled by itself":    {func(n int) error { return firstly(n, 1, context.Canceled) }, result{2, ""}},
		"panic":                  {func(int) error { panic("boom") }, result{1, schemas.Internal}},
		"retry without a reason": {func(n int) error { return firstly(n, 1, streams.RetryAfter(time.Second, nil)) }, result{2, ""}},
		"retry of a negative time": {func(n int) error { return firstly(n, 1, streams.RetryAfter(-time.Second, errors.New("x"))) },
			result{2, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				var seen heap[int]
				stop := consume(t, b, streams.Calls, local, func(_ context.Context, d streams.Delivery[schemas.Call]) error {
					seen.add(d.Attempt)
					return tc.verdict(d.Attempt)
				})
				testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("a")))
				time.Sleep(time.Hour)
				stop()
				if got := seen.all(); len(got) != tc.want.attempts || got[len(got)-1] != tc.want.attempts {
					t.Errorf("attempts %v; want %d", got, tc.want.attempts)
				}
				dead := letters(t, b)
				if tc.want.dead == "" {
					if len(dead) > 0 {
						t.Errorf("dead letters %+v; want none", dead)
					}
					return
				}
				if len(dead) != 1 || dead[0].Code != tc.want.dead || dead[0].Stream != "CALLS" || dead[0].Account != account ||
					dead[0].Reason == "" || dead[0].Consumer != "w-local" || int(dead[0].Deliveries) != tc.want.attempts {
					t.Errorf("dead letters %+v; want one of code %s", dead, tc.want.dead)
				}
			})
		})
	}
}

func firstly(n, most int, err error) error {
	if n <= most {
		return err
	}
	return nil
}

func TestTheGraceIsKept(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var ended heap[time.Duration]
		var again heap[int]
		o := local
		o.Grace = 20 * time.Second
		begun := make(chan struct{}, 2)
		var stopped time.Time
		stop := consume(t, b, streams.Calls, o, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
			begun <- struct{}{}
			if d.Value.ID == "short" {
				time.Sleep(15 * time.Second)
				return ctx.Err()
			}
			<-ctx.Done()
			ended.add(time.Since(stopped))
			return ctx.Err()
		})
		for _, id := range []string{"short", "long", "waiting"} {
			testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf(id)))
		}
		<-begun
		<-begun
		stopped = time.Now()
		stop()
		if got := ended.all(); len(got) != 1 || got[0] != 20*time.Second {
			t.Errorf("ended after %v; want the grace", got)
		}
		var mu sync.Mutex
		ids := map[schemas.CallID]int{}
		stop = consume(t, b, streams.Calls, local, func(_ context.Context, d streams.Delivery[schemas.Call]) error {
			again.add(d.Attempt)
			mu.Lock()
			defer mu.Unlock()
			ids[d.Value.ID] = d.Attempt
			return nil
		})
		time.Sleep(time.Minute)
		stop()
		if len(ids) != 2 || ids["long"] != 2 || ids["waiting"] < 1 || len(again.all()) != 2 {
			t.Errorf("handed back %v; want the long one again and the one that waited", ids)
		}
		if dead := letters(t, b); len(dead) > 0 {
			t.Errorf("dead letters %+v; want none", dead)
		}
	})
}

func TestNoMoreInHandThanSlots(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const calls = 100
		var mu sync.Mutex
		now, most, n := 0, 0, 0
		o := local
		o.Slots = 7
		stop := consume(t, b, streams.Calls, o, func(context.Context, streams.Delivery[schemas.Call]) error {
			mu.Lock()
			now++
			n++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		})
		for i := range calls {
			testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("c"+string(rune('a'+i%26))+string(rune('a'+i/26)))))
		}
		time.Sleep(calls/7*10*time.Second + 12*time.Second)
		synctest.Wait()
		stop()
		if most != 7 || n != calls {
			t.Errorf("%d in hand at most, %d done; want 7 and %d", most, n, calls)
		}
	})
}

// TestExhaustedWhileNoWorkerLives: the last delivery's process dies, and no other is there when the
// server gives the message up. A DeadLetterForwarder that comes a day later finds it.
//
//guarantee:one-result-for-every-accepted-call
func TestExhaustedWhileNoWorkerLives(t *testing.T) {
	var log *streams.Options
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		testwait.OK(t, streams.Intake.Publish(t.Context(), b, streams.Raw{Account: account, Data: []byte("poison")}))
		const deliveries = 1 + 5 // MaxAttempts, and what the server has beyond
		o := streams.ConsumeOptions{Name: "router", MaxAttempts: 1}
		for range deliveries {
			doomed := testwait.Must(streams.Open(t.Context(), *log))(t)
			doomed.Faults(streams.Fault{NoDeadLetters: true})
			ctx, cancel := context.WithCancel(t.Context())
			got, done := make(chan struct{}, 1), make(chan struct{})
			go func() {
				defer close(done)
				_ = streams.Intake.Consume(ctx, doomed, o, func(ctx context.Context, _ streams.Delivery[streams.Raw]) error {
					got <- struct{}{}
					<-ctx.Done()
					return nil
				})
			}()
			time.Sleep(8 * time.Second)
			kill(doomed)
			cancel()
			<-done
		}
		time.Sleep(time.Minute)
		if dead := letters(t, b); len(dead) > 0 {
			t.Fatalf("dead letters %+v; nobody was there to write one", dead)
		}
		// Only a pull makes the server see that the message has had all its deliveries.
		stop := consume(t, b, streams.Intake, o, func(context.Context, streams.Delivery[streams.Raw]) error {
			t.Error("it was delivered once more than it may")
			return nil
		})
		time.Sleep(10 * time.Second)
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&streams.DeadLetterForwarder{Bus: b}).Run(ctx) }()
		time.Sleep(10 * time.Second)
		dead := letters(t, b)
		if len(dead) != 1 || dead[0].Code != schemas.Exhausted || dead[0].Size != len("poison") || dead[0].Consumer != "router" {
			t.Errorf("dead letters %+v; want the poison", dead)
		}
		rejected := 0
		for e, err := range streams.Events.Replay(t.Context(), b, string(account)+"/"+string(streams.RejectedConversation), schemas.Cursor{}) {
			testwait.OK(t, err)
			if e.Value.Type == schemas.CallRejected {
				rejected++
			}
		}
		if rejected != 1 {
			t.Errorf("who published it was told %d times that it was given up", rejected)
		}
		cancel()
		testwait.OK(t, <-done)
	}, func(s *natstest.Settings) { log = &s.Log })
}

// TestADeletedConsumerIsMadeAgain: an operator deletes the durable consumer.
func TestADeletedConsumerIsMadeAgain(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var seen heap[schemas.CallID]
		stop := consume(t, b, streams.Calls, local, func(_ context.Context, d streams.Delivery[schemas.Call]) error {
			seen.add(d.Value.ID)
			return nil
		})
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("a")))
		time.Sleep(time.Second)
		testwait.OK(t, b.DeleteConsumer(t.Context(), "CALLS", "w-local"))
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("b")))
		time.Sleep(time.Minute)
		stop()
		if got := seen.all(); !slices.Contains(got, "b") {
			t.Errorf("seen %v; want b among them", got)
		}
	})
}

func TestRedrive(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		good := false
		var seen heap[int]
		handle := func(_ context.Context, d streams.Delivery[schemas.Call]) error {
			seen.add(d.Attempt)
			if good {
				return nil
			}
			return errors.New("boom")
		}
		stop := consume(t, b, streams.Calls, local, handle)
		c := callOf("a")
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		time.Sleep(time.Minute)
		dead := streams.OpenDeadLetters(b)
		list := letters(t, b)
		if len(list) != 1 {
			t.Fatalf("dead letters %+v; want one", list)
		}
		if got := testwait.Must(dead.Show(ctx, list[0].ID))(t); got.Reason != "boom" {
			t.Errorf("shown %+v", got)
		}
		good = true
		testwait.OK(t, dead.Redrive(ctx, list[0].ID))
		time.Sleep(time.Minute)
		stop()
		if got := seen.all(); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("attempts %v; want a new beginning", got)
		}
		if err := dead.Redrive(ctx, list[0].ID); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("redrive again: %v; want not_found", err)
		}
		if err := streams.Calls.Publish(ctx, b, c); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("the id is free after the redrive: %v", err)
		}
		for _, id := range []string{"", "CALLS", "CALLS.x", "CALLS.1.2", "a b.1"} {
			if err := dead.Redrive(ctx, id); schemas.CodeOf(err) != schemas.Invalid {
				t.Errorf("redrive %q: %v; want invalid", id, err)
			}
		}
	})
}

func TestStopBeforeAndWhileStarting(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for _, after := range []time.Duration{-1, 0, time.Millisecond} {
			for range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				if after < 0 {
					cancel()
				}
				go func() {
					done <- streams.Calls.Consume(ctx, b, local, func(context.Context, streams.Delivery[schemas.Call]) error { return nil })
				}()
				time.Sleep(max(after, 0))
				cancel()
				if err := <-done; err != nil {
					t.Fatalf("stop after %v: %v", after, err)
				}
			}
		}
	})
}

func TestAConsumerWithAnotherFilterIsRefused(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		stop := consume(t, b, streams.Calls, local, func(context.Context, streams.Delivery[schemas.Call]) error { return nil })
		time.Sleep(time.Second)
		stop()
		o := local
		o.Filter = "docker"
		err := streams.Calls.Consume(t.Context(), b, o, func(context.Context, streams.Delivery[schemas.Call]) error { return nil })
		if !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("got %v; want a conflict", err)
		}
		if err := streams.Events.Consume(t.Context(), b, o, nil); !errors.Is(err, schemas.ErrUnsupported) {
			t.Errorf("events are consumed: %v", err)
		}
	})
}

// consumeB is consume for benchmarks.
func consumeB(b *testing.B, bus *streams.Bus, slots int, f func(streams.Delivery[schemas.Call]) error) func() {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() {
		done <- streams.Calls.Consume(ctx, bus, streams.ConsumeOptions{Name: "w-local", Filter: "local", Slots: slots},
			func(_ context.Context, d streams.Delivery[schemas.Call]) error { return f(d) })
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
