package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/accounts"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

const adminKey = "the administrator's key"

// kept is an edge over real records, with an account of its own and two that the administrator made.
type kept struct {
	*edge

	store      *records.Store
	anna, bert holder // two tenants
}

type holder struct{ id, key string }

// accountsOf are the records behind the routes of accounts.
func accountsOf(s *records.Store) *accounts.Store {
	return &accounts.Store{Accounts: s.Accounts, Documents: s.Documents, Manifests: s.Manifests, Variables: s.Variables}
}

func openKept(t *testing.T, change ...func(*gateway.Options)) *kept {
	t.Helper()
	k := &kept{}
	keep := func(o *gateway.Options) {
		ring, err := seal.NewRing(seal.Generate())
		if err != nil {
			t.Fatal(err)
		}
		if k.store, err = records.Open(context.Background(), o.Bus, ring, recordstest.Providers()); err != nil {
			t.Fatal(err)
		}
		o.Records, o.Accounts, o.AdminKeyHash = k.store, accountsOf(k.store), records.HashKey(adminKey)
	}
	k.edge = open(t, append([]func(*gateway.Options){keep}, change...)...)
	k.anna, k.bert = k.join("anna"), k.join("bert")
	return k
}

func (k *kept) join(name string) holder {
	k.t.Helper()
	a := k.do(ask{method: http.MethodPost, path: "/v1/accounts", body: `{"name":"` + name + `"}`, key: adminKey})
	if a.status != http.StatusCreated {
		k.t.Fatalf("%d %s", a.status, a.body)
	}
	made := decode[struct {
		Account schemas.AccountDocument
		Secret  string
	}](k.t, a)
	if made.Account.Name != name || made.Account.ID.Validate() != nil || !strings.HasPrefix(made.Secret, "sk_") {
		k.t.Errorf("made %+v", made)
	}
	return holder{string(made.Account.ID), made.Secret}
}

func (k *kept) as(c holder, method, path, body string, header ...string) answer {
	k.t.Helper()
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return k.do(ask{method: method, path: path, body: body, key: c.key, header: h})
}

func (k *kept) add(c holder, collection, body string) (id, etag string) {
	k.t.Helper()
	a := k.as(c, http.MethodPost, "/v1/accounts/me/"+collection, body)
	d := decode[struct{ ID string }](k.t, a)
	if a.status != http.StatusCreated || d.ID == "" || a.header.Get("Location") != "/v1/accounts/me/"+collection+"/"+d.ID {
		k.t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	return d.ID, a.header.Get("ETag")
}

func TestARecordFromItsMakingToItsEnd(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	for collection, c := range map[string]struct{ spec, patch, says string }{
		"sandboxes": {
			`{"name":"build","config":{"timeout":60,"network":{"mode":"allow-all"},"envVars":{"A":"planted-1","B":"planted-2"}}}`,
			`{"description":"d","config":{"timeout":null,"envVars":{"A":"********","B":null,"C":"planted-3"}}}`,
			`"timeout":30,"outputLimitBytes":65536,"envVars":{"A":"********","C":"********"}`,
		},
		"workspaces": {`{"name":"docs"}`, `{"description":"d","name":"books"}`, `"name":"books","description":"d","config":{},"sandbox":null`},
	} {
		id, first := k.add(k.anna, collection, c.spec)
		one := "/v1/accounts/me/" + collection + "/" + id
		got := k.as(k.anna, http.MethodGet, one, "")
		if got.status != http.StatusOK || got.header.Get("ETag") != first {
			t.Errorf("%s: %d %s, %s after %s", one, got.status, got.body, got.header.Get("ETag"), first)
		}
		changed := k.as(k.anna, http.MethodPatch, one, c.patch, "If-Match", first)
		if changed.status != http.StatusOK || !strings.Contains(changed.body, c.says) || changed.header.Get("ETag") == first {
			t.Errorf("%s: %d %s, want %s", one, changed.status, changed.body, c.says)
		}
		for _, method := range []string{http.MethodPatch, http.MethodDelete} {
			body := ""
			if method == http.MethodPatch {
				body = `{"description":"lost"}`
			}
			if late := k.as(k.anna, method, one, body, "If-Match", first); late.status != http.StatusPreconditionFailed {
				t.Errorf("%s of an old revision: %d %s", method, late.status, late.body)
			}
		}
		list := k.as(k.anna, http.MethodGet, "/v1/accounts/me/"+collection, "")
		if n := len(decode[map[string][]json.RawMessage](t, list)[collection]); n != 2 || !strings.Contains(list.body, id) { // default and this
			t.Errorf("%d in %s", n, list.body)
		}
		for _, a := range []answer{got, changed, list} {
			if strings.Contains(a.body, "planted") {
				t.Errorf("a secret is shown: %s", a.body)
			}
		}
		if gone := k.as(k.anna, http.MethodDelete, one, "", "If-Match", changed.header.Get("ETag")); gone.status != http.StatusOK ||
			gone.body != `{"deleted":true}` {
			t.Errorf("%d %s", gone.status, gone.body)
		}
		if after := k.as(k.anna, http.MethodGet, one, ""); after.status != http.StatusNotFound {
			t.Errorf("after its end: %d %s", after.status, after.body)
		}
	}
}

func TestWhatIsMaskedKeepsItsValue(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	id, _ := k.add(k.anna, "sandboxes", `{"name":"s","config":{"envVars":{"A":"one","B":"two"}}}`)
	k.as(k.anna, http.MethodPatch, "/v1/accounts/me/sandboxes/"+id, `{"config":{"envVars":{"A":"********","B":null,"C":"three"}}}`)
	s, err := k.store.Sandbox(t.Context(), schemas.AccountID(k.anna.id), schemas.SandboxID(id))
	if err != nil || fmt.Sprint(s.EnvVars) != "map[A:one C:three]" {
		t.Errorf("%v, %v", s.EnvVars, err)
	}
	if a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me/sandboxes/"+id,
		`{"config":{"envVars":{"D":"********"}}}`); a.status != http.StatusBadRequest {
		t.Errorf("a mask of nothing: %d %s", a.status, a.body)
	}
}

