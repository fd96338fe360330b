package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

// shown is what the route is answered with by who writes the definitions.
type shown struct {
	Format   string
	Dialect  schemas.Dialect
	Exposure schemas.ToolVisibility
}

func writeShown(e schemas.ToolVisibility, format string, d schemas.Dialect) (any, error) {
	if format == "gemini" {
		return nil, schemas.Invalidf("format", "%q is unknown", format)
	}
	return shown{format, d, e}, nil
}

func TestToolsOfAnAgent(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) { o.AgentTools = writeShown })
	agent, _ := k.add(k.anna, "agents", `{"name":"bare"}`)
	admin := holder{key: adminKey}
	for name, c := range map[string]struct {
		who    holder
		path   string
		status int
		want   shown
	}{
		"as usual":             {k.anna, "me/agents/" + agent + "/tools", 200, shown{}},
		"by the account's id":  {k.anna, k.anna.id + "/agents/" + agent + "/tools", 200, shown{}},
		"by the administrator": {admin, k.anna.id + "/agents/" + agent + "/tools", 200, shown{}},
		"in a format":          {k.anna, "me/agents/" + agent + "/tools?format=mcp", 200, shown{Format: "mcp"}},
		"in a format and manner": {k.anna, "me/agents/" + agent + "/tools?format=openai&dialect=deepagents", 200,
			shown{Format: "openai", Dialect: schemas.DialectDeepAgents}},
		"in an unknown format":  {k.anna, "me/agents/" + agent + "/tools?format=gemini", 400, shown{}},
		"in an unknown manner":  {k.anna, "me/agents/" + agent + "/tools?dialect=latin", 400, shown{}},
		"with an unknown query": {k.anna, "me/agents/" + agent + "/tools?shape=mcp", 400, shown{}},
		"of no agent":           {k.anna, "me/agents/" + schemas.NewID(schemas.AgentPrefix) + "/tools", 404, shown{}},
		"of what is no id":      {k.anna, "me/agents/x/tools", 404, shown{}},
		"of another's agent":    {k.bert, "me/agents/" + agent + "/tools", 404, shown{}},
		"at another's account":  {k.bert, k.anna.id + "/agents/" + agent + "/tools", 404, shown{}},
		"without a key":         {holder{key: "-"}, "me/agents/" + agent + "/tools", 401, shown{}},
	} {
		a := k.as(c.who, http.MethodGet, "/v1/accounts/"+c.path, "")
		if a.status != c.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if c.status != http.StatusOK || a.status != c.status {
			continue
		}
		got := decode[struct{ Tools shown }](t, a).Tools
		if got.Format != c.want.Format || got.Dialect != c.want.Dialect || !got.Exposure.Bare || len(got.Exposure.Tools) != 0 {
			t.Errorf("%s: %+v, want %+v of an agent that has nothing", name, got, c.want)
		}
	}
}

func TestAGatewayWithoutDefinitionsShowsNone(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	agent, _ := k.add(k.anna, "agents", `{"name":"bare"}`)
	a := k.as(k.anna, http.MethodGet, "/v1/accounts/me/agents/"+agent+"/tools", "")
	if a.status != http.StatusNotImplemented {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestAWorkspaceMentionsNoNotes: tools mention notes unless the workspace says otherwise, which it says until it is changed back.
func TestAWorkspaceMentionsNoNotes(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) { o.AgentTools = writeShown })
	sandbox, _ := k.add(k.anna, "sandboxes", `{"name":"s"}`)
	workspace, etag := k.add(k.anna, "workspaces", `{"name":"quiet","config":{"harness":{"enabled":false}}}`)
	agent, _ := k.add(k.anna, "agents", `{"name":"a","config":{"sandbox":"`+sandbox+
		`","workspaces":[{"name":"w","workspaceId":"`+workspace+`","sandbox":"`+sandbox+`"}]}}`)
	for _, want := range []bool{false, true} {
		a := k.as(k.anna, http.MethodGet, "/v1/accounts/me/agents/"+agent+"/tools", "")
		if got := decode[struct{ Tools shown }](t, a).Tools.Exposure; got.Notes != want || len(got.Tools) == 0 {
			t.Fatalf("%+v, want notes %v", got, want)
		}
		if !want {
			if a := k.as(k.anna, http.MethodGet, "/v1/accounts/me/workspaces/"+workspace, ""); !strings.Contains(a.body, `"harness":{"enabled":false}`) {
				t.Error(a.body)
			}
			a := k.as(k.anna, http.MethodPatch, "/v1/accounts/me/workspaces/"+workspace, `{"config":{"harness":{"enabled":true}}}`, "If-Match", etag)
			if a.status != http.StatusOK || strings.Contains(a.body, "harness") {
				t.Fatal(a.status, a.body)
			}
		}
	}
}
