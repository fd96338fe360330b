package gateway_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

// door says how a route keeps accounts apart. Every route needs one: a new one is classified here first.
type door struct {
	// kind is of the id in the path: a key of [tenantsThings].
	kind string
	body string
	// named: the path also names the account. Then each of both is tried.
	named bool
	// alike: ids belong to each account for itself, so that another's is one that never was, whatever
	// the status. Else both are 404.
	alike bool
	// list: it shows what the account has, and nothing of another.
	list  bool
	query string // that the route needs
	// open: it is the same for everybody, or makes something for whoever asks. Why stands beside it.
	open string
}

func doors() map[string]door {
	config := `{"description":"x"}`
	return map[string]door{
		"POST /v1/calls":                             {open: "an id is the account's own; references are tried below"},
		"GET /v1/calls/{id}":                         {kind: "call"},
		"POST /v1/calls/{id}/cancel":                 {kind: "call"},
		"GET /v1/approvals":                          {list: true},
		"GET /v1/approvals/{id}":                     {kind: "approval"},
		"GET /v1/approvals/memory":                   {list: true},
		"DELETE /v1/approvals/memory/{id}":           {kind: "remembered"},
		"POST /v1/approvals/{id}":                    {kind: "approval", body: `{"approved":true}`},
		"GET /v1/conversations/{id}/events":          {kind: "conversation", alike: true},
		"POST /v1/conversations/{id}/events":         {open: "a conversation is the account's own; that nothing gets through is tried below"},
		"GET /accounts/{account}/usage":              {named: true, list: true},
		"GET /v1/tools":                              {open: "definitions for everybody"},
		"GET /v1/ws":                                 {open: "a socket acts as its key's account; attaching is tried below"},
		"POST /v1/attach-tokens":                     {open: "it makes a token of the account's own, for conversations of its own"},
		"GET /v1/jobs":                               {list: true},
		"GET /v1/jobs/{id}":                          {kind: "job"},
		"GET /v1/jobs/{id}/logs":                     {kind: "job"},
		"POST /v1/jobs/{id}/stop":                    {kind: "job"},
		"POST /v1/jobs/{id}/signal":                  {kind: "job", body: `{"signal":"INT"}`},
		"POST /v1/jobs/{id}/stdin":                   {kind: "job", body: "text"},
		"GET /status/{id}":                           {kind: "call"},
		"POST /async-tools/{id}/complete":            {kind: "job", body: `{"status":"completed","response":"x"}`},
		"POST /sandbox-jobs/{id}/complete":           {kind: "job", body: `{"exitCode":0}`, alike: true}, // 401: the key is the job's token
		"GET /v1/webhooks":                           {list: true},
		"GET /v1/calls":                              {kind: "call", list: true, query: "?before={id}"},
		"GET /v1/conversations":                      {kind: "call", list: true, query: "?before={id}"},
		"POST /v1/webhooks":                          {open: "it makes one of the account's own"},
		"POST /v1/webhooks/replay":                   {open: "it names a conversation and an endpoint, tried below"},
		"GET /v1/webhooks/{id}":                      {kind: "webhook"},
		"PATCH /v1/webhooks/{id}":                    {kind: "webhook", body: config},
		"DELETE /v1/webhooks/{id}":                   {kind: "webhook"},
		"POST /v1/webhooks/{id}/rotate":              {kind: "webhook"},
		"POST /v1/webhooks/{id}/test":                {kind: "webhook"},
		"GET /v1/stream/{path}":                      {kind: "stream"},
		"PUT /v1/stream/{path}":                      {open: "it makes one of the account's own"},
		"POST /v1/stream/{path}":                     {kind: "stream", body: `{"x":1}`},
		"DELETE /v1/stream/{path}":                   {kind: "stream"},
		"GET /accounts":                              {open: "for the administrator: 403, whatever is there"},
		"POST /accounts":                             {open: "for the administrator: 403, whatever is there"},
		"GET /accounts/{account}":                    {named: true},
		"PATCH /accounts/{account}":                  {named: true, body: config},
		"DELETE /accounts/{account}":                 {named: true},
		"POST /accounts/{account}/rotate-secret":     {named: true},
		"POST /accounts/{account}/nats-credentials":  {named: true},
		"GET /accounts/{account}/manifest":           {named: true, kind: "project", query: "?project={id}"},
		"PUT /accounts/{account}/manifest":           {named: true, body: `{"manifest":{}}`},
		"GET /accounts/{account}/env":                {named: true, list: true},
		"PUT /accounts/{account}/env/{name}":         {named: true, body: `{"value":"x"}`},
		"DELETE /accounts/{account}/env/{name}":      {named: true, kind: "variable"},
		"GET /accounts/{account}/sandboxes":          {named: true, list: true},
		"POST /accounts/{account}/sandboxes":         {named: true, body: `{"name":"x"}`},
		"GET /accounts/{account}/sandboxes/{id}":     {named: true, kind: "sandbox"},
		"PATCH /accounts/{account}/sandboxes/{id}":   {named: true, kind: "sandbox", body: config},
		"DELETE /accounts/{account}/sandboxes/{id}":  {named: true, kind: "sandbox"},
		"GET /accounts/{account}/workspaces":         {named: true, list: true},
		"POST /accounts/{account}/workspaces":        {named: true, body: `{"name":"x"}`},
		"GET /accounts/{account}/workspaces/{id}":    {named: true, kind: "workspace"},
		"PATCH /accounts/{account}/workspaces/{id}":  {named: true, kind: "workspace", body: config},
		"DELETE /accounts/{account}/workspaces/{id}": {named: true, kind: "workspace"},
		"GET /accounts/{account}/agents":             {named: true, list: true},
		"POST /accounts/{account}/agents":            {named: true, body: `{"name":"x"}`},
		"GET /accounts/{account}/agents/{id}":        {named: true, kind: "agent"},
		"PATCH /accounts/{account}/agents/{id}":      {named: true, kind: "agent", body: config},
		"DELETE /accounts/{account}/agents/{id}":     {named: true, kind: "agent"},
		"GET /accounts/{account}/agents/{id}/tools":  {named: true, kind: "agent"},
		"GET /healthz":                               {open: "it names nobody"},
		"GET /readyz":                                {open: "it names nobody"},
		"GET /metrics":                               {open: "for the operator; it counts and names no account"},
		"GET /openapi.json":                          {open: "the same for everybody"},
	}
}

