package gateway_test

import (
	"net/http"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestTheReachOfAnAttachToken: calls are refused unless all that they refer to is within the token's reach. The same holds for
// repeats of a call that another client sent. A token without a reach sends what it always did.
func TestTheReachOfAnAttachToken(t *testing.T) {
	t.Parallel()
	e, _ := ticketed(t)
	if a := e.post("/v1/calls",
		`{"id":"made","conversation":"c_1","tool":"bash","input":{"command":"true"}}`); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	const bash = `"conversation":"c_1","tool":"bash","input":{"command":"true"}`
	for name, c := range map[string]struct{ reach, call, field string }{
		"none":                     {``, bash, ""},
		"the workspace":            {`,"workspaces":["ws_1","ws_2"]`, bash, ""},
		"another workspace":        {`,"workspaces":["ws_2"]`, bash, "request.workspace"},
		"the sandbox":              {`,"sandboxes":["sb_1"]`, bash, ""},
		"another sandbox":          {`,"sandboxes":["sb_2"]`, bash, "request.sandbox"},
		"the tool":                 {`,"tools":["read","bash"]`, bash, ""},
		"another tool":             {`,"tools":["read"]`, bash, "request.tool"},
		"no agent":                 {`,"agents":["agent_1"]`, bash, "request.agent"},
		"all of it":                {`,"workspaces":["ws_1"],"sandboxes":["sb_1"],"tools":["bash"]`, bash, ""},
		"a repeat within":          {`,"tools":["bash"]`, `"id":"made",` + bash, ""},
		"a repeat that is outside": {`,"tools":["read"]`, `"id":"made",` + bash, "request.tool"},
	} {
		t.Run(name, func(t *testing.T) {
			token := e.token(`{"conversations":["c_*"],"ops":["send"]` + c.reach + `}`)
			s, _, err := e.dial(asProtocol(token))
			if err != nil {
				t.Fatal(err)
			}
			s.write(`{"op":"send","id":1,"request":{` + c.call + `}}`)
			f := s.next()
			if c.field == "" && f.Op != "accepted" {
				t.Errorf("%+v, %v", f, f.Error)
			}
			if c.field != "" && (f.Error == nil || f.Error.Code != schemas.Denied || f.Error.Field != c.field || f.Call != "") {
				t.Errorf("%+v, %v; want it denied for %s", f, f.Error, c.field)
			}
			if a := e.do(ask{method: http.MethodPost, path: "/v1/calls", body: `{` + bash + `}`, key: token}); a.status != http.StatusForbidden {
				t.Errorf("over HTTP: %d %s", a.status, a.body)
			}
		})
	}
	for body, field := range map[string]string{
		`{"conversations":["c_1"],"workspaces":["ws_1"]}`:                   "workspaces", // without send
		`{"conversations":["c_1"],"ops":["send"],"workspaces":["default"]}`: "workspaces",
		`{"conversations":["c_1"],"ops":["send"],"sandboxes":["ws_1"]}`:     "sandboxes",
		`{"conversations":["c_1"],"ops":["send"],"agents":[""]}`:            "agents",
		`{"conversations":["c_1"],"ops":["send"],"tools":["rm"]}`:           "tools",
		`{"conversations":["c_1"],"ops":["send"],"tools":"bash"}`:           "tools",
	} {
		if a := e.post("/v1/attach-tokens", body); a.status != http.StatusBadRequest || a.problem(t).Field != field {
			t.Errorf("%s: %d %s, want invalid for %s", body, a.status, a.body, field)
		}
	}
}
