package maintenance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// roundWithin is how long a round handles what is due. What is left comes in the next one: what a round begins with, such as which
	// workers are gone, must not wait until hundreds of thousands were looked at.
	roundWithin = 5 * time.Second
	nextRound   = time.Second // from the end of one that has left something to the next
)

// rounds handles what is due of many accounts, round by round: in turn, a slice of each account in a round.
type rounds[T any] struct {
	account func(T) schemas.AccountID
	key     func(T) string
	first   func(a, b T) int // orders what is of one account

	failed map[string]time.Time // what could not be handled, and when: it comes behind the rest of its account
}

// run handles what is due, until the round is over or ctx ends. It reports whether something is left for the next round.
func (r *rounds[T]) run(ctx context.Context, due []T, handle func(T) error) (left bool) {
	begun := time.Now()
	failed := make(map[string]time.Time, len(r.failed))
	for _, v := range due {
		if at, ok := r.failed[r.key(v)]; ok {
			failed[r.key(v)] = at
		}
	}
	r.failed = failed
	first := func(a, b T) int { return cmp.Or(failed[r.key(a)].Compare(failed[r.key(b)]), r.first(a, b)) }
	for _, v := range inTurn(due, r.account, first) {
		if ctx.Err() != nil || time.Since(begun) >= roundWithin {
			return true
		}
		if err := handle(v); err != nil {
			r.failed[r.key(v)] = time.Now()
		} else {
			delete(r.failed, r.key(v))
		}
	}
	return false
}

// inTurn puts what is due in the order in which it is looked after: the first of each account, then the second of each, and so on.
// However many are due of one account, another's comes behind one of each. First orders those of one account.
func inTurn[T any](due []T, account func(T) schemas.AccountID, first func(a, b T) int) []T {
	slices.SortFunc(due, first)
	type placed struct {
		value T
		place int
	}
	order, seen := make([]placed, len(due)), map[schemas.AccountID]int{}
	for i, v := range due {
		a := account(v)
		order[i] = placed{v, seen[a]}
		seen[a]++
	}
	slices.SortStableFunc(order, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for i, o := range order {
		due[i] = o.value
	}
	return due
}
