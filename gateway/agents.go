package gateway

import (
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// AgentList is the answer about an account's agents.
type AgentList struct {
	Agents []schemas.AgentDocument `json:"agents"`
}

// getAgentTools answers the definitions of what an agent has, to be shown to a model as they are.
func (g *Gateway) getAgentTools(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	q, err := parseQuery(r.URL.RawQuery, "format", "dialect")
	if err != nil {
		return err
	}
	d, err := dialectOf(q)
	if err != nil {
		return err
	}
	if g.AgentTools == nil {
		return schemas.Errorf(schemas.Unsupported, "", "this gateway shows no tool definitions")
	}
	e, err := accounts.Exposure(r.Context(), a, schemas.AgentID(pathID(r)))
	if err != nil {
		return err
	}
	tools, err := g.AgentTools(e, strings.ToValidUTF8(q.values.Get("format"), "\uFFFD"), d)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"tools": tools})
	return nil
}
