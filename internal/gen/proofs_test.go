package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTagsOfTests: tags are listed by the sections of the documents; one that no section has, or that is not a test's, is an error.
func TestTagsOfTests(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("docs/GUARANTEES.md", "# G\n\n## Calls\n\n### One call, one result\n\n### Not proven\n")
	write("docs/LIMITS.md", "# L\n\n## Bounds\n")
	const plain = "package a\n\n// TestB is one.\n//\n//guarantee:one-call-one-result\nfunc TestB(t *testing.T) {}\n"
	write("a/b_test.go", plain+"\n//guarantee:bounds\n//guarantee:one-call-one-result\nfunc FuzzA(f *testing.F) {}\n")
	write("a/testdata/c_test.go", "package a\n\n//guarantee:of-no-section\nfunc TestC(t *testing.T) {}\n")
	got, err := proofs(root)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(got), "\n\n## ")
	const want = "[One call, one result](GUARANTEES.md#one-call-one-result)\n\n- `a`: FuzzA, TestB\n\n## [Bounds](LIMITS.md#bounds)\n\n- `a`: FuzzA\n"
	if list != want {
		t.Errorf("%s", got)
	}
	for text, wrong := range map[string]string{
		strings.Replace(plain, "one-result", "two-results", 1):          `"one-call-two-results"`,
		plain + "\n//guarantee:bounds\nvar x int\n":                     "1 of 2 tags",
		plain + "\nfunc TestD(t *testing.T) {\n//guarantee:bounds\n}\n": "1 of 2 tags",
		plain + "\n//guarantee:bounds\nfunc testE() {}\n":               "1 of 2 tags",
	} {
		write("a/b_test.go", text)
		if _, err := proofs(root); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s\n%v", text, err)
		}
	}
}
