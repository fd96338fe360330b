package usage

import (
	"context"
	"testing"
)

// TestReservedRoomIsKept: what is reserved counts until it is written, whatever the looks of that time have seen, and for all who ask
// in that time.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestReservedRoomIsKept(t *testing.T) {
	used := int64(10)
	r := NewRoom(func(context.Context) (View, error) { return View{Limit: 100, Used: used}, nil })
	ctx := t.Context()
	r.Refresh(ctx)
	if !r.keep(Requested, 50) || r.keep(Requested, 21) || r.add(Requested, 21) || !r.add(Requested, 20) {
		t.Fatalf("50 of 70 reserved, then 21 refused and 20 taken: %+v, reserved %d", r.view, r.reserved)
	}
	used += 20
	r.Refresh(ctx) // it sees the 20, and nothing of what is reserved
	if r.add(Requested, 1) {
		t.Error("what is reserved is given to another after a look")
	}
	used += 40 // as much of it was written
	r.release(50)
	if r.add(Requested, 1) {
		t.Error("what was written since the look is not counted")
	}
	r.Refresh(ctx) // it does not know that the look saw what was released
	r.Refresh(ctx)
	if !r.add(Requested, 10) || r.add(Requested, 1) || r.reserved != 0 {
		t.Errorf("10 are left in the end: %+v, reserved %d", r.view, r.reserved)
	}
}