// thing is something of anna's, and an id of the same form that nobody ever had.
type thing struct{ id, never string }

const planted = "planted-by-anna" // in the content of everything that she has

// tenantsThings gives anna one of each.
func tenantsThings(t *testing.T, k *kept) map[string]thing {
	t.Helper()
	anna := schemas.AccountID(k.anna.id)
	sandbox, _ := k.add(k.anna, "sandboxes", `{"name":"asks","description":"`+planted+`","config":{"permissionMode":"ask"}}`)
	workspace, _ := k.add(k.anna, "workspaces", `{"name":"w","description":"`+planted+`","sandbox":"`+sandbox+`"}`)
	agent, _ := k.add(k.anna, "agents", `{"name":"a","description":"`+planted+`"}`)
	post := func(path, body string, status int) answer {
		t.Helper()
		a := k.as(k.anna, http.MethodPost, path, body)
		if a.status != status {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return a
	}
	call := decode[gateway.CallState](t, post("/v1/calls",
		`{"conversation":"c_anna","workspace":"`+workspace+`","tool":"bash","input":{"command":"touch `+planted+`"}}`, http.StatusAccepted))
	post("/v1/conversations/c_anna/events", `{"type":"message","data":{"text":"`+planted+`"}}`, http.StatusCreated)
	job := k.job(func(j *schemas.Job) { j.Account, j.Command = anna, planted })
	hook := decode[struct{ ID string }](t, post("/v1/webhooks", `{"url":"https://example.com/`+planted+`"}`, http.StatusCreated))
	if a := k.as(k.anna, http.MethodPut, "/accounts/me/env/VARIABLE_OF_ANNA", `{"value":"`+planted+`"}`); a.status >= http.StatusBadRequest {
		t.Fatalf("%d %s", a.status, a.body)
	}
	manifest := `{"manifest":{"version":1,"project":"project_of_anna","resources":[{"kind":"workspace","name":"m","description":"` + planted + `"}]}}`
	if a := k.as(k.anna, http.MethodPut, "/accounts/me/manifest", manifest); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodPut, "/v1/stream/anna/s", "", "Content-Type", "application/json"); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	remembered := schemas.RememberedOf(schemas.Approval{
		ID: schemas.NewApprovalID(), Account: anna, Decided: time.Now(), Call: schemas.Call{Account: anna, Conversation: "c_anna", Tool: schemas.ToolBash},
	})
	if err := lifecycle.RememberAnswer(t.Context(), k.bus, remembered); err != nil {
		t.Fatal(err)
	}
	return map[string]thing{
		"remembered": {remembered.ID, schemas.RememberedID(schemas.Call{Conversation: "c_none"})},
		"":           {}, "call": {string(call.ID), string(schemas.NewCallID())}, "approval": {string(call.Approval), schemas.NewID(schemas.ApprovalPrefix)},
		"conversation": {"c_anna", "c_none"}, "job": {string(job.ID), string(schemas.NewJobID())},
		"webhook": {hook.ID, schemas.NewID(schemas.EndpointPrefix)}, "sandbox": {sandbox, schemas.NewID(schemas.SandboxPrefix)},
		"workspace": {workspace, schemas.NewID(schemas.WorkspacePrefix)}, "agent": {agent, schemas.NewID(schemas.AgentPrefix)},
		"variable": {"VARIABLE_OF_ANNA", "VARIABLE_OF_NONE"}, "project": {"project_of_anna", "project_of_none"}, "stream": {"anna/s", "none/s"},
	}
}

