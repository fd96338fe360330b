package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/clock"
)

//guarantee:side-effects-are-started-at-most-once
func TestSignsOfLifeOfAHostThatSlept(t *testing.T) {
	t.Parallel()
	const nap = 15 * time.Minute
	b := newProgressAcks(&Bus{connections: connections{publish: new(nats.Conn), work: new(nats.Conn)}})
	h := b.add(&message{}, 3*time.Second)
	if h.late() {
		t.Fatal("late at its beginning")
	}
	h.last = h.last.Asleep(-nap) // as if the host had slept since
	if !h.late() {
		t.Error("no sign went out for as long as the host slept, and that is not noticed")
	}
	b.drop(h)
	b.woke = clock.Now().Asleep(-nap)
	b.holds[&hold{}] = struct{}{}
	if !b.add(&message{}, 3*time.Second).late() {
		t.Error("what lay in the socket while the host slept is taken for new")
	}
}

//guarantee:side-effects-are-started-at-most-once
func TestAnotherConnectionMakesADeliveryLate(t *testing.T) {
	t.Parallel()
	bus := &Bus{}
	bus.publishChanges.Changed, bus.workChanges.Changed = make(chan nats.Status, 1), make(chan nats.Status, 1)
	b := newProgressAcks(bus)
	before, now := b.add(&message{}, time.Minute), bus.Generation()
	bus.workChanges.Changed <- nats.CONNECTED
	if !before.late() || bus.Generation() == now {
		t.Error("a new connection for deliveries is not noticed")
	}
	after := b.add(&message{generation: bus.Generation()}, time.Minute)
	if after.late() {
		t.Error("what came by the new connection is late")
	}
	bus.publishChanges.Changed <- nats.RECONNECTING
	if !after.late() {
		t.Error("a new connection for results is not noticed")
	}
}
