package streams

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestEveryReconnectIsCounted(t *testing.T) {
	t.Parallel()
	r := &reconnects{changed: make(chan nats.Status, 3)}
	before := r.count()
	for n := range 10 {
		for range n%5 + 1 { // also more than there is room for
			select {
			case r.changed <- nats.RECONNECTING:
			default:
			}
		}
		after := r.count()
		if after == before {
			t.Fatalf("%d changes left the count at %d", n%5+1, after)
		}
		if again := r.count(); again != after {
			t.Fatalf("without a change it went from %d to %d", after, again)
		}
		before = after
	}
	var all sync.WaitGroup
	for range 8 { // a process that counts after a change sees it, whichever process takes the token
		all.Go(func() {
			last := r.count()
			for range 1000 {
				r.changed <- nats.CONNECTED
				now := r.count()
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
