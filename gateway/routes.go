package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/accounts"
	"github.com/sandjet/sandjet/gateway/jobs"
	"github.com/sandjet/sandjet/gateway/mcpapi"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// route is one route of the API.
type route struct {
	method, path string
	serve        http.HandlerFunc
}

// routes returns all routes except [Gateway.aliases]. openapi.json describes the same ones, which a test checks. Paths are in lower case
// with hyphens, below /v1 except for those that infrastructure around a gateway requests. A collection is a plural noun, one of its
// elements /{id}, and any action beside reading, creating, changing and deleting is a POST to a verb below.
func (g *Gateway) routes() []route {
	open := g.edge.Handle
	keyed := func(h accountHandler) http.HandlerFunc { return g.edge.Handle(g.authenticated(h)) }
	return slices.Concat([]route{
		{http.MethodGet, "/v1/calls", keyed(g.calls.List)},
		{http.MethodPost, "/v1/calls", keyed(g.calls.Post)},
		{http.MethodGet, "/v1/calls/{id}", keyed(g.calls.Get)},
		{http.MethodGet, "/v1/calls/{id}/status", keyed(g.calls.GetStatus)},
		{http.MethodPost, "/v1/calls/{id}/cancel", keyed(g.calls.PostCancel)},
		{http.MethodPost, "/v1/attach-tokens", keyed(g.postAttachToken)},
		{http.MethodGet, "/v1/approvals", keyed(g.approvals.GetList)},
		{http.MethodGet, "/v1/approvals/grants", keyed(g.approvals.GetGrants)},
		{http.MethodDelete, "/v1/approvals/grants/{id}", keyed(g.approvals.DeleteGrant)},
		{http.MethodGet, "/v1/approvals/{id}", keyed(g.approvals.Get)},
		{http.MethodPost, "/v1/approvals/{id}/decide", keyed(g.approvals.PostDecide)},
		{http.MethodGet, "/v1/conversations", keyed(g.calls.GetConversations)},
		{http.MethodGet, "/v1/conversations/{id}/events", open(g.held(g.convs.GetEvents))},
		{http.MethodPost, "/v1/conversations/{id}/events", keyed(g.convs.PostEvent)},
		{http.MethodPost, "/v1/conversations/{id}/stop", keyed(g.convs.PostStop)},
		{http.MethodPost, "/v1/agents/{id}/turns", keyed(g.convs.PostTurn)},
		{http.MethodGet, "/v1/conversations/{id}/artifacts", keyed(g.artifacts.OfConversation)},
		{http.MethodGet, "/v1/artifacts/{id}", keyed(g.artifacts.Get)},
		{http.MethodDelete, "/v1/artifacts/{id}", keyed(g.artifacts.Delete)},
		{http.MethodGet, "/v1/jobs", keyed(g.jobs.List)},
		{http.MethodGet, "/v1/jobs/{id}", keyed(g.jobs.Get)},
		{http.MethodGet, "/v1/jobs/{id}/logs", keyed(g.jobs.Logs)},
		{http.MethodPost, "/v1/jobs/{id}/stop", keyed(g.jobs.PostStop)},
		{http.MethodPost, "/v1/jobs/{id}/signal", keyed(g.jobs.PostSignal)},
		{http.MethodPost, "/v1/jobs/{id}/stdin", keyed(g.jobs.PostStdin)},
		{http.MethodPost, "/v1/jobs/{id}/complete", open(g.postJobComplete)}, // the account's key or the job's token
		{http.MethodGet, "/v1/instances", keyed(g.instances.List)},
		{http.MethodGet, "/v1/instances/{id}", keyed(g.instances.Get)},
		{http.MethodDelete, "/v1/instances/{id}", keyed(g.instances.Delete)},
		{http.MethodPost, "/v1/instances/{id}/pause", keyed(g.instances.Pause)},
		{http.MethodPost, "/v1/instances/{id}/resume", keyed(g.instances.Resume)},
		{http.MethodGet, "/v1/workspaces/{id}/files", keyed(g.files.List)},
		{http.MethodGet, "/v1/workspaces/{id}/files/{path...}", keyed(g.files.Get)},
		{http.MethodPut, "/v1/workspaces/{id}/files/{path...}", keyed(g.files.Put)},
		{http.MethodDelete, "/v1/workspaces/{id}/files/{path...}", keyed(g.files.Delete)},
		{http.MethodGet, "/v1/workspaces/{id}/archive", keyed(g.files.GetArchive)},
		{http.MethodPut, "/v1/workspaces/{id}/archive", keyed(g.files.PutArchive)},
		{http.MethodGet, "/v1/workspaces/{id}/uploads/{upload}", keyed(g.files.GetUpload)},
		{http.MethodDelete, "/v1/workspaces/{id}/uploads/{upload}", keyed(g.files.DeleteUpload)},
		{http.MethodPost, "/v1/workspaces/{id}/mkdir", keyed(g.files.PostMkdir)},
		{http.MethodPost, "/v1/workspaces/{id}/move", keyed(g.files.PostMove)},
		{http.MethodGet, "/v1/skills", keyed(g.skills.List)},
		{http.MethodPost, "/v1/skills", keyed(g.skills.Post)},
		{http.MethodGet, "/v1/skills/{id}", keyed(g.skills.Get)},
		{http.MethodPut, "/v1/skills/{id}", keyed(g.skills.Put)},
		{http.MethodDelete, "/v1/skills/{id}", keyed(g.skills.Delete)},
		{http.MethodGet, "/v1/skills/{id}/bundle", keyed(g.skills.Bundle)},
		{http.MethodGet, "/v1/webhooks", keyed(g.webhooks.List)},
		{http.MethodPost, "/v1/webhooks", keyed(g.webhooks.Post)},
		{http.MethodPost, "/v1/webhooks/replay", keyed(g.webhooks.Replay)},
		{http.MethodGet, "/v1/webhooks/{id}", keyed(g.webhooks.Get)},
		{http.MethodPatch, "/v1/webhooks/{id}", keyed(g.webhooks.Patch)},
		{http.MethodDelete, "/v1/webhooks/{id}", keyed(g.webhooks.Delete)},
		{http.MethodPost, "/v1/webhooks/{id}/rotate-secret", keyed(g.webhooks.Rotate)},
		{http.MethodPost, "/v1/webhooks/{id}/test", keyed(g.webhooks.Test)},
		{http.MethodGet, "/v1/channels", keyed(g.channels.List)},
		{http.MethodPost, "/v1/channels", keyed(g.channels.Post)},
		{http.MethodGet, "/v1/channels/{id}", keyed(g.channels.Get)},
		{http.MethodPatch, "/v1/channels/{id}", keyed(g.channels.Patch)},
		{http.MethodDelete, "/v1/channels/{id}", keyed(g.channels.Delete)},
		{http.MethodPost, "/v1/channels/{id}/test", keyed(g.channels.Test)},
		{http.MethodGet, "/v1/tools", keyed(g.getTools)},
		{http.MethodGet, "/v1/streams/{path...}", keyed(g.stream)},
		{http.MethodPut, "/v1/streams/{path...}", keyed(g.stream)},
		{http.MethodPost, "/v1/streams/{path...}", keyed(g.stream)},
		{http.MethodDelete, "/v1/streams/{path...}", keyed(g.stream)},
		{http.MethodGet, "/v1/ws", open(g.getSocket)}, // it finds the key by itself
		{http.MethodPost, "/v1/channels/{id}/simulate", keyed(g.chats.PostSimulate)},
		{http.MethodPost, "/v1/channels/{id}/setup", keyed(g.channels.Setup)},
		{http.MethodPost, "/v1/channels/{account}/{channel}/receive", open(g.chats.PostInbound)}, // the service's signature
		{http.MethodPost, mcpapi.Path, open(g.mcpAPI.Post)},                                      // it says by itself where its credentials come from
		{http.MethodGet, mcpapi.PathMetadata, open(g.mcpAPI.GetMetadata)},
		{http.MethodGet, mcpapi.PathMetadata + mcpapi.Path, open(g.mcpAPI.GetMetadata)},
		{http.MethodGet, "/healthz", open(g.getHealth)},
		{http.MethodGet, "/readyz", open(g.getReady)},
		{http.MethodGet, "/metrics", open(g.getMetrics)},
		{http.MethodGet, "/openapi.json", open(g.getOpenAPI)},
	}, g.sandboxRoutes(), g.ofAccounts(g.accounts.Routes()))
}

