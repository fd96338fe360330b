package records_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const manifested = schemas.AccountID("acct_a")

// apply applies, and wants it to succeed.
func apply(t *testing.T, s *records.Store, m schemas.Manifest, prune bool) schemas.ManifestAnswer {
	t.Helper()
	answer, err := s.Manifests.Apply(t.Context(), manifested, schemas.ManifestRequest{Manifest: m, Prune: prune})
	if err != nil {
		t.Fatal(err)
	}
	if !answer.Applied {
		t.Error("it does not say that it was applied")
	}
	return answer
}

// kept lists the names of what the bucket has, which is what another process would find.
func kept(t *testing.T, b *streams.Bus) []string {
	t.Helper()
	s := open(t, b)
	var names []string
	for _, c := range []schemas.Collection{schemas.Sandboxes, schemas.Workspaces, schemas.Agents} {
		list, err := s.Documents.List(t.Context(), manifested, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			var v struct {
				Name string `json:"name"`
			}
			if err := json.Unmarshal(d.JSON, &v); err != nil {
				t.Fatal(err)
			}
			names = append(names, string(c)+"/"+v.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestAManifestIsAppliedAndStands(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	m := manifest(t, agent, workW, boxB)
	dry, err := s.Manifests.Apply(t.Context(), manifested, schemas.ManifestRequest{Manifest: m, DryRun: true})
	if err != nil || dry.Applied || len(kept(t, b)) != 0 {
		t.Fatalf("a dry run left %v, %v", kept(t, b), err)
	}
	first := apply(t, s, m, false)
	if got := said(first); got != said(dry) {
		t.Errorf("it did\n%s\nand said before\n%s", got, said(dry))
	}
	if again := apply(t, s, m, false); again.Differs() {
		t.Errorf("again: %s", said(again))
	}
	if again := apply(t, open(t, b), m, false); again.Differs() { // defaults and secrets have gone through the bucket
		t.Errorf("in another process: %s", said(again))
	}
	stands, err := s.Manifests.Get(t.Context(), manifested, "p")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(stands)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), `"X":"1"`) || !strings.Contains(string(text), `"X":"********"`) ||
		strings.Contains(string(text), "sb_") {
		t.Errorf("it shows a secret or an id: %s", text)
	}
	stands, err = schemas.DecodeManifest(text)
	if err != nil {
		t.Fatal(err)
	}
	if again := apply(t, s, stands, true); again.Differs() {
		t.Errorf("what stands, applied: %s", said(again))
	}
	if _, err := s.Manifests.Get(t.Context(), manifested, "q"); !errors.Is(err, schemas.ErrNotFound) ||
		!strings.Contains(err.Error(), "there is p") {
		t.Errorf("of another project: %v", err)
	}
	if _, err := s.Manifests.Get(t.Context(), "acct_b", "p"); !errors.Is(err, schemas.ErrNotFound) || strings.Contains(err.Error(), "there is p") {
		t.Errorf("of another account: %v", err)
	}
	apply(t, s, manifest(t), true)
	if names := kept(t, b); len(names) != 0 {
		t.Errorf("after pruning there is %v", names)
	}
}

// Wherever an application is cut off, the next one makes the rest, and nothing twice.
//
//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func TestAnApplicationThatWasCutOffIsFinished(t *testing.T) {
	t.Parallel()
	before := manifest(t, boxB, workW, `{"kind": "workspace", "name": "old", "config": {"storage": {}}}`,
		`{"kind": "sandbox", "name": "gone", "config": {"timeout": 3}}`)
	after := manifest(t, strings.Replace(boxB, "bypass", "edit", 1), strings.Replace(workW, `"w"`, `"v"`, 1),
		strings.ReplaceAll(agent, `"w"`, `"v"`),
		`{"kind": "sandbox", "name": "new"}`)
	for n := 0; ; n++ {
		b := bus(t)
		s := open(t, b)
		apply(t, s, before, false)
		more, err := s.ApplySome(t.Context(), manifested, schemas.ManifestRequest{Manifest: after, Prune: true}, n)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			if n < 5 {
				t.Errorf("only %d changes were there to be cut off", n)
			}
			return
		}
		next := open(t, b)
		apply(t, next, after, true)
		if again := apply(t, next, after, true); again.Differs() {
			t.Errorf("cut off after %d: %s", n, said(again))
		}
		if got, want := kept(t, b), []string{"agents/g", "sandboxes/b", "sandboxes/new", "workspaces/v"}; !slices.Equal(got, want) {
			t.Errorf("cut off after %d there is %v", n, got)
		}
	}
}

