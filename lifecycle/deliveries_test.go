package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

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
			n, err := lifecycle.ReplayDeliveries(t.Context(), b, c.ask)
			if n != len(c.want) || !errors.Is(err, c.code) {
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
		if n, err := lifecycle.ReplayDeliveries(ctx, b, lifecycle.DeliveryReplay{Account: "acct_1", ID: "msg_1"}); n != 1 || err != nil {
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