// TestAnotherAccountsRecordsDoNotExist asks every route for what is another's and for what is not there:
// both answers are the same but for the id.
func TestAnotherAccountsRecordsDoNotExist(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	sandbox, _ := k.add(k.bert, "sandboxes", `{"name":"his"}`)
	workspace, _ := k.add(k.bert, "workspaces", `{"name":"his"}`)
	for _, c := range []struct{ method, path, body, foreign, none string }{
		{"GET", "/v1/accounts/me/sandboxes/%s", "", sandbox, "sb_none"},
		{"PATCH", "/v1/accounts/me/sandboxes/%s", `{"description":"x"}`, sandbox, "sb_none"},
		{"DELETE", "/v1/accounts/me/sandboxes/%s", "", sandbox, "sb_none"},
		{"GET", "/v1/accounts/me/workspaces/%s", "", workspace, "ws_none"},
		{"PATCH", "/v1/accounts/me/workspaces/%s", `{"description":"x"}`, workspace, "ws_none"},
		{"DELETE", "/v1/accounts/me/workspaces/%s", "", workspace, "ws_none"},
		{"POST", "/v1/accounts/me/workspaces", `{"name":"w","sandbox":"%s"}`, sandbox, "sb_none"},
		{"GET", "/v1/accounts/%s", "", k.bert.id, "acct_none"},
		{"PATCH", "/v1/accounts/%s", `{"name":"x"}`, k.bert.id, "acct_none"},
		{"DELETE", "/v1/accounts/%s", "", k.bert.id, "acct_none"},
		{"POST", "/v1/accounts/%s/rotate-secret", `{}`, k.bert.id, "acct_none"},
		{"GET", "/v1/accounts/%s/sandboxes", "", k.bert.id, "acct_none"},
		{"POST", "/v1/accounts/%s/sandboxes", `{"name":"x"}`, k.bert.id, "acct_none"},
		{"GET", "/v1/accounts/%s/sandboxes/" + sandbox, "", k.bert.id, "acct_none"},
		{"PATCH", "/v1/accounts/%s/sandboxes/" + sandbox, `{}`, k.bert.id, "acct_none"},
		{"DELETE", "/v1/accounts/%s/sandboxes/" + sandbox, "", k.bert.id, "acct_none"},
		{"GET", "/v1/accounts/%s/workspaces", "", k.bert.id, "acct_none"},
		{"POST", "/v1/accounts/%s/workspaces", `{"name":"x"}`, k.bert.id, "acct_none"},
		{"GET", "/v1/accounts/%s/workspaces/" + workspace, "", k.bert.id, "acct_none"},
		{"PATCH", "/v1/accounts/%s/workspaces/" + workspace, `{}`, k.bert.id, "acct_none"},
		{"DELETE", "/v1/accounts/%s/workspaces/" + workspace, "", k.bert.id, "acct_none"},
	} {
		ask := func(id string) answer {
			return k.as(k.anna, c.method, strings.ReplaceAll(c.path, "%s", id), strings.ReplaceAll(c.body, "%s", id))
		}
		foreign, none := ask(c.foreign), ask(c.none)
		if foreign.status != none.status || strings.ReplaceAll(foreign.body, c.foreign, c.none) != none.body ||
			foreign.status != http.StatusNotFound && c.method != "POST" || foreign.status < 400 {
			t.Errorf("%s %s: %d %s, for what is not there %d %s", c.method, c.path, foreign.status, foreign.body, none.status, none.body)
		}
		if nobody := k.do(ask2(c.method, strings.ReplaceAll(c.path, "%s", c.foreign), c.body)); nobody.status != http.StatusUnauthorized {
			t.Errorf("%s %s without a key: %d %s", c.method, c.path, nobody.status, nobody.body)
		}
	}
	if a := k.as(k.bert, http.MethodGet, "/v1/accounts/"+k.bert.id+"/sandboxes/"+sandbox, ""); a.status != http.StatusOK {
		t.Errorf("his own by his id: %d %s", a.status, a.body)
	}
	admin := holder{key: adminKey}
	if a := k.as(admin, http.MethodGet, "/v1/accounts/"+k.bert.id+"/sandboxes/"+sandbox, ""); a.status != http.StatusOK {
		t.Errorf("for the administrator: %d %s", a.status, a.body)
	}
	if a := k.as(admin, http.MethodGet, "/v1/accounts/me", ""); a.status != http.StatusUnauthorized {
		t.Errorf("the administrator has no account: %d %s", a.status, a.body)
	}
}

