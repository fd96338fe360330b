package streams

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/schemas"
)

// TestPlacesAreTakenInTurn: whoever has thousands waiting delays another by one of its own.
func TestPlacesAreTakenInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 2000
		p := newPlaces(2)
		var order []schemas.AccountID // written by whoever has the place that was given back
		wait := func(ctx context.Context, a schemas.AccountID) {
			go func() {
				if err := p.take(ctx, a); err == nil {
					order = append(order, a)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := p.take(t.Context(), "flood"); err != nil {
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
		for range 6 {
			p.give()
			synctest.Wait()
		}
		want := []schemas.AccountID{"flood", "a", "b", "flood", "a", "flood"}
		for i := range want {
			if order[i] != want[i] {
				t.Fatalf("in the order %v, want %v", order, want)
			}
		}
		for len(order) < many+3 {
			p.give()
			synctest.Wait()
		}
		for range 2 {
			p.give()
		}
		if p.free != 2 || len(p.lanes) != 0 || len(p.ready) != 0 {
			t.Errorf("%d of 2 are free at the end, %d lanes", p.free, len(p.lanes))
		}
	})
}

// TestWhoLeavesWithAPlaceGivesItBack: the place and the end of the wait come at once.
func TestWhoLeavesWithAPlaceGivesItBack(t *testing.T) {
	t.Parallel()
	for range 200 {
		p := newPlaces(1)
		if err := p.take(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.take(ctx, "b") }()
		go cancel()
		p.give()
		if err := <-done; err == nil {
			p.give()
		}
		if err := p.take(t.Context(), "c"); err != nil || p.free != 0 {
			t.Fatalf("%v, %d free", err, p.free)
		}
	}
}
