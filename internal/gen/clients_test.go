package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// field is a line of a TypeScript interface.
var field = regexp.MustCompile(`^  (\w+)(\??): (.+);$`)

// schema is what the test reads of an OpenAPI component.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       string             `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
}

// TestTheTypesOfTheClientAreThoseOfTheDocument: each field of a type of clients/js that goes over the wire is a property of its
// component, of the same type. What a type says is always there is required by the document; what a request requires is required here.
func TestTheTypesOfTheClientAreThoseOfTheDocument(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(module, openAPIFile))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]*schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	all := doc.Components.Schemas
	for _, c := range []struct {
		file, name, component string
		sent                  bool // by the client
	}{
		{"wire.ts", "Event", "Event", false},
		{"wire.ts", "Gap", "Gap", false},
		{"wire.ts", "Snapshot", "Snapshot", false},
		{"wire.ts", "Problem", "Error", false},
		{"operations.ts", "Request", "Request", true},
		{"files.ts", "FileInfo", "FileInfo", false},
		{"files.ts", "FileList", "FileList", false},
		{"api.ts", "Artifact", "Artifact", false},
		{"sandbox.ts", "SandboxSession", "SandboxSession", false},
		{"sandbox.ts", "Run", "SandboxEnvelope", false},
		{"sandbox.ts", "Entry", "SandboxLSPath", false},
		{"sandbox.ts", "Match", "SandboxGrepMatch", false},
	} {
		source, err := os.ReadFile(filepath.Join(module, "clients/js/src", c.file))
		if err != nil {
			t.Fatal(err)
		}
		fields := interfaceOf(string(source), c.name)
		if len(fields) == 0 {
			t.Errorf("%s has no interface %s", c.file, c.name)
		}
		for _, wrong := range disagreements(fields, all[c.component], all, c.sent) {
			t.Errorf("%s: %s", c.name, wrong)
		}
	}
	// The test can fail.
	gap := all["Gap"]
	for _, bad := range [][]string{{"since", "", "string"}, {"from", "", "number"}} {
		if len(disagreements([][]string{bad}, gap, all, false)) == 0 {
			t.Errorf("%v is not found to be wrong", bad)
		}
	}
	if len(disagreements([][]string{{"field", "", "string"}}, all["Error"], all, false)) == 0 {
		t.Error("a field that may be absent is taken for one that is always there")
	}
}

// interfaceOf returns, for each field of an exported TypeScript interface, its name, "?" if it is optional, and its type.
func interfaceOf(source, name string) (fields [][]string) {
	_, body, _ := strings.Cut(source, "export interface "+name+" {\n")
	body, _, _ = strings.Cut(body, "\n}")
	for line := range strings.Lines(body) {
		if m := field.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			fields = append(fields, m[1:])
		}
	}
	return fields
}

// disagreements lists the fields that differ from the component of the document, in name, type or whether they are required. sent: the
// type is for requests.
func disagreements(fields [][]string, component *schema, all map[string]*schema, sent bool) (wrong []string) {
	if component == nil {
		return []string{"there is no such component"}
	}
	types := map[string]string{"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
	for _, f := range fields {
		p := component.Properties[f[0]]
		if p == nil {
			wrong = append(wrong, f[0]+" is not in the document")
			continue
		}
		if name, ok := strings.CutPrefix(p.Ref, "#/components/schemas/"); ok {
			p = all[name]
		}
		required := slices.Contains(component.Required, f[0])
		if optional := f[1] == "?"; !sent && !optional && !required || sent && optional && required {
			wrong = append(wrong, f[0]+" is required here and not there")
		}
		if want := types[p.Type]; want != "" && f[2] != want || p.Type == "array" && !strings.HasSuffix(f[2], "[]") {
			wrong = append(wrong, f[0]+" is "+f[2]+" and "+p.Type)
		}
	}
	return wrong
}
