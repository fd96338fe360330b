package maintenance

import (
	"cmp"
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/inturn"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// roundWithin is the maximal duration of a round; the next round continues. A round begins with work that must not wait until hundreds
	// of thousands of records were handled, such as detecting which workers are gone.
	roundWithin = 5 * time.Second
	nextRound   = time.Second // delay before the next round, if some work is left
)

// rounds handles the due records of many accounts in rounds of limited duration. The accounts take turns.
type rounds[T any] struct {
	account func(T) schemas.AccountID
	key     func(T) string
	first   func(a, b T) int // order of the records of one account

	failed map[string]time.Time // when the handling of a record last failed; such records are handled last of their account
}

// run handles due records until the round is over or ctx is done. It reports whether some are left for the next round.
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