func ask2(method, path, body string) ask {
	return ask{method: method, path: path, body: body, key: "-"}
}

func TestAccountsAreForTheAdministrator(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) { o.OwnAccount = "acct_own" })
	if _, err := k.store.Accounts.Ensure(t.Context(),
		records.Bootstrap{Account: "acct_own", Key: "the key of the settings", Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	admin, own := holder{key: adminKey}, holder{key: "the key of the settings"}
	for _, c := range []struct {
		who          holder
		method, path string
		want         int
	}{
		{admin, "GET", "/v1/accounts", 200}, {k.anna, "GET", "/v1/accounts", 403}, {holder{key: "-"}, "GET", "/v1/accounts", 401},
		{holder{key: "sk_wrong"}, "GET", "/v1/accounts", 401}, {k.anna, "POST", "/v1/accounts", 403},
		{holder{key: "-"}, "POST", "/v1/accounts", 401},
		{own, "POST", "/v1/accounts/me/rotate-secret", 409}, {own, "DELETE", "/v1/accounts/me", 409},
		{admin, "DELETE", "/v1/accounts/acct_own", 409},
		{admin, "GET", "/v1/accounts/" + k.anna.id, 200}, {admin, "GET", "/v1/accounts/acct_none", 404}, {admin, "GET", "/v1/accounts/a.b", 404},
	} {
		if a := k.as(c.who, c.method, c.path, ""); a.status != c.want {
			t.Errorf("%s %s as %+v: %d %s, want %d", c.method, c.path, c.who, a.status, a.body, c.want)
		}
	}
	if a := k.as(admin, http.MethodGet, "/v1/accounts", ""); !strings.Contains(a.body, k.anna.id) || !strings.Contains(a.body, k.bert.id) ||
		strings.Contains(a.body, "hash") {
		t.Error(a.body)
	}
	if a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me", `{"name":"Anna","description":"hers"}`); !strings.Contains(a.body,
		`"name":"Anna","description":"hers"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me", `{"key_hash":"x"}`); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRotationAndTheEndOfAnAccount(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	rotate := func(c holder, body string) holder {
		t.Helper()
		a := k.as(c, http.MethodPost, "/v1/accounts/me/rotate-secret", body)
		if a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return holder{c.id, decode[struct{ Secret string }](t, a).Secret}
	}
	works := func(c holder) bool { return k.as(c, http.MethodGet, "/v1/accounts/me", "").status == http.StatusOK }
	second := rotate(k.anna, `{"overlap":"1h"}`)
	if !works(k.anna) || !works(second) {
		t.Error("both keys work while they overlap")
	}
	third := rotate(second, "")
	if works(k.anna) || works(second) || !works(third) {
		t.Errorf("only the newest works: %t %t %t", works(k.anna), works(second), works(third))
	}
	if a := k.as(third, http.MethodPost, "/v1/accounts/me/rotate-secret", `{"overlap":"1000h"}`); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
	id, _ := k.add(third, "sandboxes", `{"name":"s"}`)
	if a := k.as(third, http.MethodDelete, "/v1/accounts/me", ""); a.status != http.StatusOK ||
		a.body != `{"deleted":true,"sandboxes":2,"workspaces":1,"models":0,"agents":0,"variables":0,"webhooks":0,"channels":0,"skills":0}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	if works(third) {
		t.Error("the key works after the account's end")
	}
	if _, err := k.store.Sandbox(t.Context(), schemas.AccountID(third.id), schemas.SandboxID(id)); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("its sandbox: %v", err)
	}
	if !works(k.bert) {
		t.Error("another account is gone too")
	}
}

