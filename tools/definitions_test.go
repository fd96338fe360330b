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
		schemas.ToolAsyncStatus: reflect.TypeFor[schemas.AsyncStatusInput](),
	}
	for _, c := range []struct {
		name    string
		dialect schemas.Dialect
		actions []schemas.JobAction
		tools   int
	}{
		{"claude", schemas.DialectClaude, schemas.JobActions(), len(schemas.Tools())},
		{"deepagents", schemas.DialectDeepAgents, schemas.JobActions(), len(schemas.Tools())},
		{"claude-status", schemas.DialectClaude, []schemas.JobAction{schemas.JobActionStatus}, len(schemas.Tools())},
		{"claude-without-jobs", schemas.DialectClaude, nil, len(schemas.Tools()) - 1},
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
			if len(schema.Required) == 0 {
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
		return kind == map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Bool: "boolean"}[typ.Kind()]
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
