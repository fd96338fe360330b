package maintenance

import (
	"cmp"
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/inturn"
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
	for _, v := range inturn.Order(due, r.account, first) {
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
