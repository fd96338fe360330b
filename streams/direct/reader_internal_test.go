package direct

import (
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams/fair"
)

// TestAPayloadIsReadInTheSlotOfItsPage: a read of a page has one slot until its payloads are there too. If each payload took a slot of its own,
// as many reads as there are slots would wait for each other.
func TestAPayloadIsReadInTheSlotOfItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rd := &Reader{slots: fair.NewSemaphore(1, 1)}
		ctx, release, err := rd.Acquire(t.Context(), "EVENTS_00", "sandjet.events.00.acc_a.c_1.x")
		testwait.OK(t, err)
		_, inner, err := rd.Acquire(ctx, "OBJ_payloads_39d", "$O.payloads_39d.C.x")
		testwait.OK(t, err)
		inner()
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_, other, err := rd.Acquire(t.Context(), "EVENTS_00", "sandjet.events.00.acc_b.c_1.x")
			if err == nil {
				other()
			}
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("the slot was released with the payload, not with the page")
		default:
		}
		release()
		<-waited
	})
}
