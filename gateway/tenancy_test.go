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

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
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
	// open says why a route needs no owner: it is the same for all callers, or creates something for its caller.
	open string
}

func doors() map[string]door {
	config := `{"description":"x"}`
	return map[string]door{
		"POST /v1/calls":                                {open: "an id is the account's own; references are tried below"},
		"GET /v1/calls/{id}":                            {kind: "call"},
		"POST /v1/calls/{id}/cancel":                    {kind: "call"},
		"GET /v1/approvals":                             {list: true},
		"GET /v1/approvals/{id}":                        {kind: "approval"},
		"GET /v1/approvals/grants":                      {list: true},
		"DELETE /v1/approvals/grants/{id}":              {kind: "remembered"},
		"POST /v1/approvals/{id}/decide":                {kind: "approval", body: `{"approved":true}`},
		"GET /v1/conversations/{id}/events":             {kind: "conversation", alike: true},
		"POST /v1/conversations/{id}/events":            {open: "a conversation is the account's own; that nothing gets through is tried below"},
		"POST /v1/conversations/{id}/stop":              {kind: "conversation", alike: true},
		"POST /v1/agents/{id}/turns":                    {kind: "agent", body: `{"input":"x"}`},
		"GET /v1/conversations/{id}/artifacts":          {kind: "conversation", alike: true},
		"GET /v1/artifacts/{id}":                        {kind: "artifact"},
		"DELETE /v1/artifacts/{id}":                     {kind: "artifact"},
		"GET /v1/accounts/{account}/usage":              {named: true, list: true},
		"GET /v1/tools":                                 {open: "definitions for everybody"},
		"GET /.well-known/oauth-protected-resource":     {open: "the same for everybody"},
		"GET /.well-known/oauth-protected-resource/mcp": {open: "the same for everybody"},
		"POST /mcp":                                         {open: "calls are the key's account's: TestMCPOverHTTP tries another's"},
		"GET /v1/ws":                                        {open: "a socket acts as its key's account; attaching is tried below"},
		"POST /v1/attach-tokens":                            {open: "it makes a token of the account's own, for conversations of its own"},
		"GET /v1/jobs":                                      {list: true},
		"GET /v1/jobs/{id}":                                 {kind: "job"},
		"GET /v1/jobs/{id}/logs":                            {kind: "job"},
		"POST /v1/jobs/{id}/stop":                           {kind: "job"},
		"POST /v1/jobs/{id}/signal":                         {kind: "job", body: `{"signal":"INT"}`},
		"POST /v1/jobs/{id}/stdin":                          {kind: "job", body: "text"},
		"GET /v1/instances":                                 {list: true},
		"GET /v1/instances/{id}":                            {kind: "instance"},
		"DELETE /v1/instances/{id}":                         {kind: "instance"},
		"POST /v1/instances/{id}/pause":                     {kind: "instance"},
		"POST /v1/instances/{id}/resume":                    {kind: "instance"},
		"GET /v1/calls/{id}/status":                         {kind: "call"},
		"POST /v1/jobs/{id}/complete":                       {kind: "job", body: `{"status":"completed","response":"x"}`},
		"GET /v1/workspaces/{id}/files":                     {kind: "workspace"},
		"GET /v1/workspaces/{id}/files/{path}":              {kind: "workspace"},
		"PUT /v1/workspaces/{id}/files/{path}":              {kind: "workspace", body: "text"},
		"DELETE /v1/workspaces/{id}/files/{path}":           {kind: "workspace"},
		"GET /v1/workspaces/{id}/archive":                   {kind: "workspace"},
		"PUT /v1/workspaces/{id}/archive":                   {kind: "workspace", body: "text"},
		"GET /v1/workspaces/{id}/uploads/{upload}":          {kind: "workspace"},
		"DELETE /v1/workspaces/{id}/uploads/{upload}":       {kind: "workspace"},
		"POST /v1/workspaces/{id}/mkdir":                    {kind: "workspace", body: `{"path":"x"}`},
		"POST /v1/workspaces/{id}/move":                     {kind: "workspace", body: `{"from":"x","to":"y"}`},
		"GET /v1/webhooks":                                  {list: true},
		"GET /v1/calls":                                     {kind: "call", list: true, query: "?before={id}"},
		"GET /v1/conversations":                             {kind: "call", list: true, query: "?before={id}"},
		"POST /v1/webhooks":                                 {open: "it makes one of the account's own"},
		"POST /v1/webhooks/replay":                          {open: "it names a conversation and an endpoint, tried below"},
		"GET /v1/webhooks/{id}":                             {kind: "webhook"},
		"PATCH /v1/webhooks/{id}":                           {kind: "webhook", body: config},
		"DELETE /v1/webhooks/{id}":                          {kind: "webhook"},
		"POST /v1/webhooks/{id}/rotate-secret":              {kind: "webhook"},
		"POST /v1/webhooks/{id}/test":                       {kind: "webhook"},
		"GET /v1/channels":                                  {list: true},
		"POST /v1/channels":                                 {open: "it makes one of the account's own"},
		"GET /v1/channels/{id}":                             {kind: "channel"},
		"PATCH /v1/channels/{id}":                           {kind: "channel", body: config},
		"DELETE /v1/channels/{id}":                          {kind: "channel"},
		"POST /v1/channels/{id}/test":                       {kind: "channel", body: `{"route":{"chat":1}}`},
		"GET /v1/skills":                                    {list: true},
		"POST /v1/skills":                                   {open: "it makes one of the account's own"},
		"GET /v1/skills/{id}":                               {kind: "skill"},
		"PUT /v1/skills/{id}":                               {open: "a name is the account's own: TestSkillsOfTwoTenants tries another's id"},
		"DELETE /v1/skills/{id}":                            {kind: "skill"},
		"GET /v1/skills/{id}/bundle":                        {kind: "skill"},
		"GET /v1/streams/{path}":                            {kind: "stream"},
		"PUT /v1/streams/{path}":                            {open: "it makes one of the account's own"},
		"POST /v1/streams/{path}":                           {kind: "stream", body: `{"x":1}`},
		"DELETE /v1/streams/{path}":                         {kind: "stream"},
		"GET /v1/accounts":                                  {open: "for the administrator: 403, whatever is there"},
		"POST /v1/accounts":                                 {open: "for the administrator: 403, whatever is there"},
		"GET /v1/accounts/{account}":                        {named: true},
		"PATCH /v1/accounts/{account}":                      {named: true, body: config},
		"DELETE /v1/accounts/{account}":                     {named: true},
		"POST /v1/accounts/{account}/rotate-secret":         {named: true},
		"POST /v1/accounts/{account}/nats-credentials":      {named: true},
		"GET /v1/accounts/{account}/manifest":               {named: true, kind: "project", query: "?project={id}"},
		"PUT /v1/accounts/{account}/manifest":               {named: true, body: `{"manifest":{}}`},
		"GET /v1/accounts/{account}/variables":              {named: true, list: true},
		"PUT /v1/accounts/{account}/variables/{name}":       {named: true, body: `{"value":"x"}`},
		"DELETE /v1/accounts/{account}/variables/{name}":    {named: true, kind: "variable"},
		"GET /v1/accounts/{account}/sandboxes":              {named: true, list: true},
		"POST /v1/accounts/{account}/sandboxes":             {named: true, body: `{"name":"x"}`},
		"GET /v1/accounts/{account}/sandboxes/{id}":         {named: true, kind: "sandbox"},
		"PATCH /v1/accounts/{account}/sandboxes/{id}":       {named: true, kind: "sandbox", body: config},
		"DELETE /v1/accounts/{account}/sandboxes/{id}":      {named: true, kind: "sandbox"},
		"GET /v1/accounts/{account}/workspaces":             {named: true, list: true},
		"POST /v1/accounts/{account}/workspaces":            {named: true, body: `{"name":"x"}`},
		"GET /v1/accounts/{account}/workspaces/{id}":        {named: true, kind: "workspace"},
		"PATCH /v1/accounts/{account}/workspaces/{id}":      {named: true, kind: "workspace", body: config},
		"DELETE /v1/accounts/{account}/workspaces/{id}":     {named: true, kind: "workspace"},
		"GET /v1/accounts/{account}/models":                 {named: true, list: true},
		"POST /v1/accounts/{account}/models":                {named: true, body: `{"name":"x","config":{"wire":"openai","model":"m"}}`},
		"GET /v1/accounts/{account}/models/{id}":            {named: true, kind: "model"},
		"PATCH /v1/accounts/{account}/models/{id}":          {named: true, kind: "model", body: config},
		"DELETE /v1/accounts/{account}/models/{id}":         {named: true, kind: "model"},
		"GET /v1/accounts/{account}/agents":                 {named: true, list: true},
		"POST /v1/accounts/{account}/agents":                {named: true, body: `{"name":"x"}`},
		"GET /v1/accounts/{account}/agents/{id}":            {named: true, kind: "agent"},
		"PATCH /v1/accounts/{account}/agents/{id}":          {named: true, kind: "agent", body: config},
		"DELETE /v1/accounts/{account}/agents/{id}":         {named: true, kind: "agent"},
		"GET /v1/accounts/{account}/agents/{id}/tools":      {named: true, kind: "agent"},
		"POST /v1/sandbox/execute":                          {open: "ids are the account's own: TestSessionsOfTwoTenants tries another's"},
		"POST /v1/sandbox/bash":                             {open: "likewise"},
		"POST /v1/sandbox/read":                             {open: "likewise"},
		"POST /v1/sandbox/read_binary":                      {open: "likewise"},
		"POST /v1/sandbox/write":                            {open: "likewise"},
		"POST /v1/sandbox/grep":                             {open: "likewise"},
		"POST /v1/sandbox/glob":                             {open: "likewise"},
		"POST /v1/sandbox/ls":                               {open: "likewise"},
		"GET /v1/sandbox/sessions":                          {list: true},
		"DELETE /v1/sandbox/sessions/{tenant}/{session}":    {open: "another's and what never was are alike: TestSessionsOfTwoTenants"},
		"POST /v1/sandbox/sessions/{tenant}/{session}/copy": {open: "likewise"},
		"POST /v1/channels/{id}/simulate":                   {kind: "channel", body: `{"text":"a"}`},
		"POST /v1/channels/{id}/setup":                      {kind: "channel", body: `{"url":"https://example.com"}`},
		"POST /v1/channels/{account}/{channel}/receive":     {open: "for chat services: the channel's secret lets in, see TestWhatChatsMayNot"},
		"GET /healthz":                                      {open: "it names nobody"},
		"GET /readyz":                                       {open: "it names nobody"},
		"GET /metrics":                                      {open: "for the operator; it counts and names no account"},
		"GET /openapi.json":                                 {open: "the same for everybody"},
	}
}