//guarantee:bounds
func TestStrangersMayMakeFiveAccountsAnHour(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) { o.OpenSignup = true })
	for n := range 6 {
		a := k.do(ask{method: http.MethodPost, path: "/v1/accounts", key: "-"})
		if want := n < 5; (a.status == http.StatusCreated) != want {
			t.Errorf("account %d: %d %s", n, a.status, a.body)
		}
		if n == 5 && (a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("Retry-After") == "1") {
			t.Errorf("%d, Retry-After %s", a.status, a.header.Get("Retry-After"))
		}
	}
	k.join("by-the-administrator")
}

//guarantee:bounds
func TestStrangersMakeSoManyAccounts(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) { o.OpenSignup, o.MaxAccounts = true, 5 })
	made := 0
	for range 5 {
		a := k.do(ask{method: http.MethodPost, path: "/v1/accounts", key: "-"})
		if a.status == http.StatusCreated {
			made++
		} else if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "--max-accounts") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := k.store.Accounts.Count(); n != 5 || made == 0 || made == 5 {
		t.Errorf("there are %d accounts, %d of strangers", n, made)
	}
	k.join("by-the-administrator")
}

func TestRecordsRefuse(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	k.add(k.anna, "sandboxes", `{"name":"taken"}`)
	for _, c := range []struct {
		method, path, body string
		want               int
		field, says        string
	}{
		{"POST", "sandboxes", `{}`, 400, "name", "missing"},
		{"POST", "sandboxes", `{"name":"taken"}`, 409, "name", "is taken by sandbox sb_"},
		{"POST", "sandboxes", `{"name":"sb_1"}`, 400, "name", "like an id"},
		{"POST", "sandboxes", `{"name":"a/b"}`, 400, "name", "outside"},
		{"POST", "sandboxes", `{"name":"a","naem":"b"}`, 400, "naem", `use "name"`},
		{"POST", "sandboxes", `{"name":"a","config":{"permision_mode":"ask"}}`, 400, "config.permision_mode", `use "permissionMode"`},
		{"POST", "sandboxes", `{"name":"a","config":{"network":{"mode":"restricted"}}}`, 400, "config.network.mode", "local"},
		{"POST", "sandboxes", `{"name":"a","config":{"timeout":"5"}}`, 400, "config.timeout", "whole number"},
		{"POST", "sandboxes", `{"name":"a","name":"b"}`, 400, "name", "twice"},
		{"POST", "sandboxes", `[]`, 400, "", "object"},
		{"POST", "sandboxes", `{"name":"a","description":"` + strings.Repeat("x", 1025) + `"}`, 400, "description", "1024"},
		{"POST", "workspaces", `{"name":"a","sandbox":"x"}`, 400, "sandbox", "sb_"},
		{"POST", "workspaces", `{"name":"a","config":{"storage":{"provider":"vercel"}}}`, 400, "config.storage.provider", "use s3"},
		{"POST", "sandboxes?x=1", `{"name":"a"}`, 400, "x", "query"},
	} {
		a := k.as(k.anna, c.method, "/v1/accounts/me/"+c.path, c.body)
		if p := a.problem(t); a.status != c.want || p.Field != c.field || !strings.Contains(p.Message, c.says) {
			t.Errorf("%s %s: %d %s, want %d %s … %s", c.path, c.body, a.status, a.body, c.want, c.field, c.says)
		}
	}
	id, _ := k.add(k.anna, "sandboxes", `{"name":"other"}`)
	for header, want := range map[string]int{`"1"`: 412, `1`: 400, `W/"1"`: 400, `"0"`: 400, `"1", "2"`: 400, `*`: 200} {
		if a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me/sandboxes/"+id, `{"description":"x"}`, "If-Match", header); a.status != want {
			t.Errorf("If-Match %s: %d %s", header, a.status, a.body)
		}
	}
	if a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me/sandboxes/"+id, `{"name":"taken"}`); a.status != http.StatusConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me/sandboxes/"+id,
		`{"config":{"provider":"lambda","persistent":true}}`); a.status != http.StatusBadRequest {
		t.Errorf("the whole is not checked: %d %s", a.status, a.body)
	}
}

