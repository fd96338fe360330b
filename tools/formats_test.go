package tools

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandjet/sandjet/schemas"
)

// rows are the ways in which tools are visible to models, by the workspaces and the sandbox of an agent.
func rows() map[string]schemas.ToolVisibility {
	files := schemas.Tools()[:7]
	reads := []schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolLS}
	two := []string{"docs", "my notes"}
	return map[string]schemas.ToolVisibility{
		"mounted":         {Tools: files},
		"mounted-kept":    {Tools: schemas.Tools(), Skills: skillsOfRows(), Actions: schemas.JobActions()},
		"read-only":       {Tools: reads},
		"no-workspace":    {Tools: []schemas.Tool{schemas.ToolBash}, Bare: true},
		"neither":         {Bare: true},
		"several":         {Tools: files, Workspaces: two},
		"several-kept":    {Tools: schemas.Tools(), Skills: skillsOfRows(), Workspaces: two, Actions: schemas.JobActions()},
		"several-to-read": {Tools: reads, Workspaces: two},
		"without-write":   {Tools: slices.DeleteFunc(slices.Clone(files), func(t schemas.Tool) bool { return t == schemas.ToolWrite })},
	}
}

// TestEveryRowInEveryFormat holds what models are shown to goldens: a file for each row, with all formats.
func TestEveryRowInEveryFormat(t *testing.T) {
	t.Parallel()
	for name, e := range rows() {
		list, err := Visible("", e)
		if err != nil {
			t.Fatal(err)
		}
		all := map[Format]any{}
		for _, f := range Formats() {
			if all[f], err = Write(f, list); err != nil {
				t.Fatal(err)
			}
		}
		if plain, err := Write("", list); err != nil || string(encoded(t, plain)) != string(encoded(t, all[FormatAnthropic])) {
			t.Errorf("%s: the default is another format, %v", name, err)
		}
		golden(t, filepath.Join("testdata", "exposed", name+".json"), string(encoded(t, all)))
	}
	if _, err := Write("gemini", nil); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("an unknown format: %v", err)
	}
}

func skillsOfRows() []schemas.SkillSummary {
	return []schemas.SkillSummary{{Name: "pdf", Description: "Fills <forms>."}}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWhatIsShownIsTaken: the schema of each tool is valid. An input with all of its arguments, and one with the required ones alone, fit
// the schema and are accepted by the decoder; an unknown argument does not fit.
func TestWhatIsShownIsTaken(t *testing.T) {
	t.Parallel()
	for name, e := range rows() {
		for _, d := range []schemas.Dialect{schemas.DialectClaude, schemas.DialectDeepAgents} {
			list, err := Visible(d, e)
			if err != nil || len(list) != len(e.Tools) {
				t.Fatalf("%s: %d tools, %v", name, len(list), err)
			}
			for _, def := range list {
				check := compiled(t, def.InputSchema)
				var schema struct {
					Properties map[string]map[string]any
					Required   []string
				}
				if err := json.Unmarshal(def.InputSchema, &schema); err != nil {
					t.Fatal(err)
				}
				if _, named := schema.Properties["workspace"]; named != (len(e.Workspaces) > 1) {
					t.Errorf("%s %s: workspace is an argument: %t", name, def.Name, named)
				}
				full, least := map[string]any{}, map[string]any{}
				for arg, p := range schema.Properties {
					if slices.Contains([]string{"data", "eof", "signal", "offset"}, arg) && def.Name == schemas.ToolAsyncStatus {
						continue // each is for an action of its own
					}
					full[arg] = example(arg, p)
					if slices.Contains(schema.Required, arg) {
						least[arg] = full[arg]
					}
				}
				for _, input := range []map[string]any{full, least} {
					raw := encoded(t, input)
					if err := check.Validate(instance(t, raw)); err != nil {
						t.Errorf("%s %s: %s: %v", name, def.Name, raw, err)
					}
					if err := (schemas.Request{Tool: def.Name, Input: raw}).Validate(); err != nil {
						t.Errorf("%s %s: %s is refused: %v", name, def.Name, raw, err)
					}
				}
				full["nope"] = 1
				if check.Validate(instance(t, encoded(t, full))) == nil {
					t.Errorf("%s %s: any argument fits", name, def.Name)
				}
			}
		}
	}
}

// TestStrictSchemas: schemas of the strict formats keep to the rules of strict mode, and the decoder accepts what a model sends under
// them, with null for each optional argument.
func TestStrictSchemas(t *testing.T) {
	t.Parallel()
	for name, e := range rows() {
		list, err := Visible("", e)
		if err != nil {
			t.Fatal(err)
		}
		responses, err := Write(FormatOpenAIResponses, list)
		if err != nil {
			t.Fatal(err)
		}
		chat, err := Write(FormatOpenAIStrict, list)
		if err != nil {
			t.Fatal(err)
		}
		for i, def := range responses.([]OpenAIResponsesTool) {
			f := chat.([]OpenAITool)[i].Function
			if def.Type != "function" || !def.Strict || !f.Strict || f.Name != def.Name || !bytes.Equal(f.Parameters, def.Parameters) {
				t.Errorf("%s: %+v, %+v", name, def, f)
			}
			check := compiled(t, def.Parameters)
			var schema struct {
				Properties           map[string]map[string]any
				Required             []string
				AdditionalProperties *bool
			}
			if err := json.Unmarshal(def.Parameters, &schema); err != nil {
				t.Fatal(err)
			}
			if len(schema.Required) != len(schema.Properties) || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
				t.Errorf("%s %s: %s", name, def.Name, def.Parameters)
			}
			nulls := map[string]any{}
			for arg, p := range schema.Properties {
				if _, ok := p["default"]; ok || !slices.Contains(schema.Required, arg) {
					t.Errorf("%s %s: %s has a default or need not be there", name, def.Name, arg)
				}
				if types, ok := p["type"].([]any); ok && slices.Contains(types, any("null")) {
					nulls[arg] = nil
				} else {
					nulls[arg] = example(arg, p)
				}
			}
			raw := encoded(t, nulls)
			if err := check.Validate(instance(t, raw)); err != nil {
				t.Errorf("%s %s: %s: %v", name, def.Name, raw, err)
			}
			if err := (schemas.Request{Tool: def.Name, Input: raw}).Validate(); err != nil {
				t.Errorf("%s %s: %s is refused: %v", name, def.Name, raw, err)
			}
		}
	}
}

// example is a value of an argument.
func example(name string, property map[string]any) any {
	if v, ok := property["default"]; ok {
		return v
	}
	if list, ok := property["enum"].([]any); ok {
		return list[0]
	}
	if name == "statusId" {
		return "job_1"
	}
	return map[string]any{"string": "a", "integer": 1, "boolean": true}[property["type"].(string)]
}

func instance(t *testing.T, raw []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func compiled(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("tool.json", instance(t, schema)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("tool.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHintsOfEveryTool(t *testing.T) {
	t.Parallel()
	for _, tool := range schemas.Tools() {
		a := annotationsOf(tool)
		loads := tool == schemas.ToolLoadSkill // it writes, and what is there stays or is put right
		if a.ReadOnly != (!tool.Writes() && tool != schemas.ToolAsyncStatus) || !loads && a.Destructive == a.ReadOnly || loads && a.Destructive ||
			a.OpenWorld != (tool == schemas.ToolBash) {
			t.Errorf("%s: %+v", tool, a)
		}
	}
}
