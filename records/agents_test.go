package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
)

// chosen is a sandbox that an entry names, none for "".
func chosen(id schemas.SandboxID) schemas.SandboxChoice {
	return schemas.SandboxChoice{Given: true, ID: id}
}

// entry is workspace ws_1 of [house] under a name.
func entry(name string, choice schemas.SandboxChoice) schemas.AgentWorkspace {
	return schemas.AgentWorkspace{Name: name, Workspace: "ws_1", Sandbox: choice}
}

// agentHouse is [house] with one agent of alice's.
func agentHouse(c schemas.AgentConfig) *tenant {
	x := house()
	c.Skills = []string{"pdf"}
	x.put(record{Skill: &schemas.Skill{ID: skillIDOf(alice, "pdf"), Account: alice, SkillManifest: schemas.SkillManifest{Name: "pdf"}}}, stand{})
	x.put(record{Agent: &schemas.Agent{ID: "agent_1", Account: alice, Name: "one", AgentConfig: c}}, stand{})
	return x.tenants[alice]
}

func callOf(tool schemas.Tool) schemas.Request {
	input := map[schemas.Tool]string{
		schemas.ToolBash: `{"command":"true"}`, schemas.ToolRead: `{"file_path":"a"}`, schemas.ToolWrite: `{"file_path":"a","content":"b"}`,
		schemas.ToolEdit: `{"file_path":"a","old_string":"b","new_string":"c"}`, schemas.ToolGlob: `{"pattern":"a"}`,
		schemas.ToolGrep: `{"pattern":"a"}`, schemas.ToolLS: `{}`, schemas.ToolLoadSkill: `{"name":"pdf"}`, schemas.ToolAsyncStatus: `{"statusId":"job_1"}`,
	}
	return schemas.Request{Agent: "agent_1", Tool: tool, Input: json.RawMessage(input[tool])}
}

const (
	readOnly    = "workspace is read-only"
	noSandbox   = "no sandbox available for this command"
	noWorkspace = "this agent has no workspace"
)

// TestTheCascade is every way in which an agent gets its sandbox, with every tool: where it is carried out, or why it is not. A refused
// call never asks a person.
func TestTheCascade(t *testing.T) {
	t.Parallel()
	all := map[schemas.Tool]string{}
	reads := map[schemas.Tool]string{
		schemas.ToolBash: noSandbox, schemas.ToolAsyncStatus: noSandbox,
		schemas.ToolWrite: readOnly, schemas.ToolEdit: readOnly, schemas.ToolGrep: readOnly, schemas.ToolLoadSkill: readOnly,
	}
	commands := map[schemas.Tool]string{
		schemas.ToolAsyncStatus: noWorkspace, schemas.ToolRead: noWorkspace, schemas.ToolGlob: noWorkspace, schemas.ToolLS: noWorkspace,
		schemas.ToolWrite: noWorkspace, schemas.ToolEdit: noWorkspace, schemas.ToolGrep: noWorkspace, schemas.ToolLoadSkill: noWorkspace,
	}
	nothing := maps.Clone(commands)
	nothing[schemas.ToolBash], nothing[schemas.ToolAsyncStatus] = noSandbox, noSandbox
	omitted := schemas.SandboxChoice{}
	for name, tc := range map[string]struct {
		config    schemas.AgentConfig
		workspace schemas.WorkspaceID
		sandbox   schemas.SandboxID
		provider  string
		refused   map[schemas.Tool]string
	}{
		"entry null, agent's": {schemas.AgentConfig{Sandbox: "sb_2", Workspaces: []schemas.AgentWorkspace{entry("w", chosen(""))}},
			"ws_1", "", "local", reads},
		"entry null, none": {schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("w", chosen(""))}},
			"ws_1", "", "local", reads},
		"entry id, agent's": {schemas.AgentConfig{Sandbox: "sb_1", Workspaces: []schemas.AgentWorkspace{entry("w", chosen("sb_2"))}},
			"ws_1", "sb_2", "docker", all},
		"entry id, none": {schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("w", chosen("sb_2"))}},
			"ws_1", "sb_2", "docker", all},
		"entry omitted, agent's": {schemas.AgentConfig{Sandbox: "sb_2", Workspaces: []schemas.AgentWorkspace{entry("w", omitted)}},
			"ws_1", "sb_2", "docker", all},
		"entry omitted, none":   {schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("w", omitted)}}, "ws_1", "", "local", reads},
		"no workspace, agent's": {schemas.AgentConfig{Sandbox: "sb_2"}, "", "sb_2", "docker", commands},
		"no workspace, none":    {schemas.AgentConfig{}, "", "", "local", nothing},
		"a workspace without one": {schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{{Name: "w", Workspace: "ws_2"}}},
			"ws_2", "", "local", reads},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			house := agentHouse(tc.config)
			for _, tool := range schemas.Tools() {
				c, err := resolve(house, alice, callOf(tool), noon)
				if err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				if c.Workspace != tc.workspace || c.Sandbox != tc.sandbox || c.Provider != tc.provider || c.Agent != "agent_1" {
					t.Errorf("%s goes to %q %q at %s", tool, c.Workspace, c.Sandbox, c.Provider)
				}
				if c.Refused != tc.refused[tool] {
					t.Errorf("%s is refused as %q, want %q", tool, c.Refused, tc.refused[tool])
				}
				if asked := c.Approval != ""; asked != (c.Refused == "" && c.Sandbox == "sb_2" && tool.SideEffects()) {
					t.Errorf("%s asks a person: %t", tool, asked)
				}
				if err := c.Validate(); err != nil {
					t.Errorf("%s: a worker would not take it: %v", tool, err)
				}
			}
		})
	}
}

