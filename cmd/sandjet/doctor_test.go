package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheDoctorLooksWhereSandboxesDo: the doctor looks for programs in the PATH that commands in sandboxes get, not in the PATH of the
// shell that started it.
func TestTheDoctorLooksWhereSandboxesDo(t *testing.T) {
	inBoxes, ofTheShell := t.TempDir(), t.TempDir()
	for folder, name := range map[string]string{inBoxes: "python3", ofTheShell: "node"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\necho version 7\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", ofTheShell)
	found := map[string]finding{}
	for _, f := range examinePrograms(t.Context(), "/nowhere:"+inBoxes) {
		found[f.About] = f
	}
	if f := found["python3"]; f.Level != good || f.Says != filepath.Join(inBoxes, "python3")+", version 7" {
		t.Errorf("what sandboxes have: %+v", f)
	}
	if f := found["node"]; f.Level != worth || !strings.Contains(f.Says, "not there") {
		t.Errorf("what the shell alone has: %+v", f)
	}
}
