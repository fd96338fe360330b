package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestReplayDeliveriesMakesThoseAgainThatMatch(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		publish := func(n int) {
			for _, a := range []schemas.AccountID{"acct_1", "acct_2"} {
				for _, p := range []schemas.EndpointID{"wh_1", "wh_2"} {
					d := schemas.Delivery{
						ID: schemas.DeliveryID(fmt.Sprintf("msg_%s_%d", p, n)), Account: a, Channel: schemas.WebhookChannel, Endpoint: p,
						Body: "x", Created: time.Now().UTC(), Attempt: 2, Last: &schemas.DeliveryTry{Status: 500},
					}
					if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		publish(1)
		time.Sleep(time.Hour)
		later := time.Now()
		publish(2)
		for _, c := range []struct {
			name string
			ask  lifecycle.DeliveryReplay
			want []string
			code error
		}{
			{"all of an account", lifecycle.DeliveryReplay{Account: "acct_1"},
				[]string{"msg_wh_1_1", "msg_wh_1_2", "msg_wh_2_1", "msg_wh_2_2"}, nil},
			{"an endpoint's", lifecycle.DeliveryReplay{Account: "acct_1", Endpoint: "wh_2"}, []string{"msg_wh_2_1", "msg_wh_2_2"}, nil},
			{"the later ones", lifecycle.DeliveryReplay{Account: "acct_1", Since: later}, []string{"msg_wh_1_2", "msg_wh_2_2"}, nil},
			{"one", lifecycle.DeliveryReplay{Account: "acct_2", ID: "msg_wh_1_1"}, []string{"msg_wh_1_1"}, nil},
			{"one of another endpoint", lifecycle.DeliveryReplay{Account: "acct_2", ID: "msg_wh_1_1", Endpoint: "wh_2"}, nil, schemas.ErrNotFound},
			{"one that never was", lifecycle.DeliveryReplay{Account: "acct_2", ID: "msg_x"}, nil, schemas.ErrNotFound},
			{"what is no id", lifecycle.DeliveryReplay{Account: "acct_2", ID: "msg.*"}, nil, schemas.ErrInvalid},
			{"no account", lifecycle.DeliveryReplay{}, nil, schemas.ErrInvalid},
		} {
			begun := lastDelivery(t, b)
			n, next, err := lifecycle.ReplayDeliveries(t.Context(), b, c.ask)
			if next != "" || n != len(c.want) || !errors.Is(err, c.code) {
				t.Errorf("%s: got %d, %v; want %d, %v", c.name, n, err, len(c.want), c.code)
			}
			time.Sleep(time.Second)
			var got []string
			for e, err := range streams.Deliveries.Replay(t.Context(), b, schemas.WebhookChannel, begun) {
				if err != nil {
					t.Fatal(err)
				}
				d := e.Value
				if got = append(got, string(d.ID)); d.Account != c.ask.Account || d.Attempt != 0 || d.Last != nil || d.Replay == 0 || d.Body != "x" {
					t.Errorf("%s: made again as %+v", c.name, d)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("%s: made again %q, want %q", c.name, got, c.want)
			}
		}
	})
}

func TestReplayDeliveriesTakesThePlaceOfATryThatWaits(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := schemas.Delivery{ID: "msg_1", Account: "acct_1", Channel: schemas.WebhookChannel, Endpoint: "wh_1", Body: "x", Created: time.Now()}
		if err := streams.Deliveries.Publish(ctx, b, d); err != nil {
			t.Fatal(err)
		}
		d.Attempt = 1
		if err := streams.Deliveries.Schedule(ctx, b, d, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := lifecycle.ReplayDeliveries(ctx, b, lifecycle.DeliveryReplay{Account: "acct_1", ID: "msg_1"}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(2 * time.Hour)
		seen := 0
		for e, err := range streams.Deliveries.Replay(ctx, b, schemas.WebhookChannel, schemas.Cursor{}) {
			if seen++; err != nil || e.Value.Replay != 1 {
				t.Errorf("got %+v, %v; want the replay alone", e.Value, err)
			}
		}
		if seen != 1 {
			t.Errorf("%d messages of one delivery are kept, want 1", seen)
		}
	})
}

// TestAReplayIsMadeInSlices: each delivery once, though those that are made again come behind the others meanwhile, and by whichever
// process; a slice that is made once more, after a crash, does no harm.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestAReplayIsMadeInSlices(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const all, slice = 10, 3
		for n := range all {
			d := schemas.Delivery{ID: schemas.DeliveryID(fmt.Sprint("msg_", n)), Account: "acct_1", Channel: schemas.WebhookChannel,
				Endpoint: "wh_1", Body: "x", Created: time.Now()}
			if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
				t.Fatal(err)
			}
		}
		ask := lifecycle.DeliveryReplay{Account: "acct_1", Since: time.Now().Add(-time.Hour), Slice: slice}
		sum, slices := 0, 0
		for {
			n, next, err := lifecycle.ReplayDeliveries(t.Context(), b, ask)
			if err != nil || n > slice {
				t.Fatalf("%d in a slice, %v", n, err)
			}
			time.Sleep(time.Second) // those of it are on their way, behind all others
			sum, slices = sum+n, slices+1
			if slices == 2 {
				continue // its answer was lost
			}
			if ask.After = next; next == "" {
				break
			}
		}
		if sum != all || slices != 4 {
			t.Errorf("%d deliveries in %d slices, want %d in 4", sum, slices, all)
		}
		seen := 0
		for e, err := range streams.Deliveries.Replay(t.Context(), b, schemas.WebhookChannel, schemas.Cursor{}) {
			if seen++; err != nil || e.Value.Replay != 1 {
				t.Errorf("got %+v, %v", e.Value, err)
			}
		}
		if seen != all {
			t.Errorf("%d deliveries are kept, want %d", seen, all)
		}
		for _, after := range []string{"x", "x.1", "x.0.5", "x.6.5", "x.-1.5", "x.1.5.7"} {
			ask.After = after
			if _, _, err := lifecycle.ReplayDeliveries(t.Context(), b, ask); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("after %q: %v", after, err)
			}
		}
		ask.After = "x.1.5"
		if _, _, err := lifecycle.ReplayDeliveries(t.Context(), b, ask); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("a slice of another log: %v", err)
		}
	})
}