// Stores that are not notified of one another apply the same, and then something else, to the same account.
//
//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func TestManyMayApplyAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := bus(t)
	const many = 4
	var stores [many]*records.Store
	for i := range stores {
		stores[i] = open(t, b)
	}
	together := func(m schemas.Manifest, prune bool) {
		t.Helper()
		var wg sync.WaitGroup
		for _, s := range stores {
			wg.Go(func() {
				if _, err := s.Manifests.Apply(t.Context(), manifested, schemas.ManifestRequest{Manifest: m, Prune: prune}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	together(manifest(t, boxB, workW, agent), false)
	if got := kept(t, b); !slices.Equal(got, []string{"agents/g", "sandboxes/b", "workspaces/w"}) {
		t.Fatalf("there is %v", got)
	}
	changed := manifest(t, strings.Replace(boxB, "bypass", "edit", 1), strings.Replace(workW, `"w"`, `"v"`, 1))
	together(changed, true)
	if got := kept(t, b); !slices.Equal(got, []string{"sandboxes/b", "workspaces/v"}) {
		t.Fatalf("then there is %v", got)
	}
	if again := apply(t, open(t, b), changed, true); again.Differs() {
		t.Errorf("again: %s", said(again))
	}
}

// A name that was renamed away from is free, and a new record of it another one.
func TestARenamedRecordKeepsItsID(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	work := func(name string) string { return `{"kind": "workspace", "name": "` + name + `"}` }
	id := apply(t, s, manifest(t, work("a")), false).Changes[0].ID
	renamed := apply(t, s, manifest(t, work("b")), false)
	if c := renamed.Changes[0]; c.Action != schemas.ActionRename || c.ID != id {
		t.Fatalf("%+v", c)
	}
	both := apply(t, s, manifest(t, work("a"), work("b")), false)
	if c := both.Changes; c[0].Action != schemas.ActionCreate || c[0].ID == id || c[1].Action != schemas.ActionNone || c[1].ID != id {
		t.Fatalf("%+v", c)
	}
}

// What a manifest does to records that are not its own.
func TestAManifestSparesOthers(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	apply(t, s, manifest(t, boxB), false)
	stands, err := s.Documents.List(t.Context(), manifested, schemas.Sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents.Add(t.Context(), manifested, schemas.Workspaces,
		[]byte(`{"name": "mine", "sandbox": "`+stands[0].ID+`"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents.Add(t.Context(), manifested, schemas.Sandboxes,
		[]byte(`{"name": "hand", "config": {"envVars": {"A": "b"}}}`)); err != nil {
		t.Fatal(err)
	}
	warned := apply(t, s, manifest(t, `{"kind": "workspace", "name": "v", "config": {"sandbox": "hand"}}`), true)
	if notes := strings.Join(warned.Warnings.Notes, "\n"); !strings.Contains(notes, "workspace mine") {
		t.Errorf("it does not warn of what it breaks: %s", notes)
	}
	adopted := apply(t, s, manifest(t, `{"kind": "sandbox", "name": "hand", "config": {"envVars": {"A": "********"}}}`,
		`{"kind": "workspace", "name": "v", "config": {"sandbox": "hand"}}`), true)
	if got := said(adopted); got != "update sandbox hand adopted\nnone workspace v" {
		t.Error(got)
	}
	id := schemas.SandboxID(adopted.Changes[0].ID)
	if box, err := s.Sandbox(t.Context(), manifested, id); err != nil || box.EnvVars["A"] != "b" {
		t.Errorf("it lost what the mask kept: %v", err)
	}
}
