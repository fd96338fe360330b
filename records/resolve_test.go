package records

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
)

const (
	alice schemas.AccountID = "acct_alice"
	bob   schemas.AccountID = "acct_bob"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // a constant in all but syntax

// house is an index with two accounts: alice has a default workspace and sandbox, a workspace
// without a sandbox, and sandboxes of each permission mode; bob has a sandbox that is his.
func house() *index {
	x := newIndex(recordstest.Providers())
	for _, r := range []record{
		{Account: &schemas.Account{ID: alice, KeyHash: HashKey("alice's key")}},
		{Account: &schemas.Account{ID: bob, KeyHash: HashKey("bob's key")}},
		{Workspace: &schemas.Workspace{ID: "ws_1", Account: alice, Name: "default", Sandbox: "sb_1"}},
		{Workspace: &schemas.Workspace{ID: "ws_2", Account: alice, Name: "notes"}},
		{Sandbox: &schemas.Sandbox{
			ID: "sb_1", Account: alice, Name: "default", Provider: "local", PermissionMode: schemas.PermissionBypass,
			Timeout: schemas.Duration(30 * time.Second),
		}},
		{Sandbox: &schemas.Sandbox{ID: "sb_2", Account: alice, Name: "asks", Provider: "docker", PermissionMode: schemas.PermissionAsk}},
		{Sandbox: &schemas.Sandbox{ID: "sb_3", Account: alice, Name: "edits", Provider: "docker", PermissionMode: schemas.PermissionEdit}},
		{Sandbox: &schemas.Sandbox{ID: "sb_9", Account: bob, Name: "his", Provider: "local", PermissionMode: schemas.PermissionBypass}},
	} {
		x.put(r, stand{})
	}
	return x
}

func request(change func(*schemas.Request)) schemas.Request {
	r := schemas.Request{Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)}
	if change != nil {
		change(&r)
	}
	return r
}

func TestResolveFillsTheCall(t *testing.T) {
	c, err := resolve(house().tenants[alice], alice, request(nil), noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("a worker would refuse the call: %v", err)
	}
	if c.Provider != "local" || c.Workspace != "ws_1" || c.Sandbox != "sb_1" || c.Account != alice {
		t.Errorf("resolved to %s %s %s of %s", c.Provider, c.Workspace, c.Sandbox, c.Account)
	}
	if !c.Deadline.Equal(noon.Add(time.Hour)) || !c.Accepted.Equal(noon) || time.Duration(c.Timeout) != 30*time.Second {
		t.Errorf("times: accepted %s, deadline %s, timeout %s", c.Accepted, c.Deadline, time.Duration(c.Timeout))
	}
	if !strings.HasPrefix(string(c.ID), schemas.CallPrefix) || !strings.HasPrefix(string(c.Conversation), schemas.ConversationPrefix) {
		t.Errorf("made ids %q and %q", c.ID, c.Conversation)
	}
	group := &schemas.GroupRef{ID: "g", Size: 2}
	if c, err = resolve(house().tenants[alice], alice, request(func(r *schemas.Request) {
		r.Group, r.Input = group, json.RawMessage(`{"command":"true","background":true}`)
	}), noon); err != nil || c.Group != group {
		t.Errorf("the call's group is %v, %v", c.Group, err)
	}
}

func TestResolve(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*schemas.Request)
		code   schemas.Code
		field  string
		says   string
	}{
		"workspace by id":             {change: func(r *schemas.Request) { r.Workspace = "ws_1" }},
		"sandbox by name":             {change: func(r *schemas.Request) { r.Sandbox = "default" }},
		"deadline at the limit":       {change: func(r *schemas.Request) { r.Deadline = noon.Add(schemas.MaxDeadline) }},
		"unknown workspace":           {func(r *schemas.Request) { r.Workspace = "nope" }, schemas.NotFound, "workspace", "default or notes"},
		"unknown sandbox":             {func(r *schemas.Request) { r.Sandbox = "nope" }, schemas.NotFound, "sandbox", "asks, default or edits"},
		"another account's sandbox":   {func(r *schemas.Request) { r.Sandbox = "sb_9" }, schemas.NotFound, "sandbox", "asks, default or edits"},
		"another account's by name":   {func(r *schemas.Request) { r.Sandbox = "his" }, schemas.NotFound, "sandbox", "there is no sandbox his"},
		"workspace without a sandbox": {func(r *schemas.Request) { r.Workspace = "notes" }, schemas.Invalid, "sandbox", "name one"},
		"deadline in the past": {func(r *schemas.Request) { r.Deadline = noon.Add(-time.Second) },
			schemas.Invalid, "deadline", "has passed"},
		"deadline now":     {func(r *schemas.Request) { r.Deadline = noon }, schemas.Invalid, "deadline", "has passed"},
		"deadline too far": {func(r *schemas.Request) { r.Deadline = noon.Add(24 * time.Hour) }, schemas.Invalid, "deadline", "at most 23h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolve(house().tenants[alice], alice, request(tc.change), noon)
			if got := schemas.CodeOf(err); got != tc.code {
				t.Fatalf("code %q (%v), want %q", got, err, tc.code)
			}
			if err == nil {
				return
			}
			e, ok := errors.AsType[*schemas.Error](err)
			if !ok || e.Field != tc.field || !strings.Contains(e.Message, tc.says) {
				t.Errorf("%v: want field %q and the words %q", err, tc.field, tc.says)
			}
		})
	}
}

