package streams

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestTheLimitOfTheStore: what was asked for, else three quarters of the disk; never so little that what is there could not be removed.
func TestTheLimitOfTheStore(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name              string
		asked, used, free int64
		want              int64
		lifted            bool
	}{
		{"asked for, empty", gib, 0, 8 * gib, gib, false},
		{"asked for, half full", gib, gib / 2, 8 * gib, gib, false},
		{"by the disk, empty", 0, 0, 8 * gib, 6 * gib, false},
		{"by the disk, again with what it keeps", 0, 4 * gib, 4 * gib, 6 * gib, false},
	} {
		if got, lifted := storeLimit(c.asked, c.used, c.free); got != c.want || lifted != c.lifted {
			t.Errorf("%s: %d %v, want %d %v", c.name, got, lifted, c.want, c.lifted)
		}
	}
	for _, asked := range []int64{gib, 0} {
		got, lifted := storeLimit(asked, 4*gib, 0)
		if v := (roomView{got, 4 * gib}); !lifted || !v.fits(workGoing, 1<<20) || v.fits(workNew, 0) || got > 5*gib {
			t.Errorf("asked for %d with more kept: %d %v", asked, got, lifted)
		}
	}
}

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
