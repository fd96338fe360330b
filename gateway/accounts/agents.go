package accounts

import (
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// AgentList is the response with an account's agents.
type AgentList struct {
	Agents []schemas.AgentDocument `json:"agents"`
}

// getAgentTools returns the definitions of an agent's tools, in a form for a model's API.
func (s *Server) getAgentTools(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "format", "dialect")
	if err != nil {
		return err
	}
	d, err := q.Dialect()
	if err != nil {
		return err
	}
	if s.AgentTools == nil {
		return schemas.Errorf(schemas.Unsupported, "this gateway shows no tool definitions")
	}
	e, err := store.Documents.ToolVisibility(r.Context(), a, schemas.AgentID(pathID(r)))
	if err != nil {
		return err
	}
	tools, err := s.AgentTools(e, strings.ToValidUTF8(q.Values.Get("format"), "\uFFFD"), d)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, map[string]any{"tools": tools})
	return nil
}