// What a model has written wrongly is in its call, and no person is asked about that.
func TestMisusesAreInTheCall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*schemas.Request)
		code   schemas.Code
		field  string
		says   string
	}{
		"input": {func(r *schemas.Request) { r.Input = json.RawMessage(`{"cmd":"true"}`) }, schemas.Invalid, "input.cmd", "command is missing"},
		"input, in a workspace that there is": {func(r *schemas.Request) { r.Input = json.RawMessage(`{"cmd":"true","workspace":"default"}`) },
			schemas.Invalid, "input.cmd", "command is missing"},
		"tool":      {func(r *schemas.Request) { r.Tool = "python" }, schemas.Invalid, "tool", "use one of bash"},
		"workspace": {func(r *schemas.Request) { r.Input = json.RawMessage(`{"command":"true","workspace":"nope"}`) }, schemas.NotFound, "input.workspace", "default or notes"},
		"a workspace without a sandbox": {func(r *schemas.Request) { r.Input = json.RawMessage(`{"command":"true","workspace":"notes"}`) },
			schemas.Invalid, "input.workspace", "name one"},
	} {
		for _, sandbox := range []string{"", "asks"} {
			if strings.Contains(name, "without a sandbox") && sandbox != "" {
				continue
			}
			c, err := resolve(house().tenants[alice], alice, request(func(r *schemas.Request) { r.Sandbox = sandbox; tc.change(r) }), noon)
			if err != nil || c.Misuse == nil || c.Misuse.Code != tc.code || c.Misuse.Field != tc.field || !strings.Contains(c.Misuse.Message, tc.says) {
				t.Errorf("%s, sandbox %q: %v, %v", name, sandbox, c.Misuse, err)
			}
			if err := c.Validate(); err != nil || c.Approval != "" || c.Refused != "" || c.Workspace != "ws_1" {
				t.Errorf("%s, sandbox %q: the call is %+v, %v", name, sandbox, c, err)
			}
		}
	}
	_, err := resolve(house().tenants[alice], alice, request(func(r *schemas.Request) {
		r.Input, r.Sandbox = json.RawMessage(`{"command":"true","workspace":"nope"}`), "nope"
	}), noon)
	if !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a sandbox that there is not, beside a workspace that there is not: %v", err)
	}
}

// Every mode with every tool.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestWhatNeedsAnApproval(t *testing.T) {
	reading := []schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolGrep, schemas.ToolLS, schemas.ToolAsyncStatus,
		schemas.ToolLoadSkill}
	writing := []schemas.Tool{schemas.ToolWrite, schemas.ToolEdit}
	for mode, asked := range map[schemas.PermissionMode][]schemas.Tool{
		schemas.PermissionAsk:    append([]schemas.Tool{schemas.ToolBash}, writing...),
		schemas.PermissionEdit:   {schemas.ToolBash},
		schemas.PermissionBypass: nil,
		"":                       append([]schemas.Tool{schemas.ToolBash}, writing...), // what is unknown is strict
		"later":                  append([]schemas.Tool{schemas.ToolBash}, writing...),
	} {
		for _, tool := range slices.Concat(reading, writing, []schemas.Tool{schemas.ToolBash}) {
			if got, want := asks(mode, tool), slices.Contains(asked, tool); got != want {
				t.Errorf("%s in mode %q asks: %v, want %v", tool, mode, got, want)
			}
		}
	}
}

func TestResolveNamesTheApproval(t *testing.T) {
	for sandbox, want := range map[string]bool{"asks": true, "edits": true, "default": false} {
		c, err := resolve(house().tenants[alice], alice, request(func(r *schemas.Request) { r.Sandbox = sandbox }), noon)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Approval.Validate() == nil; got != want || !want && c.Approval != "" {
			t.Errorf("bash in %s: approval %q", sandbox, c.Approval)
		}
	}
	// A refusal comes before any question to a person.
	c, err := resolve(house().tenants[alice], alice, request(func(r *schemas.Request) {
		r.Sandbox, r.Deadline = "asks", noon.Add(-time.Second)
	}), noon)
	if schemas.CodeOf(err) != schemas.Invalid || c.Approval != "" {
		t.Errorf("a call whose deadline has passed: approval %q, %v", c.Approval, err)
	}
}