// TestReadingIsDoneWhereTheFilesAre: the provider of the workspace's own sandbox holds them.
func TestReadingIsDoneWhereTheFilesAre(t *testing.T) {
	t.Parallel()
	house := agentHouse(schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{{Name: "w", Workspace: "ws_3"}}})
	house.workspaces.put("ws_3", schemas.Workspace{ID: "ws_3", Account: alice, Name: "far", Sandbox: "sb_2"}, stand{}, workspaceName)
	c, err := resolve(house, alice, callOf(schemas.ToolRead), noon)
	if err != nil || c.Provider != "docker" || c.Sandbox != "" {
		t.Errorf("%s %q, %v", c.Provider, c.Sandbox, err)
	}
}

// TestFilesOnS3AreReadDirectly where an agent says null as sandbox, and not where it leaves the sandbox out.
func TestFilesOnS3AreReadDirectly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		choice  schemas.SandboxChoice
		storage string
		want    bool
	}{
		"null":         {chosen(""), "s3", true},
		"omitted":      {schemas.SandboxChoice{}, "s3", false},
		"not there":    {chosen(""), "", false},
		"in a sandbox": {chosen("sb_1"), "s3", false},
	} {
		e := schemas.AgentWorkspace{Name: "w", Workspace: "ws_3", Sandbox: tc.choice}
		house := agentHouse(schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{e}})
		house.workspaces.put("ws_3", schemas.Workspace{ID: "ws_3", Account: alice, Name: "far", Storage: tc.storage}, stand{}, workspaceName)
		house.sandboxes.byID["sb_1"] = schemas.Sandbox{ID: "sb_1", Account: alice, Name: "box", Provider: "lambda"}
		c, err := resolve(house, alice, callOf(schemas.ToolRead), noon)
		if err != nil || c.Direct != tc.want {
			t.Errorf("%s: direct %t, want %t: %v", name, c.Direct, tc.want, err)
		}
	}
}

