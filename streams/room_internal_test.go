package streams

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestRoomOfTiers: limits by the number of copies count what is kept, and use counts the copies.
func TestRoomOfTiers(t *testing.T) {
	var info jetstream.AccountInfo
	info.Store, info.Limits.MaxStore = 10, -1
	if got := viewOf(&info, 3); got != (roomView{0, 10}) {
		t.Errorf("without a limit: %+v", got)
	}
	info.Limits.MaxStore = 100
	if got := viewOf(&info, 3); got != (roomView{100, 10}) {
		t.Errorf("with one: %+v", got)
	}
	var tier jetstream.Tier
	tier.Store, tier.Limits.MaxStore = 30, 100
	info.Tiers = map[string]jetstream.Tier{"R3": tier}
	if got := viewOf(&info, 3); got != (roomView{300, 30}) {
		t.Errorf("with tiers: %+v", got)
	}
}

// TestReservedRoomIsKept: what is reserved counts until it is written, whatever the looks of that time have seen, and for all who ask
// in that time.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestReservedRoomIsKept(t *testing.T) {
	used := int64(10)
	r := newRoom(func(context.Context) (roomView, error) { return roomView{limit: 100, used: used}, nil })
	ctx := t.Context()
	r.refresh(ctx)
	if !r.keep(workNew, 50) || r.keep(workNew, 21) || r.add(workNew, 21) || !r.add(workNew, 20) {
		t.Fatalf("50 of 70 reserved, then 21 refused and 20 taken: %+v, reserved %d", r.view, r.reserved)
	}
	used += 20
	r.refresh(ctx) // it sees the 20, and nothing of what is reserved
	if r.add(workNew, 1) {
		t.Error("what is reserved is given to another after a look")
	}
	used += 40 // as much of it was written
	r.release(50)
	if r.add(workNew, 1) {
		t.Error("what was written since the look is not counted")
	}
	r.refresh(ctx) // it does not know that the look saw what was released
	r.refresh(ctx)
	if !r.add(workNew, 10) || r.add(workNew, 1) || r.reserved != 0 {
		t.Errorf("10 are left in the end: %+v, reserved %d", r.view, r.reserved)
	}
}
