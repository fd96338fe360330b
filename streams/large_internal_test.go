package streams

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestLargeMessagesShareTheirBytes: whatever comes and ends, the large messages in progress are within their bytes, those that are not large
// never wait for them, each large one has its turn, and nothing is left of the sums.
func TestLargeMessagesShareTheirBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		slots := []int{1, 2, 4, 16, 512}[r.IntN(5)]
		now := time.Now()
		f := newFairness(slots, func() time.Time { return now }, func(func()) {})
		f.turns.narrow(r.IntN(2) == 0)
		type running struct {
			t *turn
			l *lane[*turn]
		}
		var open []running
		waiting := map[*turn]bool{}
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
			v := &turn{account: schemas.AccountID(fmt.Sprint(r.IntN(4))), heavy: heavyOf(size, slots)}
			if f.turns.put(v.account, 100, v, now) == nil { // else too many of its account wait
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
func TestALargeMessageLetsNoLargerOnePass(t *testing.T) {
	t.Parallel()
	const slots = 16
	f := newFairness(slots, time.Now, func(func()) {})
	come := func(a schemas.AccountID, size int) *turn {
		v := &turn{account: a, heavy: heavyOf(size, slots)}
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
