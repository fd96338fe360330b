package accounts_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/accounts"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

const (
	anna schemas.AccountID = "acct_anna"
	bert schemas.AccountID = "acct_bert"
)

// keys are of accounts whose key is their name after "acct_".
type keys struct{}

func (keys) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	if key == "anna" || key == "bert" {
		return schemas.AccountID("acct_" + key), nil
	}
	return "", web.WithStatus(http.StatusUnauthorized, schemas.Errorf(schemas.Denied, "no"))
}

// log has room unless it is full.
type log struct{ full bool }

func (l log) Room(context.Context, int) error {
	if !l.full {
		return nil
	}
	return schemas.Errorf(schemas.Unavailable, "the log is full")
}

func (log) Usage(context.Context, schemas.AccountID) (schemas.Usage, error) {
	return schemas.Usage{}, nil
}

// store has the two accounts and counts what is changed.
type store struct {
	accounts.Accounts // what is not below panics: it must not be asked

	changed []string
}

func (s *store) Get(_ context.Context, a schemas.AccountID) (schemas.Document, error) {
	if a != anna && a != bert {
		return schemas.Document{}, schemas.Errorf(schemas.NotFound, "there is no account %q", a)
	}
	return schemas.Document{ID: string(a), JSON: []byte(`{}`), Revision: 1}, nil
}

func (s *store) RecordUsage(schemas.AccountID) (kept schemas.Amount, limit int64) {
	return schemas.Amount{Bytes: 3, Messages: 1}, 4
}

func (s *store) RotateKey(_ context.Context, a schemas.AccountID, _ time.Duration) (string, error) {
	s.changed = append(s.changed, "rotate "+string(a))
	return "new", nil
}

func (s *store) Remove(_ context.Context, a schemas.AccountID, _ uint64) (schemas.RemovedRecords, error) {
	s.changed = append(s.changed, "remove "+string(a))
	return schemas.RemovedRecords{}, nil
}

// variables has any, and counts what is removed.
type variables struct {
	accounts.Variables

	of *store
}

func (v variables) Remove(_ context.Context, a schemas.AccountID, name string) error {
	v.of.changed = append(v.of.changed, "unset "+string(a)+" "+name)
	return nil
}

// all is a store for the routes. Documents and manifests must not be asked.
func (s *store) all() *accounts.Store {
	return &accounts.Store{Accounts: s, Variables: variables{of: s}}
}

// serve answers with nothing around the routes but the router and the edge.
func serve(s *accounts.Server) http.Handler {
	mux := http.NewServeMux()
	edge := &web.Edge{
		Log: slog.New(slog.DiscardHandler), Holds: web.NewHolds(web.HoldLimits{}), Stall: time.Minute,
		Answered: func(string, int, time.Duration) {},
	}
	for _, r := range s.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, edge.Handle(r.Serve))
	}
	return edge.Middleware(mux)
}

// TestAFullLogRefusesRecordsAndStillRemoves: an account without room must be able to make some, and to make a stolen key useless.
func TestAFullLogRefusesRecordsAndStillRemoves(t *testing.T) {
	t.Parallel()
	kept := &store{}
	h := serve(accounts.New(accounts.Options{Credentials: keys{}, Log: log{full: true}, Store: kept.all()}))
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, "me/sandboxes", `{"name":"s"}`, http.StatusServiceUnavailable},
		{http.MethodPatch, "me/workspaces/ws_1", `{"name":"s"}`, http.StatusServiceUnavailable},
		{http.MethodPatch, "me", `{"name":"s"}`, http.StatusServiceUnavailable},
		{http.MethodPut, "me/manifest", `{}`, http.StatusServiceUnavailable},
		{http.MethodPut, "me/variables/A", `{"value":"s"}`, http.StatusServiceUnavailable},
		{http.MethodGet, "me", "", http.StatusOK},
		{http.MethodGet, "me/usage", "", http.StatusOK},
		{http.MethodDelete, "me/variables/A", "", http.StatusOK},
		{http.MethodPost, "me/rotate-secret", "", http.StatusOK},
		{http.MethodDelete, "me", "", http.StatusOK},
	} {
		if w := ask(h, "anna", c.method, c.path, c.body); w.Code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, w.Code, w.Body, c.want)
		}
	}
	if got := strings.Join(kept.changed, ", "); got != "unset acct_anna A, rotate acct_anna, remove acct_anna" {
		t.Errorf("changed: %s", got)
	}
}

// TestAKeyReachesItsOwnAccountAlone asks as each of two accounts for the other, and for one that does not exist.
func TestAKeyReachesItsOwnAccountAlone(t *testing.T) {
	t.Parallel()
	kept := &store{}
	h := serve(accounts.New(accounts.Options{Credentials: keys{}, Log: log{}, Store: kept.all()}))
	for _, r := range accounts.New(accounts.Options{}).Routes() {
		if !strings.Contains(r.Path, "{account}") {
			continue
		}
		path := strings.NewReplacer("/v1/accounts/{account}", "%", "{id}", "x", "{name}", "x").Replace(r.Path)
		of := func(a string) *httptest.ResponseRecorder {
			return ask(h, "anna", r.Method, strings.Replace(path, "%", a, 1), "")
		}
		others, nobodys := of(string(bert)), of("acct_none")
		if others.Code != http.StatusNotFound || strings.ReplaceAll(others.Body.String(), string(bert), "acct_none") != nobodys.Body.String() {
			t.Errorf("%s %s: %d %s; of an account that is not there: %d %s", r.Method, r.Path, others.Code, others.Body, nobodys.Code, nobodys.Body)
		}
	}
	if len(kept.changed) > 0 {
		t.Errorf("changed: %v", kept.changed)
	}
}

func ask(h http.Handler, key, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/v1/accounts/"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
