package accounts

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Manifests applies manifests to the records of accounts. It must be safe for concurrent use.
type Manifests interface {
	// Apply changes records to match a manifest, and returns the changes. Codes: invalid, conflict, exhausted.
	Apply(ctx context.Context, a schemas.AccountID, r schemas.ManifestRequest) (schemas.ManifestAnswer, error)
	// Get returns the stored state of a project, without secrets. Code: not_found.
	Get(ctx context.Context, a schemas.AccountID, project string) (schemas.Manifest, error)
}

// manifestRoutes returns the routes of manifests and of the variables that they name.
func (s *Server) manifestRoutes() []Route {
	const manifest, all, one = "/v1/accounts/{account}/manifest", "/v1/accounts/{account}/variables", "/v1/accounts/{account}/variables/{name}"
	return []Route{
		{http.MethodGet, manifest, s.owned(getManifest)},
		{http.MethodPut, manifest, s.owned(putManifest)},
		{http.MethodGet, all, s.owned(getVariables)},
		{http.MethodPut, one, s.owned(putVariable)},
		{http.MethodDelete, one, s.owned(deleteVariable)},
	}
}

// getManifest returns the stored state of a project as a manifest.
func getManifest(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "project")
	if err != nil {
		return err
	}
	project := strings.ToValidUTF8(q.Values.Get("project"), "\uFFFD")
	if project == "" {
		return schemas.Invalidf("project", "is missing: say which with ?project=")
	}
	m, err := store.Manifests.Get(r.Context(), a, project)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, m)
	return nil
}

// putManifest changes the account's records to match a manifest, or, for a dry run, returns what it would change.
func putManifest(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := web.ReadJSONUpTo(w, r, schemas.MaxManifest, "make it two projects")
	if err != nil {
		return err
	}
	in, err := schemas.DecodeManifestRequest(body)
	if err != nil {
		return err
	}
	answer, err := store.Manifests.Apply(r.Context(), a, in)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}