// TestAgentsChoose: which workspace a call of an agent hits, and with it the mode that asks.
func TestAgentsChoose(t *testing.T) {
	t.Parallel()
	off := false
	house := agentHouse(schemas.AgentConfig{
		Sandbox: "sb_1",
		Workspaces: []schemas.AgentWorkspace{
			entry("main", schemas.SandboxChoice{}), {Name: "notes", Workspace: "ws_2", Sandbox: chosen("sb_2")}, entry("look", chosen("")),
		},
		Tools: map[schemas.Tool]schemas.ToolConfig{
			schemas.ToolGlob: {Enabled: &off, NeedsApproval: true}, schemas.ToolRead: {NeedsApproval: true},
			schemas.ToolWrite: {NeedsApproval: true},
		},
	})
	for name, tc := range map[string]struct {
		tool               schemas.Tool
		workspace, sandbox string
		argument           string
		is                 schemas.WorkspaceID
		refused            string
		misuse             string
		asks               bool
		code               schemas.Code
		says               string
	}{
		"the first by default":   {tool: schemas.ToolBash, is: "ws_1"},
		"by name, with its mode": {tool: schemas.ToolBash, workspace: "notes", is: "ws_2", asks: true},
		"by id":                  {tool: schemas.ToolBash, workspace: "ws_2", is: "ws_2", asks: true},
		"by argument":            {tool: schemas.ToolBash, argument: "notes", is: "ws_2", asks: true},
		"by both":                {tool: schemas.ToolBash, workspace: "notes", argument: "notes", is: "ws_2", asks: true},
		"by both, which differ": {tool: schemas.ToolBash, workspace: "main", argument: "notes",
			code: schemas.Invalid, says: "input.workspace"},
		"the account's, not the agent's": {tool: schemas.ToolBash, workspace: "default", code: schemas.Invalid, says: "main, notes, look"},
		"unknown":                        {tool: schemas.ToolBash, workspace: "nope", code: schemas.Invalid, says: "main, notes, look"},
		"unknown, by argument":           {tool: schemas.ToolBash, argument: "nope", is: "ws_1", misuse: "main, notes, look"},
		"read only":                      {tool: schemas.ToolWrite, workspace: "look", is: "ws_1", refused: readOnly},
		"its own sandbox, named":         {tool: schemas.ToolBash, sandbox: "default", is: "ws_1"},
		"its own sandbox, by id":         {tool: schemas.ToolBash, sandbox: "sb_1", is: "ws_1"},
		"another sandbox":                {tool: schemas.ToolBash, sandbox: "edits", code: schemas.Denied, says: "leave it out"},
		"a sandbox where there is none": {tool: schemas.ToolRead, workspace: "look", sandbox: "sb_1",
			code: schemas.Denied, says: "leave it out"},
		"switched off":                     {tool: schemas.ToolGlob, is: "ws_1", refused: "the tool glob is not enabled for this agent"},
		"a question more":                  {tool: schemas.ToolWrite, is: "ws_1", asks: true},
		"a question more for reading":      {tool: schemas.ToolRead, workspace: "look", is: "ws_1", asks: true},
		"no question for what is refused":  {tool: schemas.ToolWrite, argument: "look", is: "ws_1", refused: readOnly},
		"no question where the mode is so": {tool: schemas.ToolEdit, is: "ws_1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := callOf(tc.tool)
			plain := string(r.Input)
			r.Workspace, r.Sandbox = tc.workspace, tc.sandbox
			if tc.argument != "" {
				r.Input = json.RawMessage(strings.Replace(plain, "{", `{"workspace":"`+tc.argument+`",`, 1))
			}
			err := r.Validate()
			var c schemas.Call
			if err == nil {
				c, err = resolve(house, alice, r, noon)
			}
			if schemas.CodeOf(err) != tc.code {
				t.Fatalf("%v, want %q", err, tc.code)
			}
			if err != nil {
				if !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%v does not say %q", err, tc.says)
				}
				return
			}
			if (c.Misuse != nil) != (tc.misuse != "") || c.Misuse != nil && !strings.Contains(c.Misuse.Message, tc.misuse) {
				t.Errorf("the misuse is %v, want %q", c.Misuse, tc.misuse)
			}
			if c.Workspace != tc.is || c.Refused != tc.refused || (c.Approval != "") != tc.asks || string(c.Input) != plain {
				t.Errorf("%s refused %q, asks %t, input %s", c.Workspace, c.Refused, c.Approval != "", c.Input)
			}
		})
	}
}

func TestTheArgumentIsForEverybody(t *testing.T) {
	t.Parallel()
	r := request(func(r *schemas.Request) {
		r.Input = json.RawMessage(`{"command":"true","workspace":"notes"}`)
		r.Sandbox = "asks"
	})
	c, err := resolve(house().tenants[alice], alice, r, noon)
	if err != nil || c.Workspace != "ws_2" || string(c.Input) != `{"command":"true"}` {
		t.Errorf("%s with %s, %v", c.Workspace, c.Input, err)
	}
}

