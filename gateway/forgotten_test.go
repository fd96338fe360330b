package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestACallWhoseResultIsNoLongerKept: retention has removed what its conversation said of it, while its id is still known.
// Every route says that it has ended, and no event of it is published again. A call that only waits for long is not such a one.
//
//guarantee:the-same-id-is-the-same-call
func TestACallWhoseResultIsNoLongerKept(t *testing.T) {
	natstest.Hours(t)
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		queue, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			o := streams.ConsumeOptions{Name: "w-fake", Filter: "fake", Slots: 1}
			served <- streams.Calls.Consume(queue, e.bus, o, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
				r := schemas.Result{Call: d.Value.ID, Status: schemas.StatusCompleted, Finished: e.bus.Now()}
				return streams.Events.Publish(ctx, e.bus, schemas.NewEvent(d.Value, schemas.CallFinished,
					schemas.FinishedID(d.Value.Account, d.Value.ID), r.Finished, r))
			})
		}()
		request := func(id, conversation string) string {
			return `{"id":"` + id + `","conversation":"` + conversation + `","tool":"bash","input":{"command":"true"}}`
		}
		if a := e.post("/v1/calls?wait=10s", request("ended", "c_ended")); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if a := e.post("/v1/calls", request("waits", "c_waits")); a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
		r, err := schemas.DecodeRequest([]byte(request("crashed", "c_crashed")))
		if err != nil {
			t.Fatal(err)
		}
		crashed, err := book{}.Resolve(t.Context(), alice, r) // admission dies before it can publish
		if err != nil {
			t.Fatal(err)
		}
		if err := streams.Calls.Publish(t.Context(), e.bus, crashed); err != nil {
			t.Fatal(err)
		}
		for _, c := range []schemas.ConversationID{"c_ended", "c_waits", "c_crashed"} {
			for range 10 {
				about := schemas.NewEvent(schemas.Call{ID: "m", Account: alice, Conversation: c}, schemas.Message, schemas.NewID("e_"), time.Now(), struct{}{})
				if err := streams.Events.Publish(t.Context(), e.bus, about); err != nil {
					t.Fatal(err)
				}
			}
		}
		ctx, end := context.WithCancel(t.Context())
		retained := make(chan error, 1)
		go func() { retained <- (&streams.Retention{Bus: e.bus, Count: 5}).Run(ctx) }()
		time.Sleep(time.Hour)
		end()
		if err := <-retained; err != nil {
			t.Fatal(err)
		}

		for way, ask := range map[string]func() answer{
			"asked for":           func() answer { return e.get("/v1/calls/ended") },
			"waited for":          func() answer { return e.get("/v1/calls/ended?wait=60s") },
			"sent again":          func() answer { return e.post("/v1/calls", request("ended", "c_ended")) },
			"sent and waited for": func() answer { return e.post("/v1/calls?wait=60s", request("ended", "c_ended")) },
		} {
			began := time.Now()
			if a := ask(); a.status != http.StatusGone || !strings.Contains(a.body, "no longer kept") || !strings.Contains(a.body, `"not_found"`) {
				t.Errorf("%s: %d %s", way, a.status, a.body)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: answered after %s", way, took)
			}
		}
		if a := e.post("/v1/calls/ended/cancel", ""); a.status != http.StatusConflict {
			t.Errorf("cancelled: %d %s", a.status, a.body)
		}
		if got := saidOn(t, e, "c_ended"); slices.Contains(got, schemas.CallAccepted) {
			t.Errorf("it is accepted again: %v", got)
		}
		list := decode[calls.List](t, e.get("/v1/calls"))
		for _, c := range list.Calls {
			if want := map[schemas.CallID]string{"waits": "queued"}[c.ID]; c.Status != want {
				t.Errorf("%s is listed as %q, want %q", c.ID, c.Status, want)
			}
		}
		for _, id := range []string{"waits", "crashed"} {
			if a := e.get("/v1/calls/" + id); a.status != http.StatusAccepted || decode[calls.State](t, a).Status != "queued" {
				t.Errorf("%s, which waits: %d %s", id, a.status, a.body)
			}
			if a := e.post("/v1/calls", request(id, "c_"+id)); a.status != http.StatusAccepted {
				t.Errorf("%s sent again: %d %s", id, a.status, a.body)
			}
			n := 0
			for _, typ := range saidOn(t, e, schemas.ConversationID("c_"+id)) {
				if typ == schemas.CallAccepted {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s is accepted %d times on its conversation", id, n)
			}
		}
	})
}

// saidOn are the types of the events of a conversation of alice's.
func saidOn(t *testing.T, e *edge, c schemas.ConversationID) (types []schemas.EventType) {
	t.Helper()
	for item, err := range streams.Events.Replay(t.Context(), e.bus, string(alice)+"/"+string(c), schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, item.Value.Type)
	}
	return types
}
