package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestComponentsFollowTheTypes: whatever was done to a component by hand that its Go type does not have is undone, and prose stays.
func TestComponentsFollowTheTypes(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(module, openAPIFile))
	if err != nil {
		t.Fatal(err)
	}
	comments, err := readComments(module)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"another field":       {`"ended": {`, `"stranger": {"type": "string"}, "ended": {`},
		"another type":        {"\"next\": {\n            \"type\": \"integer\"", "\"next\": {\n            \"type\": \"string\""},
		"a required field":    {"\"next\",\n          \"size\"", "\"next\""},
		"another description": {"Where to read on.", "Where to go on."},
	} {
		dir := t.TempDir()
		if !bytes.Contains(want, []byte(change[0])) {
			t.Fatalf("%s: the document has no %s", name, change[0])
		}
		had := bytes.Replace(want, []byte(change[0]), []byte(change[1]), 1)
		if err := os.MkdirAll(filepath.Join(dir, "gateway"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, openAPIFile), had, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := openAPI(dir, comments)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if kept := name == "another description"; bytes.Equal(got, want) == kept {
			t.Errorf("%s: changed back: %v", name, !kept)
		}
	}
}

// TestGeneratorsReadTheDocument: openapi-typescript takes an object without members for one that may have none, a member with a default
// for one that requests must have, and an answer in JSON or another form for one that has to be distinguished.
func TestGeneratorsReadTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(module, openAPIFile))
	if err != nil {
		t.Fatal(err)
	}
	const mcpAnswer = "/paths//mcp/post/responses/200" // clients of that protocol are not generated
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch v := v.(type) {
		case []any:
			for i, each := range v {
				walk(each, fmt.Sprintf("%s/%d", at, i))
			}
		case map[string]any:
			kind, isSchema := v["type"].(string)
			if kind == "object" && v["properties"] == nil && v["additionalProperties"] == nil {
				t.Errorf("%s: an object that may have any members says so by additionalProperties", at)
			}
			if isSchema && v["default"] != nil && !strings.Contains(at, "/parameters/") {
				t.Errorf("%s: has a default: say it in the description", at)
			}
			if content, ok := v["content"].(map[string]any); ok && content["application/json"] != nil && len(content) > 1 && at != mcpAnswer {
				t.Errorf("%s: describes another form than JSON: say in the operation's description how it is asked for", at)
			}
			for key, each := range v {
				walk(each, at+"/"+key)
			}
		}
	}
	walk(doc, "")
}
