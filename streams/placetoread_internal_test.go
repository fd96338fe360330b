package streams

import (
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams/fair"
)

// TestAPayloadIsReadInThePlaceOfItsPage: who reads a page has one place until its payloads are there too. Would they take places of their
// own, as many readers as there are places would wait for each other.
func TestAPayloadIsReadInThePlaceOfItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bus{reads: fair.NewSemaphore(1, 1)}
		ctx, give, err := b.placeToRead(t.Context(), "EVENTS_00", "sandjet.events.00.acc_a.c_1.x")
		testwait.OK(t, err)
		_, inner, err := b.placeToRead(ctx, "OBJ_payloads_39d", "$O.payloads_39d.C.x")
		testwait.OK(t, err)
		inner()
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_, other, err := b.placeToRead(t.Context(), "EVENTS_00", "sandjet.events.00.acc_b.c_1.x")
			if err == nil {
				other()
			}
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("the place was given back with the payload, not with the page")
		default:
		}
		give()
		<-waited
	})
}
