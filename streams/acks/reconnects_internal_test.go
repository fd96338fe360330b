package acks

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestEveryReconnectIsCounted(t *testing.T) {
	t.Parallel()
	r := &Reconnects{Changed: make(chan nats.Status, 3)}
	before := r.Count()
	for n := range 10 {
		for range n%5 + 1 { // also more than there is room for
			select {
			case r.Changed <- nats.RECONNECTING:
			default:
			}
		}
		after := r.Count()
		if after == before {
			t.Fatalf("%d changes left the count at %d", n%5+1, after)
		}
		if again := r.Count(); again != after {
			t.Fatalf("without a change it went from %d to %d", after, again)
		}
		before = after
	}
	var all sync.WaitGroup
	for range 8 { // a process that counts after a change sees it, whichever process takes the token
		all.Go(func() {
			last := r.Count()
			for range 1000 {
				r.Changed <- nats.CONNECTED
				now := r.Count()
				if now <= last {
					t.Errorf("after a change the count went from %d to %d", last, now)
					return
				}
				last = now
			}
		})
	}
	all.Wait()
}
