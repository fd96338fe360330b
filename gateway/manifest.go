package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Manifests makes the records of accounts what manifests say. Its methods may be called from many goroutines.
type Manifests interface {
	// ApplyManifest changes what differs and says what it was. Codes: invalid, conflict, exhausted.
	ApplyManifest(ctx context.Context, a schemas.AccountID, r schemas.ManifestRequest) (schemas.ManifestAnswer, error)
	// Manifest is what stands of a project, without secrets. Code: not_found.
	Manifest(ctx context.Context, a schemas.AccountID, project string) (schemas.Manifest, error)
}

// manifestRoutes are those of manifests and of the variables that they name.
func (g *Gateway) manifestRoutes() []route {
	const manifest, all, one = "/accounts/{account}/manifest", "/accounts/{account}/env", "/accounts/{account}/env/{name}"
	own := func(h func(http.ResponseWriter, *http.Request, Accounts, schemas.AccountID) error) http.HandlerFunc {
		return g.handle(g.owned(h))
	}
	return []route{
		{http.MethodGet, manifest, own(getManifest)},
		{http.MethodPut, manifest, own(putManifest)},
		{http.MethodGet, all, own(getVariables)},
		{http.MethodPut, one, own(putVariable)},
		{http.MethodDelete, one, own(deleteVariable)},
	}
}

// getManifest shows what stands of a project.
func getManifest(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	q, err := parseQuery(r.URL.RawQuery, "project")
	if err != nil {
		return err
	}
	project := strings.ToValidUTF8(q.values.Get("project"), "\uFFFD")
	if project == "" {
		return schemas.Invalidf("project", "is missing: say which with ?project=")
	}
	m, err := accounts.Manifest(r.Context(), a, project)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, m)
	return nil
}

// putManifest makes the account's records what a manifest says, or says what it would change.
func putManifest(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := readJSONUpTo(w, r, schemas.MaxManifest, "make it two projects")
	if err != nil {
		return err
	}
	in, err := schemas.DecodeManifestRequest(body)
	if err != nil {
		return err
	}
	answer, err := accounts.ApplyManifest(r.Context(), a, in)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}
