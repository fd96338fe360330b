package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

func TestCredentialsForNATS(t *testing.T) {
	t.Parallel()
	const url = "nats://nats.example.com:4222"
	k := openKept(t, func(o *gateway.Options) { o.NATS, o.NATSURL = o.Records.(*records.Store).Accounts, url })
	admin := holder{key: adminKey}
	for name, c := range map[string]struct {
		who        holder
		path, body string
		ttl        time.Duration // 0: refused
		status     int
	}{
		"an hour, unless said":  {k.anna, "me", "", time.Hour, 201},
		"as asked":              {k.anna, "me", `{"ttl":"90s"}`, 90 * time.Second, 201},
		"by her id":             {k.anna, k.anna.id, `{}`, time.Hour, 201},
		"by the administrator":  {admin, k.anna.id, `{"ttl":"24h"}`, 24 * time.Hour, 201},
		"too long":              {k.anna, "me", `{"ttl":"25h"}`, 0, 400},
		"too short":             {k.anna, "me", `{"ttl":"1s"}`, 0, 400},
		"unknown fields":        {k.anna, "me", `{"seconds":60}`, 0, 400},
		"of another account":    {k.bert, k.anna.id, "", 0, 404},
		"of nobody":             {admin, "acct_none", "", 0, 404},
		"without a key":         {holder{key: "-"}, "me", "", 0, 401},
		"the admin has no self": {admin, "me", "", 0, 401},
	} {
		a := k.as(c.who, http.MethodPost, "/v1/accounts/"+c.path+"/nats-credentials", c.body)
		if a.status != c.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if c.ttl == 0 {
			continue
		}
		got := decode[schemas.NATSCredential](t, a)
		left := time.Until(got.Expires)
		if got.User != k.anna.id || got.URL != url || left > c.ttl || left < c.ttl-time.Minute || got.InboxPrefix != "sandjet.reply."+k.anna.id ||
			!slices.Equal(got.Publish, []string{"sandjet.calls.auto." + k.anna.id, "sandjet.rpc.call." + k.anna.id,
				"sandjet.rpc.approvals." + k.anna.id}) ||
			!slices.Equal(got.Subscribe, []string{"sandjet.live." + k.anna.id + ".>", "sandjet.reply." + k.anna.id + ".>"}) {
			t.Errorf("%s: %+v", name, got)
		}
		if a, _, ok := k.store.Accounts.AuthenticateNATS(got.User, got.Password); !ok || string(a) != k.anna.id {
			t.Errorf("%s: it opens nothing", name)
		}
		if a := k.as(holder{key: got.Password}, http.MethodGet, "/v1/accounts/me", ""); a.status != http.StatusUnauthorized {
			t.Errorf("%s: over HTTP it is no key, but %d %s", name, a.status, a.body)
		}
	}
	without := openKept(t)
	if a := without.as(without.anna, http.MethodPost, "/v1/accounts/me/nats-credentials", ""); a.status != http.StatusNotImplemented ||
		!strings.Contains(a.body, "id and key") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
