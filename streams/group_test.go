package streams_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
)

// TestGroupedCallsAreStoredOnceEach admits a crowd, in which every fourth id comes twice.
func TestGroupedCallsAreStoredOnceEach(t *testing.T) {
	l := natstest.Start(t, natstest.Durability(embedded.DurabilityAlways))
	const crowd = 400
	var stored, refused heap[string]
	var all sync.WaitGroup
	for n := range crowd {
		for i := range 1 + (n%4)/3 {
			all.Go(func() {
				c := callOf(fmt.Sprint("g", n))
				c.Digest = fmt.Sprint(i)
				err := streams.Calls.Publish(t.Context(), l.Bus, c)
				for end := time.Now().Add(within); errors.Is(err, schemas.ErrUnavailable) && time.Now().Before(end); { // a slow disk
					err = streams.Calls.Publish(t.Context(), l.Bus, c)
					if errors.Is(err, schemas.ErrConflict) && testwait.Must(l.Bus.Calls().Find(t.Context(), account, c.ID))(t).Digest == c.Digest {
						err = nil // it was stored, and only the acknowledgement was lost
					}
				}
				switch {
				case err == nil:
					stored.add(string(c.ID) + " " + c.Digest)
				case errors.Is(err, schemas.ErrConflict):
					refused.add(string(c.ID))
				default:
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if got := len(stored.all()); got != crowd {
		t.Errorf("%d confirmed; want %d", got, crowd)
	}
	if got := len(refused.all()); got != crowd/4 {
		t.Errorf("%d refused; want %d", got, crowd/4)
	}
	for _, s := range stored.all() {
		var id, digest string
		if _, err := fmt.Sscan(s, &id, &digest); err != nil {
			t.Fatal(err)
		}
		if c := testwait.Must(l.Bus.Calls().Find(t.Context(), account, schemas.CallID(id)))(t); c.Digest != digest {
			t.Errorf("%s: the log has %s, confirmed was %s", id, c.Digest, digest)
		}
	}
}
