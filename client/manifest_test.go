package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

func TestManifestsAndVariablesAreAskedFor(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 8)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- r.Method + " " + r.URL.RequestURI() + " " + string(b)
		body := `{"name":"A B","variables":[{"name":"A"}],"changes":[{"action":"create","kind":"agent","name":"g","id":"agent_1"}],"warnings":{},"applied":true,"project":"p q"}`
		answer(w, http.StatusOK, body)
	})
	did, err := c.Manifests(client.Me).Apply(t.Context(),
		schemas.ManifestRequest{Manifest: schemas.Manifest{Version: 1, Project: "p"}, Prune: true})
	if err != nil || !did.Applied || !did.Differs() {
		t.Errorf("%+v, %v", did, err)
	}
	if m, err := c.Manifests("acct_a").Get(t.Context(), "p q"); err != nil || m.Project != "p q" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := c.Variables(client.Me).Set(t.Context(), "A B", "v"); err != nil {
		t.Error(err)
	}
	if list, err := c.Variables(client.Me).List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.Variables(client.Me).Remove(t.Context(), "A"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`PUT /v1/accounts/me/manifest {"manifest":{"version":1,"project":"p","resources":null},"prune":true}`,
		"GET /v1/accounts/acct_a/manifest?project=p+q ",
		`PUT /v1/accounts/me/variables/A%20B {"value":"v"}`, "GET /v1/accounts/me/variables ", "DELETE /v1/accounts/me/variables/A ",
	} {
		if got := <-asked; strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("it asked %s, not %s", got, want)
		}
	}
}
