package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/records"
)

// TestTheClientOfE2BIsServedToWhoHasAKey: off unless enabled. Then each account has separate sandboxes, which cannot be reached with the
// token of another sandbox, with a key in place of the token, or after their end. internal/crashtest tries the whole with the client
// itself.
func TestTheClientOfE2BIsServedToWhoHasAKey(t *testing.T) {
	t.Parallel()
	const sandboxes, body = "/v2/sandboxes", `{"templateID":"base","timeout":600,"metadata":{"a":"b"}}`
	off := openSessions(t)
	if a := off.do(ask{method: http.MethodPost, path: sandboxes, body: body, key: "-"}); a.status != http.StatusNotFound {
		t.Errorf("it is served without being asked for: %d %s", a.status, a.body)
	}
	k := openKept(t, func(o *gateway.Options) {
		o.Sandboxes, o.E2B, o.Keys = sessions(o.Records.(*records.Store)), true, o.Records.(*records.Store).Accounts
	})
	k.workAs("local")
	type shown struct {
		ID    string `json:"sandboxID"`
		Token string `json:"envdAccessToken"`
	}
	api := func(key, method, path, body string, header ...string) answer {
		h := http.Header{"X-Api-Key": {key}}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return k.do(ask{method: method, path: path, body: body, key: "-", header: h})
	}
	created := func(h holder, header ...string) shown {
		t.Helper()
		a := api(h.key, http.MethodPost, sandboxes, body, header...)
		if a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return decode[shown](t, a)
	}
	anna, bert := created(k.anna, "Idempotency-Key", "one"), created(k.bert, "Idempotency-Key", "one")
	if again := created(k.anna, "Idempotency-Key", "one"); again.ID != anna.ID || anna.ID == bert.ID {
		t.Errorf("made %s, again %s, by another %s", anna.ID, again.ID, bert.ID)
	}
	inside := func(token, id string) answer {
		return api("", http.MethodGet, "/health", "", "X-Access-Token", token, "E2b-Sandbox-Id", id)
	}
	rpc := func(method, body string) answer {
		return api("", http.MethodPost, method, body, "X-Access-Token", anna.Token)
	}
	for name, c := range map[string]struct {
		got    answer
		status int
	}{
		"without a key":         {api("", http.MethodGet, sandboxes, ""), http.StatusUnauthorized},
		"with a wrong key":      {api("sk_none", http.MethodGet, sandboxes, ""), http.StatusUnauthorized},
		"with the old route":    {api(k.anna.key, http.MethodGet, "/sandboxes/"+anna.ID, ""), http.StatusOK},
		"another's":             {api(k.bert.key, http.MethodGet, "/sandboxes/"+anna.ID, ""), http.StatusNotFound},
		"another's end":         {api(k.bert.key, http.MethodDelete, "/sandboxes/"+anna.ID, ""), http.StatusNotFound},
		"the key used twice":    {api(k.anna.key, http.MethodPost, sandboxes, `{"templateID":"base"}`, "Idempotency-Key", "one"), http.StatusConflict},
		"what is not served":    {api(k.anna.key, http.MethodPost, "/sandboxes/"+anna.ID+"/pause", ""), http.StatusNotImplemented},
		"code without a token":  {api("", http.MethodPost, "/execute", "{}"), http.StatusUnauthorized},
		"code in R":             {rpc("/execute", `{"code":"1","language":"r"}`), http.StatusNotImplemented},
		"code in no context":    {rpc("/execute", `{"code":"1","context_id":"x"}`), http.StatusNotFound},
		"its token":             {inside(anna.Token, anna.ID), http.StatusNoContent},
		"another's token":       {inside(bert.Token, anna.ID), http.StatusUnauthorized},
		"a key for a token":     {inside(k.anna.key, anna.ID), http.StatusUnauthorized},
		"a changed token":       {inside(strings.ToUpper(anna.Token), anna.ID), http.StatusUnauthorized},
		"a process of no stdin": {rpc("/process.Process/SendInput", `{"process":{"pid":7}}`), http.StatusNotFound},
		"a path that leads out": {rpc("/filesystem.Filesystem/Stat", `{"path":"../x"}`), http.StatusBadRequest},
	} {
		if c.got.status != c.status || c.status >= http.StatusBadRequest && !strings.Contains(c.got.body, `"code":`) {
			t.Errorf("%s: %d %s, want %d", name, c.got.status, c.got.body, c.status)
		}
	}
	if a := api(k.bert.key, http.MethodGet, sandboxes, ""); !strings.Contains(a.body, bert.ID) || strings.Contains(a.body, anna.ID) {
		t.Errorf("bert sees %s", a.body)
	}
	if a := api(k.anna.key, http.MethodDelete, "/sandboxes/"+anna.ID, ""); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := inside(anna.Token, anna.ID); a.status != http.StatusBadGateway {
		t.Errorf("after its end: %d %s", a.status, a.body)
	}
}