// TestACallOfALostAgentFails: the agent is unknown, or what it names is gone.
func TestACallOfALostAgentFails(t *testing.T) {
	t.Parallel()
	r := callOf(schemas.ToolRead)
	for name, tc := range map[string]struct {
		agent  schemas.AgentID
		config schemas.AgentConfig
		says   string
	}{
		"no such agent": {"agent_2", schemas.AgentConfig{}, "there is no agent agent_2: use one"},
		"workspace gone": {"agent_1", schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{{Name: "w", Workspace: "ws_9"}}},
			"one: config.workspaces[0].workspaceId: there is no workspace ws_9"},
		"sandbox gone":      {"agent_1", schemas.AgentConfig{Sandbox: "sb_8"}, "one: config.sandbox: there is no sandbox sb_8"},
		"another's sandbox": {"agent_1", schemas.AgentConfig{Sandbox: "sb_9"}, "one: config.sandbox: there is no sandbox sb_9"},
		"entry's sandbox gone": {"agent_1", schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("w", chosen("sb_8"))}},
			"config.workspaces[0].sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := r
			r.Agent = tc.agent
			_, err := resolve(agentHouse(tc.config), alice, r, noon)
			e, ok := errors.AsType[*schemas.Error](err)
			if !ok || e.Code != schemas.NotFound || e.Field != "agent" || !strings.Contains(e.Message, tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

func TestBackgroundNeedsAWorkspace(t *testing.T) {
	t.Parallel()
	r := callOf(schemas.ToolBash)
	r.Input = json.RawMessage(`{"command":"true","background":true}`)
	c, err := resolve(agentHouse(schemas.AgentConfig{Sandbox: "sb_2"}), alice, r, noon)
	if err != nil || !strings.Contains(c.Refused, "foreground") || c.Approval != "" {
		t.Errorf("refused %q, %v", c.Refused, err)
	}
}

// built makes an agent's record of JSON, as a POST does, and checks it against alice's records.
func built(t *testing.T, sent string) (record, error) {
	t.Helper()
	col := agentCollection()
	r, err := col.change(col.fresh(alice, "agent_1", noon), nil, []byte(sent), noon)
	if err != nil {
		return r, err
	}
	return r, col.fits(house().tenants[alice], r)
}

func TestAgentsAreChecked(t *testing.T) {
	t.Parallel()
	many := make([]string, schemas.MaxAgentWorkspaces+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name":"n%d","workspaceId":"ws_1"}`, i)
	}
	for sent, want := range map[string]string{ // field and words; "" is fine
		`{"name":"a"}`: "",
		`{"name":"a","config":{"sandbox":"sb_1","workspaces":[{"name":"x","workspaceId":"ws_1"},{"name":"y","workspaceId":"ws_1","sandbox":null}]}}`: "",
		`{"name":"a","config":{"tools":{"bash":{"enabled":false},"read":{"needsApproval":true}}}}`:                                                   "",
		`{"name":"a","config":{"workspaces":[` + strings.Join(many[1:], ",") +
			`]}}`: "",
		`{}`:                                       "name: is missing",
		`{"name":"agent_x"}`:                       "name: ",
		`{"name":"a","config":{"sandbx":1}}`:       `config.sandbx: is not a known field: use "sandbox"`,
		`{"name":"a","config":{"sandbox":"x"}}`:    "config.sandbox: ",
		`{"name":"a","config":{"sandbox":"sb_8"}}`: "config.sandbox: there is no sandbox sb_8: use asks, default or edits",
		`{"name":"a","config":{"sandbox":"sb_9"}}`: "config.sandbox: there is no sandbox sb_9: use asks, default or edits",
		`{"name":"a","config":{"workspaces":[` + strings.Join(many, ",") +
			`]}}`: "config.workspaces: has 33 entries: at most 32",
		`{"name":"a","config":{"workspaces":[{"workspaceId":"ws_1"}]}}`:                                              "config.workspaces[0].name: is missing",
		`{"name":"a","config":{"workspaces":[{"name":"x"}]}}`:                                                        "config.workspaces[0].workspaceId: ",
		`{"name":"a","config":{"workspaces":[{"name":"x","workspaceId":"ws_8"}]}}`:                                   "config.workspaces[0].workspaceId: there is no workspace ws_8: use default or notes",
		`{"name":"a","config":{"workspaces":[{"name":"x","workspaceId":"ws_1"},{"name":"x","workspaceId":"ws_2"}]}}`: "config.workspaces[1].name: ",
		`{"name":"a","config":{"workspaces":[{"name":"x","workspaceId":"ws_1","sandbox":"sb_8"}]}}`:                  "config.workspaces[0].sandbox: there is no sandbox sb_8",
		`{"name":"a","config":{"workspaces":[{"name":"x","workspaceId":"ws_1","sandbox":"x"}]}}`:                     "must be the id of a sandbox, or null",
		`{"name":"a","config":{"workspaces":[{"name":"x","workspaceId":"ws_1","sandbox":1}]}}`:                       "must be the id of a sandbox, or null",
		`{"name":"a","config":{"tools":{"grpe":{}}}}`:                                                                "config.tools.grpe: ",
		`{"name":"a","config":{"tools":{"bash":{"enable":true}}}}`:                                                   `config.tools.bash.enable: is not a known field: use "enabled"`,
	} {
		_, err := built(t, sent)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", sent, err)
		case want != "" && (schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", sent, err, want)
		}
	}
}

// TestThreeWaysSurviveAPatch: what is left out, null and an id are three things, through every change.
func TestThreeWaysSurviveAPatch(t *testing.T) {
	t.Parallel()
	r, err := built(t, `{"name":"a","config":{"workspaces":[
		{"name":"inherits","workspaceId":"ws_1"},{"name":"none","workspaceId":"ws_1","sandbox":null},{"name":"own","workspaceId":"ws_1","sandbox":"sb_2"}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []schemas.SandboxChoice{{}, chosen(""), chosen("sb_2")}
	col := agentCollection()
	for _, patch := range []string{`{}`, `{"description":"x"}`, `{"config":{"sandbox":"sb_1"}}`,
		`{"config":{"tools":{"bash":{"enabled":false}}}}`, `{"config":{"tools":null}}`} {
		spec, err := json.Marshal(col.spec(normal(t, r))) // as it comes from the log
		if err != nil {
			t.Fatal(err)
		}
		if r, err = col.change(r, spec, []byte(patch), noon); err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		got := make([]schemas.SandboxChoice, 0, len(want))
		for _, e := range r.Agent.Workspaces {
			got = append(got, e.Sandbox)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after %s: %v", patch, got)
		}
	}
	shown, err := json.Marshal(col.document(r))
	if err != nil || !strings.Contains(string(shown),
		`{"name":"inherits","workspaceId":"ws_1"},{"name":"none","workspaceId":"ws_1","sandbox":null}`) {
		t.Errorf("%s, %v", shown, err)
	}
}

// TestFilesOnS3NeedASandboxThatReachesThem, but where they are only read.
func TestFilesOnS3NeedASandboxThatReachesThem(t *testing.T) {
	t.Parallel()
	house := agentHouse(schemas.AgentConfig{Sandbox: "sb_4"})
	add := func(w schemas.Workspace) {
		w.Account, w.Storage = alice, "s3"
		house.workspaces.put(w.ID, w, stand{}, workspaceName)
	}
	add(schemas.Workspace{ID: "ws_a", Name: "a"})
	add(schemas.Workspace{ID: "ws_b", Name: "b", Sandbox: "sb_4"})
	house.sandboxes.put("sb_4", schemas.Sandbox{ID: "sb_4", Account: alice, Name: "l", Provider: "lambda"}, stand{}, sandboxName)
	for name, tc := range map[string]struct {
		sandbox schemas.SandboxID
		entry   schemas.AgentWorkspace
		fine    bool
	}{
		"in a sandbox that does":      {"", schemas.AgentWorkspace{Name: "w", Workspace: "ws_a", Sandbox: chosen("sb_4")}, true},
		"in one that does not":        {"", schemas.AgentWorkspace{Name: "w", Workspace: "ws_a", Sandbox: chosen("sb_1")}, false},
		"inherited":                   {"sb_4", schemas.AgentWorkspace{Name: "w", Workspace: "ws_a"}, true},
		"inherited, and does not":     {"sb_1", schemas.AgentWorkspace{Name: "w", Workspace: "ws_a"}, false},
		"read, nobody holds them":     {"", schemas.AgentWorkspace{Name: "w", Workspace: "ws_a", Sandbox: chosen("")}, true}, // where they are
		"read, its own sandbox holds": {"", schemas.AgentWorkspace{Name: "w", Workspace: "ws_b", Sandbox: chosen("")}, true},
	} {
		err := house.checkPlacements(schemas.Agent{AgentConfig: schemas.AgentConfig{Sandbox: tc.sandbox,
			Workspaces: []schemas.AgentWorkspace{tc.entry}}})
		if tc.fine != (err == nil) || err != nil && fieldOf(t, err) != "config.workspaces[0]" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nor may the records change so under an agent that uses them.
	house.workspaces.remove("ws_b", workspaceName)
	g := schemas.Agent{ID: "agent_2", Account: alice, Name: "two", AgentConfig: schemas.AgentConfig{
		Workspaces: []schemas.AgentWorkspace{{Name: "w", Workspace: "ws_a", Sandbox: chosen("sb_4")}},
	}}
	house.agents.put(g.ID, g, stand{}, agentName)
	changed := house.sandboxes.byID["sb_4"]
	changed.Provider = "local"
	if err := sandboxCollection(recordstest.Providers()).fits(house, record{Sandbox: &changed}); !errors.Is(err, schemas.ErrConflict) ||
		!strings.Contains(err.Error(), "agent two") {
		t.Errorf("the sandbox may change: %v", err)
	}
	moved := schemas.Workspace{ID: "ws_1", Account: alice, Name: "default", Storage: "s3"}
	g.Workspaces = []schemas.AgentWorkspace{entry("w", chosen("sb_1"))}
	house.agents.put(g.ID, g, stand{}, agentName)
	if err := workspaceCollection().fits(house, record{Workspace: &moved}); !errors.Is(err, schemas.ErrConflict) ||
		!strings.Contains(err.Error(), "agent two") {
		t.Errorf("the workspace may change: %v", err)
	}
	if house.workspaces.byID["ws_1"].Storage != "" || house.sandboxes.byID["sb_4"].Provider != "lambda" {
		t.Error("checking has changed the records")
	}
}

// FuzzAgentFromOutside: whatever is sent makes a record that its own spec makes again, or a coded error.
func FuzzAgentFromOutside(f *testing.F) {
	f.Add([]byte(`{"name":"a"}`))
	f.Add([]byte(`{"name":"a","config":{"sandbox":"sb_1","workspaces":[{"name":"w","workspaceId":"ws_1","sandbox":null}]}}`))
	f.Add([]byte(`{"name":"a","config":{"tools":{"bash":{"enabled":false,"needsApproval":true}}}}`))
	f.Fuzz(func(t *testing.T, sent []byte) {
		col := agentCollection()
		now := time.Unix(1, 0)
		r, err := col.change(col.fresh("acct_1", "agent_1", now), nil, sent, now)
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		spec, err := json.Marshal(col.spec(r))
		if err != nil {
			t.Fatal(err)
		}
		again, err := col.change(r, spec, []byte(`{}`), now)
		if err != nil || !reflect.DeepEqual(normal(t, again), normal(t, r)) {
			t.Errorf("%s made %+v, and that %+v, %v", sent, r.Agent, again.Agent, err)
		}
	})
}

// TestAnAgentWithoutSkillsLoadsNone: a call without an agent reaches those of the account.
func TestAnAgentWithoutSkillsLoadsNone(t *testing.T) {
	t.Parallel()
	x := agentHouse(schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("w", chosen("sb_1"))}})
	g := x.agents.byID["agent_1"]
	g.Skills = nil
	x.agents.put("agent_1", g, stand{}, agentName)
	for agent, want := range map[schemas.AgentID]string{"agent_1": "this agent has no skills", "": ""} {
		r := callOf(schemas.ToolLoadSkill)
		r.Agent = agent
		if c, err := resolve(x, alice, r, noon); err != nil || c.Refused != want {
			t.Errorf("agent %q: %q, %v", agent, c.Refused, err)
		}
	}
}
