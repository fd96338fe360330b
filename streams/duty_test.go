package streams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// process is one of several that may do a duty.
type process struct {
	bus  *streams.Bus
	stop func()

	mu    sync.Mutex
	looks []time.Time
}

func (p *process) looked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.looks)
}

// processes opens the log once more for each and runs parts with it until they are stopped.
func processes(t *testing.T, b *streams.Bus, n int, part func(p *process) func(context.Context) error) []*process {
	t.Helper()
	var all []*process
	for range n {
		p := &process{bus: testwait.Must(b.Another(t.Context()))(t)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		run := part(p)
		go func() { done <- run(ctx) }()
		p.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the end of Run: %v; want nil", err)
			}
			p.bus.Cut()
		})
		t.Cleanup(p.stop)
		all = append(all, p)
	}
	return all
}

// dutiful does a duty each ten minutes. Each look does what during says.
func dutiful(during func(context.Context, *process, *streams.Tenure)) func(p *process) func(context.Context) error {
	return func(p *process) func(context.Context) error {
		return (&streams.Duty{Bus: p.bus, Name: "test", Every: 10 * time.Minute, Begin: func() func(context.Context, *streams.Tenure) {
			return func(ctx context.Context, tenure *streams.Tenure) {
				p.mu.Lock()
				p.looks = append(p.looks, time.Now())
				p.mu.Unlock()
				if during != nil {
					during(ctx, p, tenure)
				}
			}
		}}).Run
	}
}

// holder is the one of several that has looked.
func holder(t *testing.T, all []*process) *process {
	t.Helper()
	var found *process
	for _, p := range all {
		if p.looked() > 0 && found != nil {
			t.Fatal("two processes have looked")
		}
		if p.looked() > 0 {
			found = p
		}
	}
	if found == nil {
		t.Fatal("nobody has looked")
	}
	return found
}

func TestADutyIsDoneByOneAndTakenOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(p *process)
		idle time.Duration // longest time without a holder
	}{
		{"its holder ends", func(p *process) { p.stop() }, 15 * time.Second},
		{"its holder dies", func(p *process) { p.bus.Cut() }, streams.DutyTakenOver},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				all := processes(t, b, 3, dutiful(nil))
				time.Sleep(time.Hour)
				first := holder(t, all)
				if n := first.looked(); n < 5 || n > 7 {
					t.Errorf("%d looks in an hour; want one each ten minutes", n)
				}
				before := first.looked()
				c.end(first)
				time.Sleep(c.idle + 2*time.Minute + 5*time.Second) // the first look comes within a fifth of the time between two
				rest := slices.DeleteFunc(slices.Clone(all), func(p *process) bool { return p == first })
				second := holder(t, rest)
				time.Sleep(time.Hour)
				if n := holder(t, rest).looked(); second != holder(t, rest) || n < 6 || n > 8 {
					t.Errorf("%d looks of the next holder in an hour", n)
				}
				if first.looked() != before {
					t.Error("the first holder has looked after its end")
				}
				for _, p := range all {
					p.stop()
				}
			})
		})
	}
}

// A renewal is stored, and its confirmation is lost: the holder keeps the duty, and releases it at its end.
func TestADutyOutlivesALostConfirmation(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		all := processes(t, b, 2, dutiful(nil))
		time.Sleep(time.Hour + 3*time.Second) // between two renewals
		first, leases := holder(t, all), streams.OpenBucket[map[string]any](b, streams.Leases)
		unconfirmed := func() {
			p := testwait.Must(leases.Get(t.Context(), "duty.test"))(t)
			testwait.Must(leases.UpdateFor(t.Context(), "duty.test", p.Value, p.Revision, 30*time.Second))(t)
		}
		unconfirmed()
		before := first.looked()
		time.Sleep(time.Hour)
		if holder(t, all) != first || first.looked() < before+5 {
			t.Error("the holder has lost the duty to its own renewal")
		}
		unconfirmed()
		first.stop()
		if _, err := leases.Get(t.Context(), "duty.test"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("the lease is left: %v", err)
		}
		for _, p := range all {
			p.stop()
		}
	})
}

