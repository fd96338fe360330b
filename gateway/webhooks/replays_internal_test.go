package webhooks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/schemas"
)

// TestReplaysOfDeliveriesTakeTurns: one of an account at a time, few of all, and the others in the order in which they came.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestReplaysOfDeliveriesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplays()
		var leave []func()
		for n := range replaysAtMost {
			done, err := p.enter(t.Context(), schemas.AccountID(fmt.Sprint("acct_", n)))
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, done)
		}
		if _, err := p.enter(t.Context(), "acct_0"); !errors.Is(err, schemas.ErrExhausted) {
			t.Errorf("a second one of the account: %v", err)
		}
		entered := make(chan schemas.AccountID, 2)
		for _, a := range []schemas.AccountID{"acct_x", "acct_y"} {
			go func() {
				if _, err := p.enter(t.Context(), a); err == nil {
					entered <- a
				}
			}()
			synctest.Wait()
		}
		if _, err := p.enter(t.Context(), "acct_x"); !errors.Is(err, schemas.ErrExhausted) {
			t.Errorf("a second one of an account that waits: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.enter(gone, "acct_z"); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("of a client that is gone: %v", err)
		}
		leave[0]()
		if a := <-entered; a != "acct_x" {
			t.Errorf("%s comes first, want acct_x", a)
		}
		leave[1]()
		<-entered
		if _, err := p.enter(t.Context(), "acct_z"); !errors.Is(err, schemas.ErrUnavailable) { // it waits for its while
			t.Errorf("while all places are taken: %v", err)
		}
		if _, err := p.enter(t.Context(), "acct_0"); errors.Is(err, schemas.ErrExhausted) {
			t.Errorf("the next one of an account: %v", err)
		}
	})
}