// ofAccounts returns the routes of package accounts, wrapped for this gateway.
func (g *Gateway) ofAccounts(list []accounts.Route) []route {
	out := make([]route, len(list))
	for i, r := range list {
		out[i] = route{r.Method, r.Path, g.edge.Handle(r.Serve)}
	}
	return out
}

// alias is another path for a route, for clients of other systems.
type alias struct {
	method, path string
	of           string // the path of the route
	// serve answers instead of the route, where less may be asked for by this name. Nil: the route's.
	serve http.HandlerFunc
}

// aliases returns the paths of routes from before the prefix /v1, and those that clients of other systems use. They stay as long as /v1
// does; docs/guides/http.md lists them, which a test checks.
func (g *Gateway) aliases() []alias {
	const complete, streams, receive = "/v1/jobs/{id}/complete", "/v1/streams/{path...}", "/v1/channels/{account}/{channel}/receive"
	list := []alias{
		{method: http.MethodGet, path: "/status/{id}", of: "/v1/calls/{id}/status"},
		{method: http.MethodPost, path: "/async-tools/{id}/complete", of: complete, serve: g.edge.Handle(g.authenticated(g.jobs.PostComplete))},
		{method: http.MethodPost, path: "/webhooks/{account}/{channel}", of: receive},
		{method: http.MethodPost, path: "/webhooks/{account}/{agent}/{channel}", of: receive}, // the channel knows its agent
		{method: http.MethodPost, path: "/sandbox-jobs/{id}/complete", of: complete, serve: g.edge.Handle(g.jobs.PostEnd)},
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		list = append(list, alias{method: method, path: "/v1/stream/{path...}", of: streams})
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		list = append(list, alias{method: method, path: "/accounts/me/channels", of: "/v1/channels"})
	}
	for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodDelete} {
		list = append(list, alias{method: method, path: "/accounts/me/channels/{id}", of: "/v1/channels/{id}"})
	}
	for _, r := range g.accounts.AliasedRoutes() {
		list = append(list, alias{method: r.Method, path: strings.TrimPrefix(r.Path, "/v1"), of: r.Path})
	}
	return list
}