// TestNoRouteShowsAnotherAccount asks every route for anna's things with bert's key: the answer is, to the
// word and to the number of questions to the log, that for what never was.
func TestNoRouteShowsAnotherAccount(t *testing.T) {
	k := openKept(t, func(o *gateway.Options) {
		store := o.Records.(*records.Store)
		o.NATS, o.Endpoints = store, store
		o.AgentTools = func(schemas.Exposure, string, schemas.Dialect) (any, error) { return []string{}, nil }
	})
	things := tenantsThings(t, k)
	log := watchLog(t, k)
	table := doors()
	for route, d := range table {
		method, path, _ := strings.Cut(route, " ")
		if d.open != "" {
			continue
		}
		try := func(account, id string) (answer, int) {
			p := strings.NewReplacer("{account}", account, "{id}", id, "{name}", id, "{path}", id).Replace(path + d.query)
			header := []string{}
			if d.body == "text" {
				header = []string{"Content-Type", "application/octet-stream"}
			}
			before := log.count()
			a := k.as(k.bert, method, p, d.body, header...)
			for _, own := range []string{account, id} {
				if own != "me" && own != "" {
					a.body = strings.ReplaceAll(a.body, own, "*")
				}
			}
			return a, log.count() - before
		}
		type pair struct{ account, id string }
		thing := things[d.kind]
		cases := []struct{ hers, none pair }{}
		if d.kind != "" {
			cases = append(cases, struct{ hers, none pair }{pair{"me", thing.id}, pair{"me", thing.never}})
		}
		if d.named {
			cases = append(cases, struct{ hers, none pair }{pair{k.anna.id, thing.id}, pair{"acct_never", thing.id}})
		}
		for _, c := range cases {
			none, cost := try(c.none.account, c.none.id)
			got, gotCost := try(c.hers.account, c.hers.id)
			// The gateway asks the log for itself too, now and then: what differs by the door does it each time.
			for again := 0; gotCost != cost && again < 3; again++ {
				none, cost = try(c.none.account, c.none.id)
				got, gotCost = try(c.hers.account, c.hers.id)
			}
			if got.status != none.status || got.body != none.body {
				t.Errorf("%s: hers is %d %s\nwhat never was is %d %s", route, got.status, got.body, none.status, none.body)
			}
			if gotCost != cost {
				t.Errorf("%s: hers asks the log %d times, what never was %d times", route, gotCost, cost)
			}
			if !d.alike && got.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", route, got.status, got.body)
			}
			if strings.Contains(got.body, planted) {
				t.Errorf("%s shows %s", route, got.body)
			}
		}
		if d.list {
			got, _ := try("me", "")
			if got.status != http.StatusOK {
				t.Errorf("%s: %d %s", route, got.status, got.body)
			}
			for kind, thing := range things {
				if kind != "" && (strings.Contains(got.body, thing.id) || strings.Contains(got.body, planted)) {
					t.Errorf("%s shows the %s: %s", route, kind, got.body)
				}
			}
		}
	}

	// What the loop had to leave out: references to anna's things from bert's own.
	for name, c := range map[string]struct{ path, body, never string }{
		"a call in her workspace":    {"/v1/calls", `{"workspace":"` + things["workspace"].id + `","tool":"bash","input":{"command":"x"}}`, things["workspace"].never},
		"a call in her sandbox":      {"/v1/calls", `{"sandbox":"` + things["sandbox"].id + `","tool":"bash","input":{"command":"x"}}`, things["sandbox"].never},
		"a call as her agent":        {"/v1/calls", `{"agent":"` + things["agent"].id + `","tool":"bash","input":{"command":"x"}}`, things["agent"].never},
		"a replay to her webhook":    {"/v1/webhooks/replay", `{"since":"1h","endpoint":"` + things["webhook"].id + `"}`, things["webhook"].never},
		"a workspace on her sandbox": {"/accounts/me/workspaces", `{"name":"n","sandbox":"` + things["sandbox"].id + `"}`, things["sandbox"].never},
	} {
		got := k.as(k.bert, http.MethodPost, c.path, c.body)
		other := k.as(k.bert, http.MethodPost, c.path, replaceID(c.body, things, c.never))
		if got.status < http.StatusBadRequest || got.status != other.status || replaceID(got.body, things, "ID") != strings.ReplaceAll(other.body, c.never, "ID") {
			t.Errorf("%s: %d %s\nwhat never was: %d %s", name, got.status, got.body, other.status, other.body)
		}
	}
	same := k.as(k.bert, http.MethodPost, "/v1/calls", `{"id":"`+things["call"].id+`","conversation":"c_anna","tool":"bash","input":{"command":"bert's"}}`)
	if same.status != http.StatusAccepted {
		t.Errorf("a call by her id, in a conversation by her name, is bert's own: %d %s", same.status, same.body)
	}
	if a := k.as(k.bert, http.MethodGet, "/v1/conversations/c_anna/events", ""); a.status != http.StatusOK || strings.Contains(a.body, planted) {
		t.Errorf("his conversation of the same name: %d %s", a.status, a.body)
	}
	if a := k.as(k.bert, http.MethodPost, "/v1/conversations/c_anna/events", `{"type":"message","data":{"text":"planted-by-bert"}}`); a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodGet, "/v1/conversations/c_anna/events", ""); !strings.Contains(a.body, planted) || strings.Contains(a.body, "by-bert") {
		t.Errorf("her conversation: %d %s", a.status, a.body)
	}
	s, _, err := k.dial(http.Header{"Authorization": {"Bearer " + k.bert.key}})
	if err != nil {
		t.Fatal(err)
	}
	s.write(`{"op":"attach","conv":"c_anna"}`)
	for _, f := range s.until("live") {
		if strings.Contains(string(f.Data.Data), planted) {
			t.Errorf("his socket hears %+v", f)
		}
	}
	for route := range table {
		if table[route].open == "for the administrator: 403, whatever is there" {
			method, path, _ := strings.Cut(route, " ")
			if a := k.as(k.bert, method, path, ""); a.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
		}
	}

	// All the time, what is hers was there for her.
	for kind, path := range map[string]string{
		"call": "/v1/calls/", "approval": "/v1/approvals/", "job": "/v1/jobs/", "sandbox": "/accounts/me/sandboxes/",
		"workspace": "/accounts/me/workspaces/", "agent": "/accounts/me/agents/", "project": "/accounts/me/manifest?project=", "stream": "/v1/stream/",
	} {
		if a := k.as(k.anna, http.MethodGet, path+things[kind].id, ""); a.status >= http.StatusBadRequest {
			t.Errorf("her %s: %d %s", kind, a.status, a.body)
		}
	}
}

