package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestDefinitions holds the definitions to their goldens, and to the inputs that are decoded.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	inputs := map[schemas.Tool]reflect.Type{
		schemas.ToolBash: reflect.TypeFor[schemas.BashInput](), schemas.ToolRead: reflect.TypeFor[schemas.ReadInput](),
		schemas.ToolWrite: reflect.TypeFor[schemas.WriteInput](), schemas.ToolEdit: reflect.TypeFor[schemas.EditInput](),
		schemas.ToolGlob: reflect.TypeFor[schemas.GlobInput](), schemas.ToolGrep: reflect.TypeFor[schemas.GrepInput](),
		schemas.ToolLS:          reflect.TypeFor[schemas.LSInput](),
		schemas.ToolLoadSkill:   reflect.TypeFor[schemas.LoadSkillInput](),
		schemas.ToolAsyncStatus: reflect.TypeFor[schemas.AsyncStatusInput](),
	}
	for _, c := range []struct {
		name    string
		dialect schemas.Dialect
		actions []schemas.JobAction
		tools   int
	}{
		{"claude", schemas.DialectClaude, schemas.JobActions(), len(schemas.Tools()) - 1},
		{"deepagents", schemas.DialectDeepAgents, schemas.JobActions(), len(schemas.Tools()) - 1},
		{"claude-status", schemas.DialectClaude, []schemas.JobAction{schemas.JobActionStatus}, len(schemas.Tools()) - 1},
		{"claude-without-jobs", schemas.DialectClaude, nil, len(schemas.Tools()) - 2},
	} {
		list, err := DefinitionsFor(c.dialect, c.actions)
		if err != nil || len(list) != c.tools {
			t.Fatalf("%s: %d definitions, %v", c.name, len(list), err)
		}
		got, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if jobs := strings.Contains(string(got), "background"); jobs != (c.actions != nil) {
			t.Errorf("%s: jobs are shown: %t", c.name, jobs)
		}
		golden(t, filepath.Join("testdata", "definitions", c.name+".json"), string(got)+"\n")
		for _, def := range list {
			var schema struct {
				Properties map[string]struct {
					Type string
				}
				Required []string
			}
			if err := json.Unmarshal(def.InputSchema, &schema); err != nil {
				t.Fatal(err)
			}
			const longest = 1024 // characters that functions of OpenAI may have as their description
			if len(def.Description) > longest {
				t.Errorf("%s: its description has %d bytes, above %d", def.Name, len(def.Description), longest)
			}
			if len(schema.Required) == 0 && def.Name != schemas.ToolLS { // the workspace itself can be listed
				t.Errorf("%s: nothing is required", def.Name)
			}
			for name, p := range schema.Properties {
				if !hasField(inputs[def.Name], name, p.Type) {
					t.Errorf("%s: %s of type %s is no field of %s", def.Name, name, p.Type, inputs[def.Name])
				}
			}
		}
	}
}

func hasField(in reflect.Type, name, kind string) bool {
	for f := range in.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag != name {
			continue
		}
		typ := f.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		return kind == map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer",
			reflect.Bool: "boolean"}[typ.Kind()]
	}
	return false
}

// golden compares with a file, or rewrites it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { // source
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil { // source
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name) // source
	if err != nil || got != string(want) {
		t.Errorf("%s: %v\ngot:\n%swant:\n%s", name, err, got, want)
	}
}

// TestNotesAreMentionedOnce: by write, in every dialect, and only where they are to be.
func TestNotesAreMentionedOnce(t *testing.T) {
	t.Parallel()
	for _, d := range []schemas.Dialect{"", schemas.DialectClaude, schemas.DialectDeepAgents} {
		for _, notes := range []bool{true, false} {
			list, err := Visible(d, schemas.ToolVisibility{Tools: schemas.Tools(), Notes: notes})
			if err != nil {
				t.Fatal(err)
			}
			for _, def := range list {
				if got := strings.Contains(def.Description, "MEMORY.md"); got != (notes && def.Name == schemas.ToolWrite) {
					t.Errorf("%s, notes %v: %s mentions them: %v", d, notes, def.Name, got)
				}
			}
		}
	}
}
