package gateway_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

// TestAliasesAnswerAsTheirRoutes calls each alias and its route alike, with ids that are there for what reads and with ids that never
// were for what changes.
func TestAliasesAnswerAsTheirRoutes(t *testing.T) {
	k := openKept(t, func(o *gateway.Options) {
		o.DurableStreams = true
		store := o.Records.(*records.Store)
		o.NATS, o.Endpoints, o.Channels, o.ChannelKinds = store.Accounts, store.Endpoints, store.Channels, chatKinds()
		o.AgentTools = func(schemas.ToolVisibility, string, schemas.Dialect) (any, error) { return []string{"a tool"}, nil }
	})
	things := tenantsThings(t, k)
	for _, a := range gateway.AliasRows() {
		kind, called, body := "", k.anna, ""
		switch last := strings.TrimSuffix(strings.TrimSuffix(a.Of, "/tools"), "/{id}"); {
		case a.Of == "/v1/accounts":
			called = holder{key: adminKey}
		case strings.HasSuffix(a.Of, "/{path...}"):
			kind = "stream"
		case strings.HasPrefix(a.Of, "/v1/calls"):
			kind = "call"
		case strings.HasPrefix(a.Of, "/v1/jobs"):
			kind = "job"
		case strings.HasSuffix(last, "/sandboxes"):
			kind = "sandbox"
		case strings.HasSuffix(last, "/workspaces"):
			kind = "workspace"
		case strings.HasSuffix(last, "/models"):
			kind = "model"
		case strings.HasSuffix(last, "/agents"):
			kind = "agent"
		case strings.HasSuffix(last, "/channels"):
			kind = "channel"
		}
		id, account := things[kind].id, k.anna.id
		if a.Method != http.MethodGet {
			id, account, body = things[kind].never, "acct_never", `{"unknown":1}`
		}
		at := func(path string) answer {
			path = strings.NewReplacer("{id}", id, "{account}", account, "{path...}", id).Replace(path)
			if strings.HasSuffix(a.Of, "/{path...}") && a.Method == http.MethodGet {
				path += "?offset=-1"
			}
			return k.as(called, a.Method, path, body)
		}
		alias, route := at(a.Path), at(a.Of)
		if strings.HasSuffix(a.Path, "/sandbox-jobs/{id}/complete") {
			continue // asks for the job's token, below
		}
		if kind == "stream" && a.Method != http.MethodGet { // what the first changes the second finds changed
			if alias.status >= http.StatusBadRequest && route.status != alias.status {
				t.Errorf("%s %s: %d %s", a.Method, a.Path, alias.status, alias.body)
			}
			continue
		}
		if alias.status != route.status || alias.body != route.body || strings.Contains(alias.body, "no such route") {
			t.Errorf("%s %s: %d %s\n%s: %d %s", a.Method, a.Path, alias.status, alias.body, a.Of, route.status, route.body)
		}
		if reads := a.Method == http.MethodGet; reads != (alias.status == http.StatusOK) {
			t.Errorf("%s %s: %d %s", a.Method, a.Path, alias.status, alias.body)
		}
	}
}

// TestReportsOfEndsByEveryName: a job's token and an account's key each open the route and the alias that is theirs.
func TestReportsOfEndsByEveryName(t *testing.T) {
	e := open(t)
	const body = `{"status":"failed","error":"no disk"}`
	token := http.Header{"X-Job-Token": {jobToken}}
	for name, c := range map[string]struct {
		path   string
		key    string
		header http.Header
		status int
	}{
		"the route with a key":          {"/v1/jobs/{id}/complete", "", nil, http.StatusAccepted},
		"the route with a token":        {"/v1/jobs/{id}/complete", "-", token, http.StatusAccepted},
		"the route with nothing":        {"/v1/jobs/{id}/complete", "-", nil, http.StatusUnauthorized},
		"the route with a wrong token":  {"/v1/jobs/{id}/complete", "", http.Header{"X-Job-Token": {jobToken + "x"}}, http.StatusNotFound},
		"the account's alias":           {"/async-tools/{id}/complete", "", nil, http.StatusAccepted},
		"the account's alias, no key":   {"/async-tools/{id}/complete", "-", token, http.StatusUnauthorized},
		"the supervisor's alias":        {"/sandbox-jobs/{id}/complete", "-", token, http.StatusAccepted},
		"the supervisor's alias, a key": {"/sandbox-jobs/{id}/complete", "", nil, http.StatusBadRequest},
	} {
		j := e.job()
		path := strings.ReplaceAll(c.path, "{id}", string(j.ID))
		if a := e.do(ask{method: http.MethodPost, path: path, body: body, key: c.key, header: c.header}); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.body, c.status)
		}
	}
}

// TestTheGuideListsTheAliases compares the guide's table with what is served.
func TestTheGuideListsTheAliases(t *testing.T) {
	guide, err := os.ReadFile("../docs/guides/http.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, served []string
	for line := range strings.SplitSeq(string(guide), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `/") {
			continue
		}
		of, _, _ := strings.Cut(strings.TrimPrefix(cells[3], " `"), "`")
		for m := range strings.SplitSeq(cells[2], ",") {
			listed = append(listed, strings.Trim(m, " `")+" "+strings.Trim(cells[1], " `")+" "+of)
		}
	}
	for _, a := range gateway.AliasRows() {
		served = append(served, strings.ReplaceAll(a.Method+" "+a.Path+" "+a.Of, "...}", "}"))
	}
	slices.Sort(listed)
	slices.Sort(served)
	if !slices.Equal(listed, served) {
		t.Errorf("the guide lists\n%s\nserved are\n%s", strings.Join(listed, "\n"), strings.Join(served, "\n"))
	}
}