// thing is something of anna's, and an id of the same form that was never used.
type thing struct{ id, never string }

const planted = "planted-by-anna" // in the content of everything that she has

// tenantsThings gives anna one of each.
func tenantsThings(t *testing.T, k *kept) map[string]thing {
	t.Helper()
	anna := schemas.AccountID(k.anna.id)
	sandbox, _ := k.add(k.anna, "sandboxes", `{"name":"asks","description":"`+planted+`","config":{"permissionMode":"ask"}}`)
	workspace, _ := k.add(k.anna, "workspaces", `{"name":"w","description":"`+planted+`","sandbox":"`+sandbox+`"}`)
	model, _ := k.add(k.anna, "models", `{"name":"m","description":"`+planted+`","config":{"wire":"openai","model":"m"}}`)
	agent, _ := k.add(k.anna, "agents", `{"name":"a","description":"`+planted+`"}`)
	post := func(path, body string, status int) answer {
		t.Helper()
		a := k.as(k.anna, http.MethodPost, path, body)
		if a.status != status {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return a
	}
	call := decode[calls.State](t, post("/v1/calls",
		`{"conversation":"c_anna","workspace":"`+workspace+`","tool":"bash","input":{"command":"touch `+planted+`"}}`, http.StatusAccepted))
	post("/v1/conversations/c_anna/events", `{"type":"message","data":{"text":"`+planted+`"}}`, http.StatusCreated)
	job := k.job(func(j *schemas.Job) { j.Account, j.Command = anna, planted })
	instance := k.instance(func(i *schemas.Instance) {
		i.Account, i.Sandbox, i.Workspace = anna, schemas.SandboxID(sandbox), schemas.WorkspaceID(workspace)
	})
	hook := decode[struct{ ID string }](t, post("/v1/webhooks", `{"url":"https://example.com/`+planted+`"}`, http.StatusCreated))
	chat := decode[schemas.ChatChannel](t, post("/v1/channels", `{"kind":"slack","name":"c","description":"`+planted+`"}`, http.StatusCreated))
	skill := decode[schemas.SkillDocument](t, putSkill(k, k.anna, "skill-of-anna", planted))
	variable := k.as(k.anna, http.MethodPut, "/v1/accounts/me/variables/VARIABLE_OF_ANNA", `{"value":"`+planted+`"}`)
	if a := variable; a.status >= http.StatusBadRequest {
		t.Fatalf("%d %s", a.status, a.body)
	}
	manifest := `{"manifest":{"version":1,"project":"project_of_anna","resources":[{"kind":"workspace","name":"m","description":"` +
		planted + `"}]}}`
	if a := k.as(k.anna, http.MethodPut, "/v1/accounts/me/manifest", manifest); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodPut, "/v1/streams/anna/s", "", "Content-Type", "application/json"); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	remembered := schemas.ApprovalGrantOf(schemas.Approval{
		ID: schemas.NewApprovalID(), Account: anna, Decided: time.Now(),
		Call: schemas.Call{Account: anna, Conversation: "c_anna", Tool: schemas.ToolBash},
	})
	if err := lifecycle.StoreApprovalGrant(t.Context(), k.bus, remembered); err != nil {
		t.Fatal(err)
	}
	by := schemas.Call{Account: anna, ID: "call_anna", Conversation: "c_anna"}
	made := schemas.NewArtifact(by, "outputs/"+planted, 0, "e3", nil, time.Now())
	if err := streams.StoreArtifact(t.Context(), k.bus, anna, streams.KeptArtifact{Artifact: made}); err != nil {
		t.Fatal(err)
	}
	return map[string]thing{
		"artifact":   {string(made.ID), schemas.ArtifactPrefix + strings.Repeat("0", 32)},
		"remembered": {remembered.ID, schemas.ApprovalGrantID(schemas.Call{Conversation: "c_none"})},
		"":           {}, "call": {string(call.ID), string(schemas.NewCallID())},
		"approval":     {string(call.Approval), schemas.NewID(schemas.ApprovalPrefix)},
		"conversation": {"c_anna", "c_none"}, "job": {string(job.ID), string(schemas.NewJobID())},
		"instance": {string(instance.Document().ID), string(schemas.NewInstanceID("local", "sb_never", "ws_never"))},
		"channel":  {string(chat.ID), schemas.NewID(schemas.ChannelPrefix)},
		"webhook":  {hook.ID, schemas.NewID(schemas.EndpointPrefix)}, "sandbox": {sandbox, schemas.NewID(schemas.SandboxPrefix)},
		"workspace": {workspace, schemas.NewID(schemas.WorkspacePrefix)}, "agent": {agent, schemas.NewID(schemas.AgentPrefix)},
		"model":    {model, schemas.NewID(schemas.ModelPrefix)},
		"skill":    {string(skill.ID), schemas.NewID(schemas.SkillPrefix)},
		"variable": {"VARIABLE_OF_ANNA", "VARIABLE_OF_NONE"}, "project": {"project_of_anna", "project_of_none"}, "stream": {"anna/s", "none/s"},
	}
}

