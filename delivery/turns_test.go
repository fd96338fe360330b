package delivery

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// slow is a Sender to two endpoints: one accepts ten requests at a time and is slow, the other accepts all.
type slow struct {
	mu     sync.Mutex
	inHand int
	each   time.Duration
	sends  int
	came   map[schemas.DeliveryID]int
	at     map[schemas.DeliveryID]int // number of tries that began before
}

func (s *slow) Send(_ context.Context, d schemas.Delivery) (schemas.DeliveryTry, Verdict) {
	const most = 10
	s.mu.Lock()
	s.sends++
	each := time.Duration(0)
	if d.Endpoint == "wh_slow" {
		if s.inHand == most {
			s.mu.Unlock()
			return schemas.DeliveryTry{}, Verdict{Kind: Busy}
		}
		s.inHand++
		each = s.each
	}
	s.at[d.ID] = s.sends
	s.mu.Unlock()
	time.Sleep(each)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came[d.ID]++
	if d.Endpoint == "wh_slow" {
		s.inHand--
	}
	return schemas.DeliveryTry{Time: time.Now()}, Verdict{Kind: Delivered}
}

// TestASlowEndpointLeavesOthersTheirTurn: in virtual time, tens of thousands of deliveries wait for a slow endpoint of one account, more
// than may be in flight. Deliveries of another account arrive at once, and all arrive in the end.
//
//guarantee:what-one-tenant-can-do-to-another
func TestASlowEndpointLeavesOthersTheirTurn(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const well, slots, most = 20, 64, 1000 // maximal number of earlier tries of the other account
		flood := 4 * most                      // far more than the slots handle during the test
		if longtest.Asked() {
			flood = 30 * most
		}
		s := &slow{each: 4 * time.Second, came: map[schemas.DeliveryID]int{}, at: map[schemas.DeliveryID]int{}}
		publish := func(id string, a schemas.AccountID, to schemas.EndpointID) {
			d := schemas.Delivery{
				ID: schemas.DeliveryID(id), Account: a, Channel: schemas.WebhookChannel, Endpoint: to, Event: "e1", Type: schemas.JobFinished,
				Body: `{"id":"e1"}`, Created: time.Now().UTC(),
			}
			if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
				t.Error(err)
			}
		}
		var writers sync.WaitGroup
		for part := range 16 {
			writers.Go(func() {
				for i := part; i < flood; i += 16 {
					publish(fmt.Sprint("msg_slow_", i), "acct_1", "wh_slow")
				}
			})
		}
		writers.Wait()
		stop := work(t, &Deliverer{Bus: b, Sender: s, Slots: slots})
		count := func() (sends, came int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.sends, len(s.came)
		}
		time.Sleep(20 * time.Second)
		for n := range well {
			before, _ := count()
			id := schemas.DeliveryID(fmt.Sprint("msg_well_", n))
			publish(string(id), "acct_2", "wh_well")
			time.Sleep(2 * time.Second)
			s.mu.Lock()
			if behind := s.at[id] - before; s.came[id] != 1 || behind > most {
				t.Errorf("%s came %d times behind %d tries of another account; want once, behind a few hundred", id, s.came[id], behind)
			}
			s.mu.Unlock()
		}
		s.mu.Lock()
		s.each = time.Millisecond
		s.mu.Unlock()
		for range 3600 {
			if _, came := count(); came == flood+well {
				break
			}
			time.Sleep(time.Second)
		}
		stop()
		if sends, came := count(); came != flood+well {
			t.Errorf("%d deliveries came, want %d (%d tries)", came, flood+well, sends)
		}
		for id, n := range s.came {
			if n != 1 {
				t.Errorf("%s came %d times", id, n)
			}
		}
	})
}