// mux returns the multiplexer of all routes. Any other request is answered with a problem too.
func (g *Gateway) mux() *http.ServeMux {
	mux := http.NewServeMux()
	serve := map[string]http.HandlerFunc{} // by pattern
	for _, r := range g.routes() {
		serve[r.method+" "+r.path] = r.serve
	}
	for _, a := range g.aliases() {
		if a.serve == nil {
			a.serve = serve[a.method+" "+a.of]
		}
		serve[a.method+" "+a.path] = a.serve
	}
	refuse := g.edge.Handle(func(w http.ResponseWriter, r *http.Request) error {
		allow := allowed(mux, serve, r)
		if allow == "" {
			return schemas.Errorf(schemas.NotFound, "no such route: /openapi.json lists all routes")
		}
		w.Header().Set("Allow", allow)
		return web.WithStatus(http.StatusMethodNotAllowed, schemas.Errorf(schemas.Unsupported,
			"%s is not allowed here: use %s", schemas.Quotable(r.Method), allow))
	})
	mux.HandleFunc("/", refuse)
	refused := map[string]bool{}
	for pattern, h := range serve {
		mux.HandleFunc(pattern, h)
		_, path, _ := strings.Cut(pattern, " ")
		if strings.Contains(path, "{") {
			continue
		}
		for _, m := range everyMethod() { // else /v1/webhooks/{id} would take them for /v1/webhooks/replay
			if other := m + " " + path; serve[other] == nil && (m != http.MethodHead || serve[http.MethodGet+" "+path] == nil) {
				refused[other] = true
			}
		}
	}
	for pattern := range refused {
		mux.HandleFunc(pattern, refuse)
	}
	if g.e2b != nil { // another service's routes, which are not described here
		for _, r := range g.e2b.Routes() {
			mux.HandleFunc(strings.TrimSpace(r.Method+" "+r.Path), g.edge.Handle(r.Serve))
		}
	}
	return mux
}

func everyMethod() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
}

// allowed returns the methods that have a route for r's path, for the Allow header.
func allowed(mux *http.ServeMux, serve map[string]http.HandlerFunc, r *http.Request) string {
	var methods []string
	for _, m := range everyMethod() {
		other := *r
		other.Method = m
		if _, pattern := mux.Handler(&other); serve[pattern] != nil {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// postJobComplete accepts the report that a job has ended, authenticated by the job's token or by the account's key.
func (g *Gateway) postJobComplete(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get(jobs.HeaderToken) != "" {
		return g.jobs.PostEnd(w, r)
	}
	return g.authenticated(g.jobs.PostComplete)(w, r)
}

// getSocket opens a WebSocket.
func (g *Gateway) getSocket(w http.ResponseWriter, r *http.Request) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	return g.live.Upgrade(w, r)
}

// getTools serves the definitions of the tools, in a form for a model's API.
func (g *Gateway) getTools(w http.ResponseWriter, r *http.Request, _ schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "format", "dialect")
	if err != nil {
		return err
	}
	d, err := q.Dialect()
	if err != nil {
		return err
	}
	show := func() (any, error) { return g.Tools(d) }
	format := strings.ToValidUTF8(q.Values.Get("format"), "\uFFFD")
	if format != "" {
		show = func() (any, error) { return g.AgentTools(schemas.AllTools(), format, d) }
	}
	if g.Tools == nil || format != "" && g.AgentTools == nil {
		return schemas.Errorf(schemas.Unsupported, "this gateway shows no tool definitions")
	}
	tools, err := show()
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, map[string]any{"tools": tools})
	return nil
}
