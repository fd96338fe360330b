package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandjet/sandjet/schemas"
)

func TestManifestsOfManyFilesAreOne(t *testing.T) {
	t.Parallel()
	s, err := readManifest([]source{
		{"a.yaml", []byte("version: 1\nproject: p\nresources:\n  - kind: sandbox\n    name: b\n---\nresources:\n  - kind: sandbox\n    name: " +
			"c\n    config: {timeout: 30}\n---\n")},
		{"b.json", []byte(`{"project": "p", "resources": [{"kind": "workspace", "name": "w"}]}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range s.manifest.Resources {
		names = append(names, r.Name)
	}
	if !reflect.DeepEqual(names, []string{"b", "c", "w"}) || s.manifest.Project != "p" {
		t.Errorf("%+v", s.manifest)
	}
	for field, want := range map[string]string{
		"resources[1].config.timeout": "a.yaml:10", "resources[2]": "b.json:1", "resources[0].nothing.here": "a.yaml:4", "project": "a.yaml:2",
	} {
		if got := s.places.of(field); got != want {
			t.Errorf("%s is at %s, not at %s", field, got, want)
		}
	}
}

func TestErrorsOfManifestsNameTheLine(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nproject: p\n"
	for name, test := range map[string]struct {
		files []string
		says  []string
	}{
		"an unknown key": {[]string{head + "resources:\n- kind: sandbox\n  name: b\n  config:\n    timeot: 3\n"},
			[]string{`0.yaml:7: config.timeot: is not a known field: use "timeout"`}},
		"an unknown key above": {[]string{head + "resource: []\n"}, []string{`resource: is not a known field: use "resources"`}},
		"two things": {[]string{head + "resources:\n- kind: bx\n  name: b\n- kind: agent\n  nam: x\n"},
			[]string{"2 things are wrong", "0.yaml:4: kind", "0.yaml:7: nam"}},
		"a name twice": {[]string{head + "resources:\n- kind: agent\n  name: b\n", "resources:\n- kind: agent\n  name: b\n"},
			[]string{"1.yaml:3: name", "0.yaml:4"}},
		"a key twice":           {[]string{head + "project: q\n"}, []string{"0.yaml: [3:1]"}},
		"no YAML":               {[]string{head + "resources: [\n"}, []string{"0.yaml"}},
		"two projects":          {[]string{head, "project: q\n"}, []string{"1.yaml:1", "project is q here and p at 0.yaml:2"}},
		"a version of its own":  {[]string{"version: {a: 1}\nproject: p\n", "version: {a: 2}\n"}, []string{"version is"}},
		"no project":            {[]string{"version: 1\nresources: []\n"}, []string{"project: is missing"}},
		"a list":                {[]string{"- a\n"}, []string{"0.yaml:1"}},
		"resources of no list":  {[]string{head + "resources: {a: b}\n"}, []string{"resources must be a list"}},
		"nothing":               {[]string{"# nothing\n"}, []string{"there is no manifest"}},
		"an endless recursion":  {[]string{head + "resources: &a\n- *a\n"}, []string{"0.yaml"}},
		"a timeout that is odd": {[]string{head + "resources:\n- kind: sandbox\n  name: b\n  config: {timeout: .nan}\n"}, []string{"0.yaml"}},
	} {
		var sources []source
		for i, text := range test.files {
			sources = append(sources, source{string(rune('0'+i)) + ".yaml", []byte(text)})
		}
		s, err := readManifest(sources)
		err = cmp.Or(err, s.wrong)
		if schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range test.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s does not say %q:\n%v", name, want, err)
			}
		}
	}
}

//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func FuzzReadManifest(f *testing.F) {
	f.Add([]byte("version: 1\nproject: p\nresources:\n- kind: sandbox\n  name: b\n  config: {timeout: 3}\n"))
	f.Add([]byte("a: &a [*a]\n---\n!!x {<<: *a}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readManifest([]source{{"a", b}, {"b", b}})
		err = cmp.Or(err, s.wrong)
		if err != nil && schemas.CodeOf(err) != schemas.Invalid {
			t.Fatalf("%s: %v", schemas.CodeOf(err), err)
		}
		if err == nil {
			for i := range s.manifest.Resources {
				if s.places.of(schemas.ResourcePath(i)) == "" {
					t.Errorf("nobody knows where resource %d is", i)
				}
			}
		}
	})
}

// TestTheExampleManifestIsRight: deploy/manifest.example.yaml is the manifest of define/testdata/acme.json, which is made with the Go
// package define; it is valid by the JSON Schema for editors, and its first line names that schema's file.
func TestTheExampleManifestIsRight(t *testing.T) {
	t.Parallel()
	const example = root + "/deploy/manifest.example.yaml"
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readManifest([]source{{example, text}})
	if err != nil || s.wrong != nil {
		t.Fatal(err, s.wrong)
	}
	got, err := json.MarshalIndent(s.manifest, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(root + "/define/testdata/acme.json")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(jsonOf(t, got), jsonOf(t, want)) {
		t.Errorf("it says\n%s\nand the program\n%s", got, want)
	}
	check := manifestSchema(t)
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Validate(jsonOf(t, b)); err != nil {
		t.Errorf("an editor would say %v", err)
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	_, name, ok := bytes.Cut(first, []byte("$schema="))
	if _, err := os.Stat(filepath.Join(root, "deploy", string(name))); !ok || err != nil {
		t.Errorf("its first line leads nowhere: %s, %v", first, err)
	}
}

// TestTheDocumentForEditorsAgreesWithTheDecoder: the JSON Schema for editors and the manifest decoder accept and refuse the same
// manifests.
func TestTheDocumentForEditorsAgreesWithTheDecoder(t *testing.T) {
	t.Parallel()
	check := manifestSchema(t)
	resource := func(s string) string { return `{"version": 1, "project": "p", "resources": [` + s + `]}` }
	for text, fine := range map[string]bool{
		resource(``): true,
		resource(`{"kind": "sandbox", "name": "b"}`): true,
		resource(`{"kind": "sandbox", "name": "b", "config": {"network": {"mode": "deny-all"}, "envVars": {"A": "env:B"}}}`):            true,
		resource(`{"kind": "agent", "name": "b", "config": {"workspaces": [{"workspace": "w", "sandbox": null}, {"workspace": "w"}]}}`): true,
		resource(`{"kind": "agent", "name": "b", "config": {"tools": {"bash": {"enabled": false}}}}`):                                   true,
		`{"version": 1, "resources": []}`:                                                                        false,
		`{"version": 2, "project": "p", "resources": []}`:                                                        false,
		`{"version": 1, "project": "p q", "resources": []}`:                                                      false,
		resource(`{"kind": "cron", "name": "b"}`):                                                                false,
		resource(`{"kind": "sandbox", "name": "b", "extra": 1}`):                                                 false,
		resource(`{"kind": "sandbox", "name": "b", "config": {"workspaces": []}}`):                               false,
		resource(`{"kind": "workspace", "name": "b", "config": {"sandbox": null, "x": 1}}`):                      false,
		resource(`{"kind": "agent", "name": "b", "config": {"workspaces": [{"name": 1}]}}`):                      false,
		resource(`{"kind": "sandbox", "name": "b", "config": {"timeout": "30"}}`):                                false,
		resource(`{"kind": "agent", "name": "b", "config": {"workspaces": [{"sandbox": 3, "workspace": "w"}]}}`): false,
	} {
		_, err := schemas.DecodeManifest([]byte(text))
		if doc := check.Validate(jsonOf(t, []byte(text))); (doc == nil) != fine || (err == nil) != fine {
			t.Errorf("%s\ndocument: %v\ndecoder: %v", text, doc, err)
		}
	}
}

func jsonOf(t *testing.T, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func manifestSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	b, err := os.ReadFile(root + "/schemas/json/manifest.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("manifest.json", jsonOf(t, b)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