// TestNoRouteShowsAnotherAccount asks every route for anna's things with bert's key: the answer is, to the
// word and to the number of questions to the log, that for what never was.
//
//guarantee:tenants-are-isolated
func TestNoRouteShowsAnotherAccount(t *testing.T) {
	k := openKept(t, func(o *gateway.Options) {
		store := o.Records.(*records.Store)
		o.NATS, o.Endpoints, o.Channels, o.ChannelKinds, o.Skills = store.Accounts, store.Endpoints, store.Channels, chatKinds(), store.Skills
		o.Workspace = store.WorkspaceFiles
		o.Sandboxes = sessions(store)
		o.ChatReceiver = func(kind string) (channel.Receiver, bool) { return posts{}, true }
		o.AgentTools = func(schemas.ToolVisibility, string, schemas.Dialect) (any, error) { return []string{}, nil }
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
			p := strings.NewReplacer("{account}", account, "{id}", id, "{name}", id, "{path}", id, "{upload}", "u1").Replace(path + d.query)
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
		"a call in her workspace": {"/v1/calls", `{"workspace":"` + things["workspace"].id + `","tool":"bash","input":{"command":"x"}}`,
			things["workspace"].never},
		"a call in her sandbox": {"/v1/calls", `{"sandbox":"` + things["sandbox"].id +
			`","tool":"bash","input":{"command":"x"}}`, things["sandbox"].never},
		"a call as her agent": {"/v1/calls", `{"agent":"` + things["agent"].id +
			`","tool":"bash","input":{"command":"x"}}`, things["agent"].never},
		"a replay to her webhook": {"/v1/webhooks/replay",
			`{"since":"1h","endpoint":"` + things["webhook"].id + `"}`, things["webhook"].never},
		"a workspace on her sandbox": {"/v1/accounts/me/workspaces",
			`{"name":"n","sandbox":"` + things["sandbox"].id + `"}`, things["sandbox"].never},
	} {
		got := k.as(k.bert, http.MethodPost, c.path, c.body)
		other := k.as(k.bert, http.MethodPost, c.path, replaceID(c.body, things, c.never))
		if got.status < http.StatusBadRequest || got.status != other.status ||
			replaceID(got.body, things, "ID") != strings.ReplaceAll(other.body, c.never, "ID") {
			t.Errorf("%s: %d %s\nwhat never was: %d %s", name, got.status, got.body, other.status, other.body)
		}
	}
	same := k.as(k.bert, http.MethodPost, "/v1/calls",
		`{"id":"`+things["call"].id+`","conversation":"c_anna","tool":"bash","input":{"command":"bert's"}}`)
	if same.status != http.StatusAccepted {
		t.Errorf("a call by her id, in a conversation by her name, is bert's own: %d %s", same.status, same.body)
	}
	if a := k.as(k.bert, http.MethodGet, "/v1/conversations/c_anna/events", ""); a.status != http.StatusOK ||
		strings.Contains(a.body, planted) {
		t.Errorf("his conversation of the same name: %d %s", a.status, a.body)
	}
	if a := k.as(k.bert, http.MethodPost, "/v1/conversations/c_anna/events",
		`{"type":"message","data":{"text":"planted-by-bert"}}`); a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodGet, "/v1/conversations/c_anna/events", ""); !strings.Contains(a.body, planted) ||
		strings.Contains(a.body, "by-bert") {
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
		"call": "/v1/calls/", "approval": "/v1/approvals/", "job": "/v1/jobs/", "sandbox": "/v1/accounts/me/sandboxes/",
		"workspace": "/v1/accounts/me/workspaces/", "agent": "/v1/accounts/me/agents/", "model": "/v1/accounts/me/models/",
		"instance": "/v1/instances/",
		"project":  "/v1/accounts/me/manifest?project=", "stream": "/v1/streams/",
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

// TestEveryRouteIsClassified fails for a new route until it is in the table.
//
//guarantee:tenants-are-isolated
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
