package fair

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func newScheduler(slots int, now func() time.Time, spawn func(func())) *Scheduler {
	return NewScheduler(Options{Slots: slots, Largest: 1 << 20, Now: now, Go: spawn})
}

// TestLargeMessagesShareTheirBytes: whatever comes and ends, the large messages in progress are within their bytes, those that are not large
// never wait for them, each large one has its turn, and nothing is left of the sums.
//
//guarantee:bounds
func TestLargeMessagesShareTheirBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		slots := []int{1, 2, 4, 16, 512}[r.IntN(5)]
		now := time.Now()
		f := newScheduler(slots, func() time.Time { return now }, func(func()) {})
		f.turns.narrow(r.IntN(2) == 0)
		type running struct {
			t *Message
			l *lane[*Message]
		}
		var open []running
		waiting := map[*Message]bool{}
		start := func() {
			for {
				v, l := f.turns.next()
				if l == nil {
					break
				}
				delete(waiting, v)
				open = append(open, running{v, l})
			}
			heavy, light := 0, 0
			for _, o := range open {
				heavy += o.t.heavy
				if o.t.heavy == 0 {
					light++
				}
			}
			if heavy != f.turns.heavy || heavy > mostLarge(slots) {
				t.Fatalf("seed %d: %d bytes of large ones are in progress, counted %d, at most %d", seed, heavy, f.turns.heavy, mostLarge(slots))
			}
			if len(open) == 0 && len(waiting) > 0 {
				t.Fatalf("seed %d: %d wait, and nothing is in progress", seed, len(waiting))
			}
		}
		end := func() {
			i := r.IntN(len(open))
			o := open[i]
			open = append(open[:i], open[i+1:]...)
			f.turns.lighten(o.l, o.t)
			f.turns.done(o.l)
		}
		for range 200 {
			size := []int{1000, mostLarge(slots) / slots, 6 << 20, 64 << 20}[r.IntN(4)]
			v := &Message{Account: schemas.AccountID(fmt.Sprint(r.IntN(4))), heavy: heavyOf(size, slots)}
			if f.turns.put(v.Account, 100, v, now) == nil { // else too many of its account wait
				waiting[v] = true
			}
			start()
			for len(open) > 0 && r.IntN(2) == 0 {
				end()
				start()
			}
		}
		for len(open) > 0 {
			end()
			start()
		}
		if len(waiting) != 0 || f.turns.heavy != 0 || len(f.turns.lanes) != 0 {
			t.Fatalf("seed %d: %d wait, %d bytes, %d lanes are left", seed, len(waiting), f.turns.heavy, len(f.turns.lanes))
		}
	}
}

// TestALargeMessageLetsNoLargerOnePass: one that waits for others of its size lets small ones pass, and no large one that came later.
//
//guarantee:bounds
func TestALargeMessageLetsNoLargerOnePass(t *testing.T) {
	t.Parallel()
	const slots = 16
	f := newScheduler(slots, time.Now, func(func()) {})
	come := func(a schemas.AccountID, size int) *Message {
		v := &Message{Account: a, heavy: heavyOf(size, slots)}
		if err := f.turns.put(a, 100, v, time.Now()); err != nil {
			t.Fatal(err)
		}
		return v
	}
	come("a", 20<<20)
	first, l := f.turns.next()
	waits := come("b", 10<<20)
	come("c", 5<<20)
	small := come("d", 1000)
	if v, _ := f.turns.next(); v != small {
		t.Error("a small message waits for large ones")
	}
	if v, _ := f.turns.next(); v != nil {
		t.Errorf("one of %d bytes began while one that came before it waits", v.heavy)
	}
	f.turns.lighten(l, first)
	if v, _ := f.turns.after(l); v != waits {
		t.Error("the large message that has waited for longest does not begin")
	}
}

