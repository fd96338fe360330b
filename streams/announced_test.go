package streams_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestABusKnowsWhatItHasAnnounced: once, as long as the log would recognise it by its id, and only what the log has confirmed.
//
//guarantee:one-result-for-every-accepted-call
func TestABusKnowsWhatItHasAnnounced(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		announce := func(id string) schemas.Call {
			c := callOf(id)
			if _, err := streams.StoreOnce(t.Context(), b, schemas.AcceptedEvent(c), b.Absent()); err != nil {
				t.Fatal(err)
			}
			return c
		}
		if b.Announced(callOf("never")) {
			t.Error("a call is taken for announced that is not")
		}
		c := announce("one")
		if !b.Announced(c) || b.Announced(c) {
			t.Error("it is not said once")
		}
		late := announce("late")
		time.Sleep(streams.SureWithin)
		if b.Announced(late) {
			t.Error("it is believed for longer than the log is")
		}
	})
}

// TestALostConnectionEndsWhatABusKnows: a log that was started again may have lost its end.
//
//guarantee:one-result-for-every-accepted-call
func TestALostConnectionEndsWhatABusKnows(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t, natstest.OnDisk())
	c := callOf("one")
	if _, err := streams.StoreOnce(t.Context(), l.Bus, schemas.AcceptedEvent(c), l.Bus.Absent()); err != nil {
		t.Fatal(err)
	}
	before := l.Bus.Generation()
	l.Restart()
	testwait.Eventually(t, "its connections are new", func() bool { return l.Bus.Generation() != before })
	if l.Bus.Announced(c) {
		t.Error("a call counts as announced on a log that was started again")
	}
}
