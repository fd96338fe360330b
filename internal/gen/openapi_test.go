package main

import (
	"bytes"
	"os"
	"path/filepath"
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