// replaceID puts another id in the place of whichever of anna's is in s.
func replaceID(s string, things map[string]thing, id string) string {
	for _, kind := range []string{"workspace", "sandbox", "agent", "webhook"} {
		s = strings.ReplaceAll(s, things[kind].id, id)
	}
	return s
}

// TestEveryRouteIsClassified fails for a route that nobody has thought about, until it is in the table.
func TestEveryRouteIsClassified(t *testing.T) {
	e := open(t)
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(e.get("/openapi.json").body), &doc); err != nil {
		t.Fatal(err)
	}
	var served []string
	for path, methods := range doc.Paths {
		for method := range methods {
			served = append(served, strings.ToUpper(method)+" "+path)
		}
	}
	table := slices.Collect(maps.Keys(doors()))
	for _, route := range served {
		if !slices.Contains(table, route) {
			t.Errorf("%s: say in the table how it keeps accounts apart", route)
		}
	}
	for _, route := range table {
		if !slices.Contains(served, route) {
			t.Errorf("%s is in the table and not served", route)
		}
	}
}

// logWatch counts what the gateway asks the log.
type logWatch struct {
	t    *testing.T
	conn *nats.Conn
	sub  *nats.Subscription
}

func watchLog(t *testing.T, k *kept) *logWatch {
	t.Helper()
	nc, err := nats.Connect(k.server.URL(), nats.UserInfo("role", "role"), nats.Timeout(within))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync("$JS.API.>")
	if err != nil {
		t.Fatal(err)
	}
	w := &logWatch{t, nc, sub}
	w.count()
	k.as(k.bert, http.MethodGet, "/v1/calls/"+string(schemas.NewCallID()), "")
	if w.count() == 0 {
		t.Fatal("it sees nothing")
	}
	return w
}

// count is how many questions there were so far. A question that was answered is among them.
func (w *logWatch) count() int {
	w.t.Helper()
	if err := w.conn.Flush(); err != nil {
		w.t.Fatal(err)
	}
	n, err := w.sub.Delivered()
	pending, _, err2 := w.sub.Pending()
	if err != nil || err2 != nil {
		w.t.Fatal(err, err2)
	}
	return int(n) + pending
}
