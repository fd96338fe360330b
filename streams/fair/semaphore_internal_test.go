package fair

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/schemas"
)

// TestPlacesAreTakenInTurn: an account that has thousands waiting delays another by one message.
//
//guarantee:what-one-tenant-can-do-to-another
func TestPlacesAreTakenInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 2000
		p := NewSemaphore(2, 2)
		var order []schemas.AccountID // written by the holder of the released slot
		wait := func(ctx context.Context, a schemas.AccountID) {
			go func() {
				if err := p.Acquire(ctx, a); err == nil {
					order = append(order, a)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := p.Acquire(t.Context(), "flood"); err != nil {
				t.Fatal(err)
			}
		}
		for range many {
			wait(t.Context(), "flood")
		}
		gone, leave := context.WithCancel(t.Context())
		wait(gone, "left")
		for _, a := range []schemas.AccountID{"a", "b", "a"} {
			wait(t.Context(), a)
		}
		leave()
		synctest.Wait()
		holders := []schemas.AccountID{"flood", "flood"}
		next := 0 // of order, of which none has given its place back
		give := func() {
			p.Release(holders[0])
			synctest.Wait()
			holders = append(holders[1:], order[next:]...)
			next = len(order)
		}
		for range 6 {
			give()
		}
		want := []schemas.AccountID{"flood", "a", "b", "flood", "a", "flood"}
		for i := range want {
			if order[i] != want[i] {
				t.Fatalf("in the order %v, want %v", order, want)
			}
		}
		for len(holders) > 0 {
			give()
		}
		if p.free != 2 || len(p.lanes) != 0 || len(p.ready) != 0 || len(p.held) != 0 || len(order) != many+3 {
			t.Errorf("%d of 2 are free at the end, %d lanes", p.free, len(p.lanes))
		}
	})
}

// TestWhoLeavesWithAPlaceGivesItBack: the place and the end of the wait come at once.
func TestWhoLeavesWithAPlaceGivesItBack(t *testing.T) {
	t.Parallel()
	for range 200 {
		p := NewSemaphore(1, 1)
		if err := p.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Acquire(ctx, "b") }()
		go cancel()
		p.Release("a")
		if err := <-done; err == nil {
			p.Release("b")
		}
		if err := p.Acquire(t.Context(), "c"); err != nil || p.free != 0 {
			t.Fatalf("%v, %d free", err, p.free)
		}
	}
}

// TestOneAccountHasItsShareOfThePlaces: however many of it wait, the others' places stay free, and none of its own is lost.
//
//guarantee:what-one-tenant-can-do-to-another
func TestOneAccountHasItsShareOfThePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, got := NewSemaphore(4, 2), map[schemas.AccountID]int{}
		wait := func(a schemas.AccountID) {
			go func() {
				if p.Acquire(t.Context(), a) == nil {
					got[a]++
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			wait("flood")
		}
		for _, a := range []schemas.AccountID{"a", "b", "c"} {
			wait(a)
		}
		if got["flood"] != 2 || got["a"] != 1 || got["b"] != 1 || got["c"] != 0 {
			t.Errorf("four places went to %v", got)
		}
		for _, a := range []schemas.AccountID{"a", "flood", "b"} {
			p.Release(a)
			synctest.Wait()
		}
		if got["flood"] != 3 || got["c"] != 1 || p.free != 1 {
			t.Errorf("after three were given back: %v, %d free; the account has its share, and one is free", got, p.free)
		}
		for _, a := range []schemas.AccountID{"c", "flood", "flood", "flood", "flood"} {
			p.Release(a)
			synctest.Wait()
		}
		if got["flood"] != 5 || p.free != 4 {
			t.Errorf("in the end %v, %d free", got, p.free)
		}
	})
}
