package records_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
)

// manifest reads the resources of a manifest of the project p.
func manifest(t *testing.T, resources ...string) schemas.Manifest {
	t.Helper()
	m, err := schemas.DecodeManifest([]byte(`{"version": 1, "project": "p", "resources": [` + strings.Join(resources, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	boxB  = `{"kind": "sandbox", "name": "b", "config": {"permissionMode": "bypass", "envVars": {"X": "1"}}}`
	workW = `{"kind": "workspace", "name": "w", "config": {"sandbox": "b"}}`
	agent = `{"kind": "agent", "name": "g", "config": {"sandbox": "b", "workspaces": [{"workspace": "w"}, {"name": "r", "workspace": "w", "sandbox": null}]}}`
)

// existing is what there is after the manifest was applied to nothing.
func existing(t *testing.T, m schemas.Manifest) records.Present {
	t.Helper()
	have := records.Present{Account: "acct_a", Providers: recordstest.Providers()}
	after, err := records.Applied(have, m, false)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// said is a plan in short words.
func said(a schemas.ManifestAnswer) string {
	var out []string
	for _, c := range a.Changes {
		words := []string{string(c.Action), string(c.Kind), c.Name}
		if c.From != "" {
			words = append(words, "from "+c.From)
		}
		if c.Adopted {
			words = append(words, "adopted")
		}
		for _, f := range c.Fields {
			words = append(words, fmt.Sprintf("%s:%s>%s", f.Path, f.From, f.To))
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, "\n")
}

func TestPlanSaysWhatHasToChange(t *testing.T) {
	t.Parallel()
	byHand := func(p records.Present) records.Present {
		for i := range p.Sandboxes {
			p.Sandboxes[i].Manifest = ""
		}
		return p
	}
	for name, test := range map[string]struct {
		have  records.Present
		want  []string // resources
		prune bool
		says  string
	}{
		"of nothing all is made, in the order of the references": {
			have: records.Present{Account: "acct_a", Providers: recordstest.Providers()}, want: []string{agent, workW, boxB},
			says: "create sandbox b\ncreate workspace w\ncreate agent g",
		},
		"applied twice it changes nothing": {
			have: existing(t, manifest(t, boxB, workW, agent)), want: []string{boxB, workW, agent},
			says: "none sandbox b\nnone workspace w\nnone agent g",
		},
		"defaults that are said change nothing": {
			have: existing(t, manifest(t, boxB)),
			want: []string{`{"kind": "sandbox", "name": "b", "config": {"provider": "local", "network": {"mode": "deny-all", "allowDomains": []}, "timeout": 30, "permissionMode": "bypass", "envVars": {"X": "1"}}}`},
			says: "none sandbox b",
		},
		"a changed field is told, a secret is not": {
			have: existing(t, manifest(t, boxB)),
			want: []string{`{"kind": "sandbox", "name": "b", "description": "d", "config": {"permissionMode": "ask", "timeout": 60, "envVars": {"X": "2", "Y": "env:Z"}}}`},
			says: `update sandbox b config.envVars.X:"********">"********" config.envVars.Y:>"env:Z" config.permissionMode:"bypass">"ask" config.timeout:30>60 description:>"d"`,
		},
		"a mask keeps the value": {
			have: existing(t, manifest(t, boxB)), want: []string{strings.Replace(boxB, `"1"`, `"********"`, 1)}, says: "none sandbox b",
		},
		"another name is a rename, and those who name it change nothing": {
			have: existing(t, manifest(t, boxB, workW, agent)),
			want: []string{strings.Replace(boxB, `"b"`, `"c"`, 1), strings.Replace(workW, `"b"`, `"c"`, 1), strings.Replace(agent, `"b"`, `"c"`, 1)},
			says: "rename sandbox c from b\nnone workspace w\nnone agent g",
		},
		"a rename may bring another description": {
			have: existing(t, manifest(t, workW, boxB)),
			want: []string{boxB, `{"kind": "workspace", "name": "v", "description": "d", "config": {"sandbox": "b"}}`},
			says: "none sandbox b\nrename workspace v from w description:>\"d\"",
		},
		"with another value of a variable it is no rename": {
			have:  existing(t, manifest(t, boxB)),
			want:  []string{`{"kind": "sandbox", "name": "c", "config": {"permissionMode": "bypass", "envVars": {"X": "2"}}}`},
			prune: true, says: "create sandbox c\ndelete sandbox b",
		},
		"two that could be meant are not confused": {
			have:  existing(t, manifest(t, `{"kind": "workspace", "name": "v"}`, `{"kind": "workspace", "name": "w"}`)),
			want:  []string{`{"kind": "workspace", "name": "x"}`},
			prune: true, says: "create workspace x\ndelete workspace v\ndelete workspace w",
		},
		"prune deletes in the other order": {
			have: existing(t, manifest(t, boxB, workW, agent)), prune: true, says: "delete agent g\ndelete workspace w\ndelete sandbox b",
		},
		"without prune all stays": {
			have: existing(t, manifest(t, boxB, workW, agent)),
		},
		"what was made by hand is adopted": {
			have: byHand(existing(t, manifest(t, boxB))), want: []string{boxB}, says: "update sandbox b adopted",
		},
		"what was made by hand is not pruned, and may be named": {
			have: byHand(existing(t, manifest(t, boxB))), want: []string{workW}, prune: true, says: "create workspace w",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manifest(t, test.want...)
			answer, err := records.Plan(test.have, m, test.prune)
			if err != nil {
				t.Fatal(err)
			}
			if got := said(answer); got != test.says {
				t.Errorf("it says\n%s\nnot\n%s", got, test.says)
			}
			after, err := records.Applied(test.have, m, test.prune)
			if err != nil {
				t.Fatal(err)
			}
			again, err := records.Plan(after, m, test.prune)
			if err != nil || again.Differs() {
				t.Errorf("once more it says %v, %v", said(again), err)
			}
		})
	}
}

func TestPlanSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	foreign := existing(t, manifest(t, boxB))
	foreign.Sandboxes[0].Manifest = "q"
	for name, test := range map[string]struct {
		have records.Present
		want []string
		code schemas.Code
		says []string
	}{
		"what is not there": {
			want: []string{boxB, strings.Replace(workW, `"b"`, `"bb"`, 1), strings.ReplaceAll(agent, `"w"`, `"x"`)},
			code: schemas.Invalid,
			says: []string{
				`resources[1].config.sandbox: there is no sandbox "bb": use "b"`,
				`resources[2].config.workspaces[0].workspace: there is no workspace "x"`,
				`resources[2].config.workspaces[1].workspace`,
			},
		},
		"what a provider does not keep": {
			want: []string{`{"kind": "sandbox", "name": "s", "config": {"provider": "e2b"}}`, `{"kind": "sandbox", "name": "sb_1"}`},
			code: schemas.Invalid, says: []string{"resources[0].config.network.mode", "resources[1].name"},
		},
		"what would not fit together": {
			want: []string{`{"kind": "workspace", "name": "w", "config": {"sandbox": "b", "storage": {"provider": "s3"}}}`, boxB},
			code: schemas.Invalid, says: []string{"resources[0].config.storage.provider", "the provider local does not reach files on s3"},
		},
		"what is another project's": {have: foreign, want: []string{boxB, workW}, code: schemas.Conflict,
			says: []string{"resources[0].name", "project q"}},
		"a mask of nothing": {
			want: []string{`{"kind": "sandbox", "name": "s", "config": {"envVars": {"X": "********"}}}`},
			code: schemas.Invalid, says: []string{"resources[0].config.envVars.X"},
		},
		"a variable without a name": {
			want: []string{`{"kind": "sandbox", "name": "s", "config": {"envVars": {"X": "env:a b"}}}`},
			code: schemas.Invalid, says: []string{"resources[0].config.envVars.X", "begins with env:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.have.Account == "" {
				test.have.Account = "acct_a"
			}
			test.have.Providers = recordstest.Providers()
			_, err := records.Plan(test.have, manifest(t, test.want...), true)
			if schemas.CodeOf(err) != test.code {
				t.Fatal(err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// What was applied is what stands: whatever was there before, the same plan is empty then.
//
//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func TestAppliedManifestsLeaveNothingToPlan(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(r *rapid.T) {
		have := records.Present{Account: "acct_a", Providers: recordstest.Providers()}
		for range rapid.IntRange(1, 4).Draw(r, "manifests") {
			m, prune := drawManifest(r), rapid.Bool().Draw(r, "prune")
			answer, err := records.Plan(have, m, prune)
			if err != nil {
				r.Fatal(err)
			}
			ids := map[string]bool{}
			for _, c := range answer.Changes {
				if ids[c.ID] {
					r.Fatalf("two changes of %s:\n%s", c.ID, said(answer))
				}
				ids[c.ID] = true
			}
			if have, err = records.Applied(have, m, prune); err != nil {
				r.Fatal(err)
			}
			again, err := records.Plan(have, m, prune)
			if err != nil || again.Differs() {
				r.Fatalf("%v\n%s", err, said(again))
			}
			if n := len(have.Sandboxes) + len(have.Workspaces) + len(have.Agents); prune && n != len(m.Resources) {
				r.Fatalf("%d records of %d resources", n, len(m.Resources))
			}
		}
	})
}

func drawManifest(r *rapid.T) schemas.Manifest {
	m := schemas.Manifest{Version: 1, Project: "p"}
	add := func(kind schemas.ResourceKind, name string, config any) {
		b, err := json.Marshal(config)
		if err != nil {
			r.Fatal(err)
		}
		m.Resources = append(m.Resources, schemas.Resource{Kind: kind, Name: name, Config: b})
	}
	names := func(label string) []string {
		return slices.Sorted(maps.Keys(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.Just(0), 0, 3).Draw(r, label)))
	}
	pick := func(of []string, label string) string {
		return rapid.SampledFrom(append([]string{""}, of...)).Draw(r, label)
	}
	sandboxes, workspaces := names("sandboxes"), names("workspaces")
	for _, n := range sandboxes {
		add(schemas.KindSandbox, n, schemas.SandboxConfig{Timeout: rapid.Int64Range(0, 2).Draw(r, "timeout"),
			EnvVars: map[string]string{"X": pick([]string{"1", "env:Y"}, "x")}})
	}
	for _, n := range workspaces {
		add(schemas.KindWorkspace, n, schemas.ManifestWorkspace{Sandbox: pick(sandboxes, "sandbox")})
	}
	for _, n := range names("agents") {
		c := schemas.ManifestAgent{Sandbox: pick(sandboxes, "sandbox")}
		for _, w := range workspaces {
			v := schemas.ManifestView{Workspace: w}
			if rapid.Bool().Draw(r, "given") {
				v.Sandbox = schemas.NameChoice{Given: true, Name: pick(sandboxes, "own")}
			}
			c.Workspaces = append(c.Workspaces, v)
		}
		add(schemas.KindAgent, n, c)
	}
	if len(m.Resources) > 0 {
		m.Resources = rapid.Permutation(m.Resources).Draw(r, "order")
	}
	return m
}

// TestEverythingThatIsWrongIsReportedAtOnce: mistakes of form, of type, of what a provider keeps, of what the account has and
// of what the operator allows are in one list, each with its field, and no mistake makes another one up.
func TestEverythingThatIsWrongIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	have := records.Present{Account: "acct_a", Providers: recordstest.Providers(),
		Operator: records.Operator{Networks: []schemas.NetworkMode{schemas.DenyAll}}}
	m, err := schemas.ReadManifest([]byte(`{"version": 1, "project": "p", "resources": [
		{"kind": "sandbox", "name": "s", "config": {"permissionMode": "bypas", "timeout": 99999, "network": {"mode": "deny"}, "memry": 5,
			"envVars": {"A": 1, "1B": "x"}}},
		{"kind": "workspace", "name": "w", "config": {"sandbox": "s"}},
		{"kind": "workspace", "name": "v", "config": {"sandbox": "ss"}, "label": "x"},
		{"kind": "agent", "name": "g", "config": {"workspaces": [{"workspace": "w"}, {"workspace": "w", "sandbox": 5}],
			"tools": {"bsh": {"enabled": false}, "read": {"enabled": "yes"}}}},
		{"kind": "sandbox", "name": "wide", "config": {"network": {"mode": "allow-all"}}},
		{"kind": "agent", "name": "fine", "config": {"workspaces": [{"workspace": "w", "sandbox": "s"}]}}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = records.Plan(have, m, false)
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok || e.Code != schemas.Invalid {
		t.Fatal(err)
	}
	var fields []string
	for _, each := range e.Errors {
		fields = append(fields, each.Field)
		if each.Message == "" || !strings.Contains(e.Message, each.Error()) {
			t.Errorf("the message does not have %q", each)
		}
	}
	slices.Sort(fields)
	want := []string{
		"resources[0].config.envVars", "resources[0].config.envVars.A", "resources[0].config.memry", "resources[0].config.network.mode",
		"resources[0].config.permissionMode", "resources[0].config.timeout", "resources[2].config.sandbox", "resources[2].label",
		"resources[3].config.tools.bsh", "resources[3].config.tools.read.enabled", "resources[3].config.workspaces[1].name",
		"resources[3].config.workspaces[1].sandbox", "resources[4].config.network.mode",
	}
	if !slices.Equal(fields, want) {
		t.Errorf("it reports\n%s\nnot\n%s", strings.Join(fields, "\n"), strings.Join(want, "\n"))
	}
}
