package wsconn

import (
	"testing"
	"testing/synctest"
	"time"
)

// riding is an entry of a ring that counts its turns.
type riding struct{ slot, turns int }

func (r *riding) Turn()      { r.turns++ }
func (r *riding) Slot() *int { return &r.slot }

func TestARingGivesEachItsTurnInEveryRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ring Ring[*riding]
		all := make([]*riding, 3*Slots+1)
		for i := range all {
			all[i] = new(riding)
			if !ring.Add(all[i]) {
				t.Fatal("the ring takes nobody")
			}
		}
		gone := all[0]
		ring.Remove(gone)
		left := make(chan []*riding, 1)
		const round, rounds = 10 * time.Second, 5
		go func() { left <- ring.Run(t.Context(), round) }()
		time.Sleep(rounds*round + round/(2*Slots))
		synctest.Wait()
		for i, r := range all {
			if want := map[bool]int{true: 0, false: rounds}[r == gone]; r.turns != want {
				t.Errorf("%d had %d turns, want %d", i, r.turns, want)
			}
		}
		if got := ring.stop(); len(got) != len(all)-1 {
			t.Errorf("%d are left, want %d", len(got), len(all)-1)
		}
		if ring.Add(gone) {
			t.Error("a ring that has stopped takes one more")
		}
	})
}