func TestResolveBoundsTheTimeout(t *testing.T) {
	for _, tc := range []struct{ asked, sandbox, want time.Duration }{
		{0, 0, schemas.DefaultTimeout},
		{0, time.Minute, time.Minute},
		{5 * time.Second, time.Minute, 5 * time.Second},
		{2 * time.Minute, time.Minute, 2 * time.Minute},
		{0, time.Hour, schemas.MaxTimeout},
	} {
		got := timeout(schemas.Request{Timeout: schemas.Duration(tc.asked)}, schemas.Sandbox{Timeout: schemas.Duration(tc.sandbox)})
		if time.Duration(got) != tc.want {
			t.Errorf("asked %s, sandbox %s: %s, want %s", tc.asked, tc.sandbox, time.Duration(got), tc.want)
		}
	}
}

// TestACommandMayBringItsTimeout holds the timeout of a command's own input to the shorter of what was asked.
func TestACommandMayBringItsTimeout(t *testing.T) {
	for _, tc := range []struct {
		input string
		asked time.Duration
		want  time.Duration
	}{
		{`{"command":"true"}`, 0, time.Minute},
		{`{"command":"true","timeout":1500}`, 0, 1500 * time.Millisecond},
		{`{"command":"true","timeout":300000}`, 0, 5 * time.Minute},
		{`{"command":"true","timeout":300000}`, 2 * time.Minute, 2 * time.Minute},
		{`{"command":"true","timeout":1500}`, 2 * time.Minute, 1500 * time.Millisecond},
		{`{"command":"true","\u0074imeout":1500}`, 0, 1500 * time.Millisecond},
		{`{"command":"true","timeout":1500,"background":true}`, 0, time.Minute},
		{`{"command":"timeout 3 true"}`, 0, time.Minute},
	} {
		r := schemas.Request{Tool: schemas.ToolBash, Input: []byte(tc.input), Timeout: schemas.Duration(tc.asked)}
		if got := time.Duration(timeout(r, schemas.Sandbox{Timeout: schemas.Duration(time.Minute)})); got != tc.want {
			t.Errorf("%s, asked %s: %s, want %s", tc.input, tc.asked, got, tc.want)
		}
	}
}

//guarantee:tenants-are-isolated
func TestAuthenticate(t *testing.T) {
	x := house()
	if a, ok := x.authenticate(HashKey("alice's key"), time.Now()); !ok || a != alice {
		t.Errorf("alice's key: %q %v", a, ok)
	}
	for _, key := range []string{"", "alice", "alice's key ", HashKey("alice's key")} {
		if a, ok := x.authenticate(HashKey(key), time.Now()); ok {
			t.Errorf("key %q opens %q", key, a)
		}
	}
	x.put(record{Account: &schemas.Account{ID: alice, KeyHash: HashKey("another")}}, stand{})
	if _, ok := x.authenticate(HashKey("alice's key"), time.Now()); ok {
		t.Error("a replaced key still opens the account")
	}
	x.remove(accountKey(alice))
	if _, ok := x.authenticate(HashKey("another"), time.Now()); ok {
		t.Error("a removed account can still be opened")
	}
}

// TestIndexFollowsEveryOrderOfChanges compares the index with a plain map after random puts and
// removes: whatever is found by id or name is what was put last.
func TestIndexFollowsEveryOrderOfChanges(t *testing.T) {
	proptest.Check(t, func(t *rapid.T) {
		x, model := newIndex(recordstest.Providers()), map[string]schemas.Sandbox{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			s := schemas.Sandbox{
				ID:      schemas.SandboxID(rapid.SampledFrom([]string{"sb_1", "sb_2", "sb_3"}).Draw(t, "id")),
				Account: rapid.SampledFrom([]schemas.AccountID{alice, bob}).Draw(t, "account"),
				Name:    rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"),
			}
			key := sandboxKey(s.Account, s.ID)
			if rapid.Bool().Draw(t, "remove") {
				x.remove(key)
				delete(model, key)
				continue
			}
			x.put(record{Sandbox: &s}, stand{})
			model[key] = s
		}
		for _, a := range []schemas.AccountID{alice, bob} {
			for _, name := range []string{"x", "y"} {
				var want schemas.SandboxID
				for _, s := range model {
					if s.Account == a && s.Name == name && (want == "" || s.ID < want) {
						want = s.ID
					}
				}
				got, ok := x.tenant(a).sandboxes.find(name)
				if ok != (want != "") || got.ID != want {
					t.Fatalf("%s/%s: found %q %v, want %q", a, name, got.ID, ok, want)
				}
			}
		}
	})
}
