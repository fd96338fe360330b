package streams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
)

// TestAFullLogKeepsRoomForWhatEndsIt: durable streams fill the log up to their limit. New work is refused then with the error of a full
// log. What follows from accepted work can still be stored; leases, records and removals can be stored even when that room is used up.
// The same holds for another process and after a restart. A removal frees the room again.
//
//guarantee:pauses-cuts-and-full-disks
//guarantee:what-one-tenant-can-do-to-another
func TestAFullLogKeepsRoomForWhatEndsIt(t *testing.T) {
	const store = 48 << 20
	l := natstest.Start(t, natstest.OnDisk(), func(s *natstest.Settings) { s.Server.MaxStore = store })
	b, ctx := l.Bus, t.Context()
	durable := streams.OpenDurable(b)
	piece := make([]byte, 512<<10)
	var err error
	after, kept := uint64(0), 0
	for ; len(piece) > 0; piece = piece[:len(piece)/16] { // the last ones leave no room for a call
		for err = nil; err == nil && kept < 2*store; {
			var seq uint64
			if seq, err = durable.Append(ctx, account, "ds_fill", "", after, []byte("{}"), piece); err == nil {
				after, kept = seq, kept+len(piece)
			}
		}
	}
	if schemas.CodeOf(err) != schemas.Unavailable || kept < store/10*7 || kept > store/10*8 {
		t.Fatalf("%d bytes of %d were taken, then: %v", kept, store, err)
	}
	other := l.Open()
	refused := func(when string) {
		t.Helper()
		for i, bus := range []*streams.Bus{b, other} {
			if err := streams.Calls.Publish(ctx, bus, callOf(fmt.Sprintf("call_%s_%d", when, i))); schemas.CodeOf(err) != schemas.Unavailable {
				t.Errorf("%s, bus %d: a call on a full log: %v", when, i, err)
			}
			if err := bus.Room(ctx, 1000); schemas.CodeOf(err) != schemas.Unavailable {
				t.Errorf("%s, bus %d: room: %v", when, i, err)
			}
			if err := bus.Ready(ctx); schemas.CodeOf(err) != schemas.Unavailable {
				t.Errorf("%s, bus %d: ready: %v", when, i, err)
			}
		}
	}
	refused("full")
	retry := schemas.Delivery{ID: "msg_0", Account: account, Channel: schemas.WebhookChannel, Body: "x"}
	if err := streams.Deliveries.Schedule(ctx, b, retry, b.Now().Add(time.Hour)); err != nil {
		t.Errorf("the next try of a delivery while accepted work goes on: %v", err)
	}
	if err := streams.Deliveries.Requested().Schedule(ctx, b, retry, b.Now()); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("a delivery that a client wants again: %v", err)
	}
	n := 0
	for err = nil; err == nil && n < 100; n++ {
		err = streams.Events.Publish(ctx, b, eventOf(callOf("call_1"), fmt.Sprint("out", n), schemas.CallOutput,
			schemas.OutputData{Text: string(make([]byte, 64<<10))}))
	}
	if schemas.CodeOf(err) != schemas.Unavailable || n < 4 {
		t.Fatalf("%d events of accepted work were taken, then: %v", n, err)
	}
	d := schemas.Delivery{ID: "msg_1", Account: account, Channel: schemas.WebhookChannel, Body: string(make([]byte, 64<<10))}
	if err := streams.Deliveries.Schedule(ctx, b, d, b.Now().Add(time.Hour)); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("the next try of a delivery: %v", err)
	}
	always := func(when string) {
		t.Helper()
		for i, bus := range []*streams.Bus{b, other} {
			key := fmt.Sprintf("worker.%s.%d", when, i)
			if _, err := streams.OpenBucket[string](bus, streams.Leases).Put(ctx, key, "here"); err != nil {
				t.Errorf("%s, bus %d: a lease: %v", when, i, err)
			}
			records := streams.OpenBucket[string](bus, streams.Records)
			if _, err := records.Put(ctx, key, "there"); err != nil {
				t.Errorf("%s, bus %d: a record: %v", when, i, err)
			}
			if err := records.Delete(ctx, key); err != nil {
				t.Errorf("%s, bus %d: a removal: %v", when, i, err)
			}
		}
	}
	always("full")
	l.Restart()
	testwait.Eventually(t, "the server is back", func() bool {
		for _, bus := range []*streams.Bus{b, other} {
			_, err := streams.OpenBucket[string](bus, streams.Leases).Put(ctx, "worker.back", "here")
			if schemas.CodeOf(bus.Ready(ctx)) != schemas.Unavailable || err != nil {
				return false
			}
		}
		return true
	})
	always("again")
	refused("again")
	testwait.Eventually(t, "the stream is removed", func() bool { return durable.Drop(ctx, account, "ds_fill") == nil })
	for i, bus := range []*streams.Bus{b, other} {
		testwait.Eventually(t, "the room is seen", func() bool { return bus.Room(ctx, 1) == nil })
		if err := streams.Calls.Publish(ctx, bus, callOf(fmt.Sprintf("call_room_%d", i))); err != nil {
			t.Errorf("bus %d: a call when there is room again: %v", i, err)
		}
		if err := bus.Ready(ctx); err != nil {
			t.Errorf("bus %d: ready: %v", i, err)
		}
	}
}

// TestALogThatIsLargerThanItMayBe: the operator starts it with a smaller limit than what it keeps.
//
//guarantee:pauses-cuts-and-full-disks
func TestALogThatIsLargerThanItMayBe(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	first, err := streams.StartServer(ctx, embedded.Options{DataDir: dir, Port: -1, MaxStore: 64 << 20}, fair.Shares{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := streams.Open(ctx, streams.Options{Server: first})
	if err != nil {
		t.Fatal(err)
	}
	after, piece := uint64(0), make([]byte, 512<<10)
	for range 40 {
		if after, err = streams.OpenDurable(b).Append(ctx, account, "ds_1", "", after, nil, piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(ctx); err != nil {
		t.Fatal(err)
	}
	first.Shutdown()
	l := natstest.Start(t, natstest.Dir(dir), func(s *natstest.Settings) { s.Server.MaxStore = 8 << 20 })
	if err := streams.Calls.Publish(ctx, l.Bus, callOf("call_1")); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("a call: %v", err)
	}
	if _, err := streams.OpenBucket[string](l.Bus, streams.Leases).Put(ctx, "w1", "here"); err != nil {
		t.Errorf("a lease: %v", err)
	}
	if err := streams.OpenDurable(l.Bus).Drop(ctx, account, "ds_1"); err != nil {
		t.Errorf("a removal: %v", err)
	}
}