// TestChangesOfManyAreAllMade: patches of different variables at the same time lose none.
func TestChangesOfManyAreAllMade(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	id, _ := k.add(k.anna, "sandboxes", `{"name":"s"}`)
	const many = 6
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() {
			a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me/sandboxes/"+id, fmt.Sprintf(`{"config":{"envVars":{"V%d":"x"}}}`, n))
			if a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	s, err := k.store.Sandbox(t.Context(), schemas.AccountID(k.anna.id), schemas.SandboxID(id))
	if err != nil || len(s.EnvVars) != many {
		t.Errorf("%v, %v", s.EnvVars, err)
	}
}

func TestAGatewayWithoutAccountsSaysSo(t *testing.T) {
	t.Parallel()
	e := open(t)
	if a := e.get("/v1/accounts/me"); a.status != http.StatusNotImplemented {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// onlyLocal is served providers: local alone.
type onlyLocal struct{}

func (onlyLocal) Serves(_ context.Context, provider string) (bool, error) {
	return provider == "local", nil
}

// TestASandboxThatNoWorkerServesIsWarnedOf: it is made, and changed, with a word about it.
func TestASandboxThatNoWorkerServesIsWarnedOf(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) { o.Serving = onlyLocal{} })
	const all = "/v1/accounts/me/sandboxes"
	a := k.as(k.anna, http.MethodPost, all, `{"name":"far","config":{"provider":"vercel"}}`)
	if a.status != http.StatusCreated || !strings.Contains(a.header.Get("Sandjet-Warning"), "no worker serves the provider vercel") {
		t.Errorf("%d, %v", a.status, a.header)
	}
	made := decode[schemas.SandboxDocument](t, a)
	a = k.as(k.anna, http.MethodPatch, all+"/"+string(made.ID), `{"config":{"timeout":20}}`)
	if a.status != http.StatusOK || a.header.Get("Sandjet-Warning") == "" {
		t.Errorf("%d, %v", a.status, a.header)
	}
	a = k.as(k.anna, http.MethodPatch, all+"/"+string(made.ID), `{"config":{"provider":"local"}}`)
	if a.status != http.StatusOK || a.header.Get("Sandjet-Warning") != "" {
		t.Errorf("%d, %v", a.status, a.header)
	}
}
