package membudget_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/internal/membudget"
)

// TestAccountsTakeTurns: an account holds at most its share of the budget. Another account gets memory although any number of requests of
// the first wait, and everything is released in the end.
//
//guarantee:bounds
func TestAccountsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(100, 50)
		var order []string
		take := func(ctx context.Context, account string, n int64) *membudget.Room {
			r, err := b.Take(ctx, account, n)
			if err != nil {
				return nil
			}
			order = append(order, account)
			return r
		}
		first := take(t.Context(), "loud", 1000) // all of its share
		if b.Held("loud") != 50 {
			t.Errorf("it holds %d", b.Held("loud"))
		}
		gone, leave := context.WithCancel(t.Context())
		for range 100 {
			go func() { take(gone, "loud", 30).Release() }()
		}
		synctest.Wait()
		quiet := take(t.Context(), "quiet", 50)
		if len(order) != 2 || b.Held("loud") != 50 || b.Held("quiet") != 50 {
			t.Errorf("%v, loud holds %d, quiet %d", order, b.Held("loud"), b.Held("quiet"))
		}
		first.Shrink(30)
		first.Shrink(40) // no more than it has
		synctest.Wait()
		if len(order) != 2 || b.Held("loud") != 30 {
			t.Errorf("%v, loud holds %d", order, b.Held("loud"))
		}
		leave()
		synctest.Wait()
		first.Release()
		first.Release()
		quiet.Release()
		if all := take(t.Context(), "other", 50); b.Held("loud")+b.Held("quiet") != 0 || b.Held("other") != 50 {
			t.Errorf("loud holds %d, quiet %d, other %d", b.Held("loud"), b.Held("quiet"), b.Held("other"))
		} else {
			all.Release()
		}
	})
}
