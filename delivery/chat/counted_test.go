package chat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// counting is a Pacer that counts the turns of each place.
type counting struct{ places map[Place]int }

func (c *counting) Take(_ context.Context, at Place, _ []channel.Pace) (time.Duration, error) {
	c.places[at]++
	return 0, nil
}

func (*counting) Rest(context.Context, Place, time.Duration) error { return nil }

// Channel records with the same credential share rate limits, even if they belong to several accounts. The id that they share reveals
// nothing of the credential.
func TestRecordsWithOneCredentialShareAPace(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		records := records{
			{ID: "chan_1", Account: "acct_1", Kind: "memory", Name: "a", Secrets: map[string]string{"token": "hidden", "hook": "x"}},
			{ID: "chan_2", Account: "acct_1", Kind: "memory", Name: "b", Secrets: map[string]string{"token": "hidden", "hook": "y"}},
			{ID: "chan_3", Account: "acct_1", Kind: "memory", Name: "c", Secrets: map[string]string{"token": "hidden", "app": "another"}},
		}
		for name, c := range map[string]struct {
			digest func(string) (string, bool)
			want   int
		}{
			"with a key": {func(s string) (string, bool) { return "digest-" + string(rune('a'+len(s)%26)), true }, 2},
			"without":    {func(string) (string, bool) { return "", false }, 3},
			"none":       {nil, 3},
		} {
			p := &counting{places: map[Place]int{}}
			service := newService(channel.OnceNever)
			service.profile.Secrets = []channel.Secret{{Name: "token", Counted: true}, {Name: "app", Counted: true}, {Name: "hook"}}
			s := &Sender{Bus: b, Channels: records, Adapter: service, Render: inLines, Pacer: p, Digest: c.digest}
			for _, r := range records {
				d := schemas.Delivery{ID: schemas.DeliveryID("dlv_" + strings.ReplaceAll(name, " ", "") + string(r.ID)), Account: r.Account,
					Channel: "memory", ChannelID: r.ID, Route: []byte(`{"chat":"one"}`), Body: `{"text":"a"}`, Created: b.Now()}
				if _, v := s.Send(t.Context(), d); v.Kind != delivery.Delivered {
					t.Errorf("%s: %+v", name, v)
				}
			}
			if len(p.places) != c.want {
				t.Errorf("%s: %v", name, p.places)
			}
			for at := range p.places {
				if strings.Contains(string(at.Channel), "hidden") {
					t.Errorf("%v names the credential", at)
				}
			}
		}
	})
}
