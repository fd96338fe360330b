package chat

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// ends returns the events about the end of deliveries on a conversation, by delivery.
func ends(t *testing.T, b *streams.Bus) map[string][]schemas.Event {
	t.Helper()
	out := map[string][]schemas.Event{}
	for e, err := range streams.Events.Replay(t.Context(), b, "acct_1/c_1", schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		out[e.Value.Subject] = append(out[e.Value.Subject], e.Value)
	}
	return out
}

// TestDeliveriesGoThroughTheLog runs deliverers on a NATS server. Each delivery that arrives or fails for good is published on the
// conversation once. A delivery that a channel refuses is sent through its fallback. When a deliverer ends, the next one continues.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestDeliveriesGoThroughTheLog(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		service := newService(channel.OnceByLook)
		service.faults = func(n int) fault { return map[int]fault{0: unanswered, 3: lostBefore}[n] }
		blocked := newService(channel.OnceNever)
		blocked.profile.Kind = "blocked"
		blocked.faults = func(int) fault { return gone }
		channels := append(bot(), schemas.ChatChannel{
			ID: "chan_2", Account: "acct_1", Kind: "blocked", Name: "other", Secrets: map[string]string{"token": "hidden"},
			Fallback: &schemas.ChannelPlace{Channel: "chan_1", Route: json.RawMessage(`{"chat":"fallback"}`)},
		})
		run := func() (stop func()) {
			var stops []func()
			for _, a := range []channel.Adapter{service.adapter(), blocked} {
				stops = append(stops, deliver(t, &delivery.Deliverer{
					Bus: b, Channel: a.Profile().Kind, Waits: []time.Duration{0, 5 * time.Second, time.Minute},
					Sender: &Sender{Bus: b, Channels: channels, Adapter: a, Render: inLines},
				}))
			}
			return func() {
				for _, s := range stops {
					s()
				}
			}
		}
		stop := run()
		twoParts, refused, alone := toChat(1, "x", "a\nb"), toChat(2, "y", "c"), toChat(3, "z", "d")
		refused.Channel = "blocked"
		alone.Channel, alone.Tries = "blocked", 1
		for _, d := range []schemas.Delivery{twoParts, refused, alone} {
			if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		stop()
		stop = run()
		time.Sleep(5 * time.Minute)
		stop()

		if got := service.seen("x"); len(got) != 2 || got[0].text != "a" || got[1].text != "b" {
			t.Errorf("%+v", got)
		}
		if got := service.seen("fallback"); len(got) != 1 || got[0].text != "c" {
			t.Errorf("%+v", got)
		}
		all := ends(t, b)
		if len(all) != 4 {
			t.Errorf("%d deliveries have an end: %+v", len(all), all)
		}
		for id, events := range all {
			if len(events) != 1 {
				t.Errorf("%s has %d ends", id, len(events))
			}
		}
		var ok schemas.DeliverySentData
		if e := all[string(twoParts.ID)][0]; e.Type != schemas.DeliverySent || json.Unmarshal(e.Data, &ok) != nil || len(ok.Messages) != 2 ||
			ok.Messages[1].ID != "2" || ok.ChannelID != "chan_1" {
			t.Errorf("%s %s", e.Type, e.Data)
		}
		var not schemas.DeliveryFailedData
		if e := all[string(refused.ID)][0]; e.Type != schemas.DeliveryFailed || json.Unmarshal(e.Data, &not) != nil ||
			!strings.Contains(not.Reason, "blocked by the user") || not.Fallback != "chan_1" {
			t.Errorf("%s %s", e.Type, e.Data)
		}
		not = schemas.DeliveryFailedData{}
		if e := all[string(alone.ID)][0]; e.Type != schemas.DeliveryFailed || json.Unmarshal(e.Data, &not) != nil || not.Fallback != "" {
			t.Errorf("%s %s", e.Type, e.Data)
		}
		letters, err := streams.OpenDeadLetters(b).List(t.Context(), "", 0)
		if err != nil || len(letters) != 2 {
			t.Errorf("%+v, %v", letters, err)
		}
	})
}

func deliver(t *testing.T, d *delivery.Deliverer) (stop func()) {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