// TestNotifyWritesAllDeliveriesOrNone: an event of an agent or a job whose deliveries do not fit on the log has none of them written, and
// all once there is room.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestNotifyWritesAllDeliveriesOrNone(t *testing.T) {
	t.Parallel()
	const store = 48 << 20
	l := natstest.Start(t, natstest.OnDisk(), func(s *natstest.Settings) { s.Server.MaxStore = store })
	ctx, durable := t.Context(), streams.OpenDurable(l.Bus)
	for after, n := uint64(0), 0; n < store/4; n += 512 << 10 {
		var err error
		if after, err = durable.Append(ctx, "acct_2", "ds_1", "", after, nil, make([]byte, 512<<10)); err != nil {
			t.Fatal(err)
		}
	}
	endpoints := make([]schemas.Endpoint, schemas.MaxEndpoints)
	for i := range endpoints {
		endpoints[i] = schemas.Endpoint{ID: schemas.EndpointID(fmt.Sprint("wh_", i)), Account: "acct_1"}
	}
	e := schemas.Event{ID: "acct_1.x", Type: schemas.AgentFinished, Account: "acct_1", Conversation: "c_1",
		Data: []byte(`{"text":"` + strings.Repeat("x", 250<<10) + `"}`)}
	kept := func() (n int) {
		for _, err := range streams.Deliveries.Replay(ctx, l.Bus, schemas.WebhookChannel, schemas.Cursor{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	more := append(slices.Clone(endpoints), endpoints[:50]...) // more than fit
	for i := range more[len(endpoints):] {
		more[len(endpoints)+i].ID += "_more"
	}
	if err := lifecycle.Notify(ctx, l.Bus, e, schemas.Cursor{}, more); !errors.Is(err, schemas.ErrUnavailable) || kept() != 0 {
		t.Fatalf("%d deliveries are there, and the error is %v", kept(), err)
	}
	if err := durable.Drop(ctx, "acct_2", "ds_1"); err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, "there is room", func() bool { return lifecycle.Notify(ctx, l.Bus, e, schemas.Cursor{}, endpoints) == nil })
	if kept() != len(endpoints) {
		t.Errorf("%d deliveries are there, want %d", kept(), len(endpoints))
	}
}

func lastDelivery(t *testing.T, b *streams.Bus) (at schemas.Cursor) {
	t.Helper()
	for e, err := range streams.Deliveries.Replay(t.Context(), b, "", schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		at = e.Cursor
	}
	return at
}