// TestOverdueMessagesShareTheirBytes: those that are overdue begin without a slot while all slots are taken for hours, as they come or while
// they wait. The large ones among them are in progress within their bytes; small ones and another account's do not wait for all of them, and
// each has its turn.
//
//guarantee:bounds
func TestOverdueMessagesShareTheirBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slots, large, flood = 4, 8 << 20, 14
		var all sync.WaitGroup
		f := newScheduler(slots, time.Now, all.Go)
		ctx, stop := context.WithCancel(t.Context())
		all.Go(func() {
			f.Run(ctx, func(context.Context, schemas.AccountID) (Backlog, error) { return Backlog{}, nil })
		})
		bytes, most, ended := 0, 0, []string{}
		var mu sync.Mutex
		come := func(name string, a schemas.AccountID, size int, due time.Time, takes time.Duration) {
			t.Helper()
			v := &Message{Account: a, Seq: 1, Due: due, Handled: size}
			v.Begin = func() {
				mu.Lock()
				if !due.IsZero() {
					bytes += size
				}
				most = max(most, bytes)
				mu.Unlock()
				time.Sleep(takes)
				mu.Lock()
				if !due.IsZero() {
					bytes -= size
					ended = append(ended, name)
				}
				mu.Unlock()
				f.Release(v, time.Now())
			}
			v.Drop = func() { t.Errorf("%s is dropped", name) }
			if back, ok := f.Admit(v, 1000, New, time.Now()); !ok {
				t.Fatalf("%s goes back: %+v", name, back)
			}
			f.Start()
		}
		for n := range slots {
			come(fmt.Sprint("runs", n), "acct_flood", 1000, time.Time{}, 5*time.Hour)
		}
		over := time.Now().Add(-time.Second)
		for n := range flood - 2 {
			come(fmt.Sprint("flood", n), "acct_flood", large, over, time.Minute)
		}
		for n := range 2 {
			come(fmt.Sprint("soon", n), "acct_flood", large, time.Now().Add(time.Second), time.Minute)
		}
		come("small", "acct_small", 1000, over, time.Minute)
		come("other", "acct_other", large, over, time.Minute)
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		mu.Lock()
		if most > mostLarge(f.capacity())+1000 || most < large {
			t.Errorf("%d bytes of overdue messages were in progress, at most %d may be", most, mostLarge(f.capacity()))
		}
		if len(ended) != flood+2 {
			t.Errorf("%d have ended of %d: %q", len(ended), flood+2, ended)
		}
		const first = 2 * (MaxLargeInProgress / large) // that are in progress when these come, and as many more
		for n, name := range ended {
			if (name == "small" || name == "other") && n > first+1 {
				t.Errorf("%s ended behind %d: %q", name, n, ended)
			}
		}
		mu.Unlock()
		time.Sleep(2 * time.Hour)
		stop()
		all.Wait()
		if f.held != 0 || f.late.heavy != 0 || len(f.late.lanes) != 0 {
			t.Errorf("%d are here, %d bytes, %d lanes", f.held, f.late.heavy, len(f.late.lanes))
		}
	})
}

// TestAnOverdueMessageWithoutRoomLeavesItsPlaceToOthers: an account has its share of the slots while others wait. An overdue message of
// it for which there are no bytes is nak'ed, and redelivered after a while like others. A small one begins.
//
//guarantee:bounds
func TestAnOverdueMessageWithoutRoomLeavesItsPlaceToOthers(t *testing.T) {
	t.Parallel()
	const slots, large = 4, 8 << 20
	now := time.Now()
	f := newScheduler(slots, func() time.Time { return now }, func(func()) {})
	come := func(a schemas.AccountID, size int) (Redelivery, bool) {
		v := &Message{Account: a, Seq: 1, Due: now.Add(-time.Hour), Handled: size}
		back, ok := f.Admit(v, 1000, New, now)
		if ok {
			f.late.next()
		}
		return back, ok
	}
	come("acct_other", 1000) // so that slots are left to others
	taken := 0
	for back, ok := come("acct_flood", large); ok; back, ok = come("acct_flood", large) {
		if taken++; taken > slots {
			t.Fatalf("%d of the account are here, and may be %d: %+v", taken, slots, back)
		}
	}
	if back, ok := come("acct_flood", large); ok || back.After < backStep {
		t.Errorf("it has a place: %v; or comes again after %s", ok, back.After)
	}
	if _, ok := come("acct_flood", 1000); !ok {
		t.Error("a small one that is overdue goes back")
	}
	if _, ok := come("acct_other", large); !ok {
		t.Error("another account's goes back")
	}
}
