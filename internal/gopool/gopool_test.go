package gopool_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/internal/gopool"
)

func TestEachFunctionRunsOnceAndAtTheSameTimeAsTheOthers(t *testing.T) {
	t.Parallel()
	var p gopool.Pool
	for range 3 { // the second and third time on goroutines that are there
		const n = 50
		var ran atomic.Int64
		var all sync.WaitGroup
		meet := make(chan struct{})
		all.Add(n)
		for range n {
			p.Go(func() {
				defer all.Done()
				if ran.Add(1) == n {
					close(meet)
				}
				<-meet // hangs unless all n run at once
			})
		}
		all.Wait()
		if ran.Load() != n {
			t.Fatalf("%d functions ran, want %d", ran.Load(), n)
		}
	}
	p.Close()
	p.Wait()
}

// TestGoroutinesAreUsedAgainAndEnd runs in a synctest bubble, which fails the test if a goroutine is left.
func TestGoroutinesAreUsedAgainAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p gopool.Pool
		hold := make(chan struct{})
		p.Go(func() { <-hold })
		p.Go(func() {})
		synctest.Wait()
		p.Close()
		ran := false
		close(hold)
		p.Wait()
		p.Go(func() { ran = true }) // works on
		p.Wait()
		if !ran {
			t.Error("a function was not run after Close")
		}
	})
}
