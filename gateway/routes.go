package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// route is one row of the edge.
type route struct {
	method, path string
	serve        http.HandlerFunc
}

// routes is everything that the gateway serves; openapi.json describes the same rows, which a test
// holds it to.
func (g *Gateway) routes() []route {
	open := g.handle
	keyed := func(h accountHandler) http.HandlerFunc { return g.handle(g.authenticated(h)) }
	own := func(h func(http.ResponseWriter, *http.Request, Accounts, schemas.AccountID) error) http.HandlerFunc {
		return g.handle(g.owned(h))
	}
	return append([]route{
		{http.MethodGet, "/v1/calls", keyed(g.getCalls)},
		{http.MethodPost, "/v1/calls", keyed(g.postCall)},
		{http.MethodGet, "/v1/calls/{id}", keyed(g.getCall)},
		{http.MethodPost, "/v1/calls/{id}/cancel", keyed(g.postCancel)},
		{http.MethodPost, "/v1/attach-tokens", keyed(g.postAttachToken)},
		{http.MethodGet, "/v1/approvals", keyed(g.getApprovals)},
		{http.MethodGet, "/v1/approvals/memory", keyed(g.getRemembered)},
		{http.MethodDelete, "/v1/approvals/memory/{id}", keyed(g.deleteRemembered)},
		{http.MethodGet, "/v1/approvals/{id}", keyed(g.getApproval)},
		{http.MethodPost, "/v1/approvals/{id}", keyed(g.postApproval)},
		{http.MethodGet, "/v1/conversations", keyed(g.getConversations)},
		{http.MethodGet, "/v1/conversations/{id}/events", open(g.held(g.getEvents))},
		{http.MethodPost, "/v1/conversations/{id}/events", keyed(g.postEvent)},
		{http.MethodGet, "/v1/jobs", keyed(g.getJobs)},
		{http.MethodGet, "/v1/jobs/{id}", keyed(g.getJob)},
		{http.MethodGet, "/v1/jobs/{id}/logs", keyed(g.getJobLogs)},
		{http.MethodPost, "/v1/jobs/{id}/stop", keyed(g.postJobStop)},
		{http.MethodPost, "/v1/jobs/{id}/signal", keyed(g.postJobSignal)},
		{http.MethodPost, "/v1/jobs/{id}/stdin", keyed(g.postJobStdin)},
		{http.MethodGet, "/status/{id}", keyed(g.getStatus)},
		{http.MethodPost, "/async-tools/{id}/complete", keyed(g.postToolEnd)},
		{http.MethodPost, "/sandbox-jobs/{id}/complete", open(g.postJobEnd)}, // the job's token is its key
		{http.MethodGet, "/v1/webhooks", keyed(g.getWebhooks)},
		{http.MethodPost, "/v1/webhooks", keyed(g.postWebhook)},
		{http.MethodPost, "/v1/webhooks/replay", keyed(g.postWebhookReplay)},
		{http.MethodGet, "/v1/webhooks/{id}", keyed(g.getWebhook)},
		{http.MethodPatch, "/v1/webhooks/{id}", keyed(g.patchWebhook)},
		{http.MethodDelete, "/v1/webhooks/{id}", keyed(g.deleteWebhook)},
		{http.MethodPost, "/v1/webhooks/{id}/rotate", keyed(g.postWebhookRotate)},
		{http.MethodPost, "/v1/webhooks/{id}/test", keyed(g.postWebhookTest)},
		{http.MethodGet, "/accounts", open(g.getAccounts)}, // the key is the administrator's
		{http.MethodPost, "/accounts", open(g.postAccount)},
		{http.MethodGet, "/accounts/{account}", own(g.getAccount)},
		{http.MethodPatch, "/accounts/{account}", own(g.patchAccount)},
		{http.MethodDelete, "/accounts/{account}", own(g.deleteAccount)},
		{http.MethodGet, "/accounts/{account}/usage", own(g.getUsage)},
		{http.MethodPost, "/accounts/{account}/rotate-secret", own(g.postRotateSecret)},
		{http.MethodPost, "/accounts/{account}/nats-credentials", own(g.postNATSCredential)},
		{http.MethodGet, "/accounts/{account}/agents/{id}/tools", own(g.getAgentTools)},
		{http.MethodGet, "/v1/tools", keyed(g.getTools)},
		{http.MethodGet, "/v1/stream/{path...}", keyed(g.stream)},
		{http.MethodPut, "/v1/stream/{path...}", keyed(g.stream)},
		{http.MethodPost, "/v1/stream/{path...}", keyed(g.stream)},
		{http.MethodDelete, "/v1/stream/{path...}", keyed(g.stream)},
		{http.MethodGet, "/v1/ws", open(g.getSocket)}, // it finds the key by itself
		{http.MethodGet, "/healthz", open(g.getHealth)},
		{http.MethodGet, "/readyz", open(g.getReady)},
		{http.MethodGet, "/metrics", open(g.getMetrics)},
		{http.MethodGet, "/openapi.json", open(g.getOpenAPI)},
	}, slices.Concat(g.collectionRoutes(), g.manifestRoutes())...)
}

// mux serves the routes and answers everything else with a problem too.
func (g *Gateway) mux() *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range g.routes() {
		mux.HandleFunc(r.method+" "+r.path, r.serve)
		methods[r.path] = append(methods[r.path], r.method)
		if r.method == http.MethodGet {
			methods[r.path] = append(methods[r.path], http.MethodHead) // net/http adds it
		}
	}
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		allow := strings.Join(methods[path], ", ")
		refuse := g.handle(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", allow)
			return withStatus(http.StatusMethodNotAllowed, schemas.Errorf(schemas.Unsupported, "",
				"%s is not allowed here: use %s", schemas.Quotable(r.Method), allow))
		})
		for _, m := range everyMethod() { // one by one: a pattern for all would meet those with {id} in the same place
			if !slices.Contains(methods[path], m) {
				mux.HandleFunc(m+" "+path, refuse)
			}
		}
	}
	mux.HandleFunc("/", g.handle(func(http.ResponseWriter, *http.Request) error {
		return schemas.Errorf(schemas.NotFound, "", "no such route: /openapi.json lists all routes")
	}))
	return mux
}

func everyMethod() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
}

// getTools answers the definitions of the tools, to be shown to a model.
func (g *Gateway) getTools(w http.ResponseWriter, r *http.Request, _ schemas.AccountID) error {
	q, err := parseQuery(r.URL.RawQuery, "dialect")
	if err != nil {
		return err
	}
	d, err := dialectOf(q)
	if err != nil {
		return err
	}
	if g.Tools == nil {
		return schemas.Errorf(schemas.Unsupported, "", "this gateway shows no tool definitions")
	}
	tools, err := g.Tools(d)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"tools": tools})
	return nil
}

// dialectOf is the dialect that a query names, if it does.
func dialectOf(q query) (schemas.Dialect, error) {
	d := schemas.Dialect(q.values.Get("dialect"))
	switch d {
	case "", schemas.DialectClaude, schemas.DialectDeepAgents:
		return d, nil
	}
	return "", schemas.Invalidf("dialect", "%q is unknown: use claude or deepagents", schemas.Quotable(strings.ToValidUTF8(string(d), "\uFFFD")))
}