func TestAHolderThatStoodStillKnowsThatTheDutyIsAnothers(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var mu sync.Mutex
		var held, stood error
		var cancelled bool
		var begun atomic.Bool
		all := processes(t, b, 2, dutiful(func(ctx context.Context, p *process, tenure *streams.Tenure) {
			if begun.Swap(true) {
				return
			}
			first := tenure.Held()
			p.bus.Cut() // its renewals do not get through while it is suspended
			time.Sleep(11 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			held, stood, cancelled = first, tenure.Held(), ctx.Err() != nil
		}))
		time.Sleep(30 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if held != nil || stood == nil || !cancelled {
			t.Errorf("held at first: %v, after 11 minutes: %v, its context ended: %t", held, stood, cancelled)
		}
		if a, b := all[0].looked(), all[1].looked(); min(a, b) != 1 || max(a, b) < 2 {
			t.Errorf("looks: %d and %d; want one of the first holder, more of the other", a, b)
		}
		for _, p := range all {
			p.stop()
		}
	})
}

func TestRetentionContinuesWithoutItsFirstHolder(t *testing.T) {
	natstest.Hours(t)
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		all := processes(t, b, 3, func(p *process) func(context.Context) error {
			return (&streams.Retention{Bus: p.bus, Keep: 2 * hour}).Run
		})
		put := func(round int) {
			for i := range 3 {
				conv := schemas.ConversationID(fmt.Sprintf("c_%d_%d", round, i))
				publish(t, b, conv, "a", schemas.CallAccepted, schemas.AcceptedData{})
				if i > 0 { // the first runs
					publish(t, b, conv, "a", schemas.CallFinished, schemas.Result{})
				}
			}
		}
		for round, dies := range all {
			put(round)
			time.Sleep(hour + 50*time.Minute)
			if n := len(kept(t, b, schemas.ConversationID(fmt.Sprintf("c_%d_1", round)))); n != 2 {
				t.Errorf("round %d: %d events are left before their time", round, n)
			}
			if round < len(all)-1 {
				dies.bus.Cut() // perhaps the holder
			}
			time.Sleep(25 * time.Minute)
			for i, want := range []int{1, 0, 0} {
				if n := len(kept(t, b, schemas.ConversationID(fmt.Sprintf("c_%d_%d", round, i)))); n != want {
					t.Errorf("round %d, conversation %d: %d events are left, want %d", round, i, n, want)
				}
			}
		}
		for _, p := range all {
			p.stop()
		}
	})
}

func TestOldEventsAreRemovedAFewConversationsAtATime(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const convs = 23
		for i := range 2 * convs {
			conv := schemas.ConversationID(fmt.Sprintf("c_%d", i%convs))
			typ, data := schemas.CallAccepted, any(schemas.AcceptedData{})
			if i >= convs {
				typ, data = schemas.CallFinished, schemas.Result{}
			}
			if i%convs == 7 && i >= convs { // it runs
				continue
			}
			publish(t, b, conv, "a", typ, data)
		}
		publish(t, b, "c_7", "m", schemas.Message, struct{}{})
		time.Sleep(hour)
		oldest := b.Now()
		publish(t, b, "c_3", "b", schemas.Message, struct{}{})
		if err := b.RemoveOld(t.Context(), 0, oldest, 4, &streams.Tenure{}); schemas.CodeOf(err) != schemas.Interrupted {
			t.Errorf("who has lost the duty removes: %v", err)
		}
		if n := len(kept(t, b, "c_0")); n != 2 {
			t.Errorf("who has lost the duty has left %d events of 2", n)
		}
		for range 2 {
			testwait.OK(t, b.RemoveOld(t.Context(), 0, oldest, 4, nil))
		}
		for i := range convs {
			want := map[int]int{3: 1, 7: 2}[i]
			if n := len(kept(t, b, schemas.ConversationID(fmt.Sprintf("c_%d", i)))); n != want {
				t.Errorf("conversation %d: %d events are left, want %d", i, n, want)
			}
		}
	})
}
