package inturn_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sandjet/sandjet/internal/inturn"
)

// TestOrder: for any owners and items, the n-th item of each owner comes before the n+1-th of any other; the items of one owner keep their
// order, and none is lost.
func TestOrder(t *testing.T) {
	t.Parallel()
	type due struct {
		owner string
		n     int
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []due
		for owner := range r.IntN(6) {
			for n := range r.IntN(50) {
				all = append(all, due{fmt.Sprint(owner), n})
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		want := len(all)
		got := inturn.Order(all, func(d due) string { return d.owner }, func(a, b due) int { return cmp.Compare(a.n, b.n) })
		last, next := 0, map[string]int{}
		for _, d := range got {
			if d.n < last || d.n != next[d.owner] {
				t.Fatalf("seed %d: %v comes behind number %d, and is not number %d of its owner", seed, d, last, next[d.owner])
			}
			last = d.n
			next[d.owner]++
		}
		if len(got) != want {
			t.Fatalf("seed %d: %d of %d", seed, len(got), want)
		}
	}
}
