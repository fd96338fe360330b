package accounts

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// SandboxList is the response with an account's sandboxes.
type SandboxList struct {
	Sandboxes []schemas.SandboxDocument `json:"sandboxes"`
}

// WorkspaceList is the response with an account's workspaces.
type WorkspaceList struct {
	Workspaces []schemas.WorkspaceDocument `json:"workspaces"`
}

// ModelList is the response with an account's models.
type ModelList struct {
	Models []schemas.ModelDocument `json:"models"`
}

// collectionRoutes returns the routes of all collections, which are handled alike.
func (s *Server) collectionRoutes() []Route {
	var routes []Route
	for _, c := range schemas.Collections() {
		all := "/v1/accounts/{account}/" + string(c)
		one := all + "/{id}"
		own := func(h func(http.ResponseWriter, *http.Request, collection) error) web.Handler {
			return s.owned(func(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
				return h(w, r, collection{store, a, c, s.Serving})
			})
		}
		routes = append(routes,
			Route{http.MethodGet, all, own(getDocuments)},
			Route{http.MethodPost, all, own(postDocument)},
			Route{http.MethodGet, one, own(getDocument)},
			Route{http.MethodPatch, one, own(patchDocument)},
			Route{http.MethodDelete, one, own(deleteDocument)},
		)
	}
	return routes
}

// collection is one collection of an account.
type collection struct {
	store   *Store
	account schemas.AccountID
	name    schemas.Collection
	serving Serving // nil: it is not known
}

// warningHeader is the response header with the reason why a stored record cannot be used at present.
const warningHeader = "Sandjet-Warning"

// warn sets a warning header if no worker serves a sandbox's provider. That is no error, since manifests are often applied before workers
// start.
func (c collection) warn(w http.ResponseWriter, r *http.Request, d schemas.Document) {
	if c.name != schemas.Sandboxes || c.serving == nil {
		return
	}
	var s schemas.SandboxDocument
	if json.Unmarshal(d.JSON, &s) != nil {
		return
	}
	if served, err := c.serving.Serves(r.Context(), s.Config.Provider); err == nil && !served {
		w.Header().Set(warningHeader, "no worker serves the provider "+s.Config.Provider+
			" at present: calls in this sandbox are refused until one does")
	}
}

func pathID(r *http.Request) string { return strings.ToValidUTF8(r.PathValue("id"), "\uFFFD") }

func getDocuments(w http.ResponseWriter, r *http.Request, c collection) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	list, err := c.store.Documents.List(r.Context(), c.account, c.name)
	if err != nil {
		return err
	}
	all := make([]json.RawMessage, len(list))
	for i, d := range list {
		all[i] = d.JSON
	}
	web.WriteJSON(w, http.StatusOK, map[schemas.Collection][]json.RawMessage{c.name: all})
	return nil
}

func postDocument(w http.ResponseWriter, r *http.Request, c collection) error {
	body, err := readConfig(w, r, false)
	if err != nil {
		return err
	}
	d, err := c.store.Documents.Add(r.Context(), c.account, c.name, body)
	if err != nil {
		return err
	}
	w.Header().Set("Location", strings.TrimSuffix(r.URL.Path, "/")+"/"+d.ID)
	c.warn(w, r, d)
	writeDocument(w, http.StatusCreated, d)
	return nil
}

func getDocument(w http.ResponseWriter, r *http.Request, c collection) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	d, err := c.store.Documents.Get(r.Context(), c.account, c.name, pathID(r))
	if err != nil {
		return err
	}
	writeDocument(w, http.StatusOK, d)
	return nil
}

func patchDocument(w http.ResponseWriter, r *http.Request, c collection) error {
	revision, err := web.Revision(r.Header)
	if err != nil {
		return err
	}
	body, err := readConfig(w, r, false)
	if err != nil {
		return err
	}
	d, err := c.store.Documents.Patch(r.Context(), c.account, c.name, pathID(r), body, revision)
	if err != nil {
		return web.Precondition(err)
	}
	c.warn(w, r, d)
	writeDocument(w, http.StatusOK, d)
	return nil
}

func deleteDocument(w http.ResponseWriter, r *http.Request, c collection) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	revision, err := web.Revision(r.Header)
	if err != nil {
		return err
	}
	if err := c.store.Documents.Remove(r.Context(), c.account, c.name, pathID(r), revision); err != nil {
		return web.Precondition(err)
	}
	web.WriteJSON(w, http.StatusOK, Deleted{true})
	return nil
}
