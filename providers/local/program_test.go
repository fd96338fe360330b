package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/local/box"
)

// TestABoxBinaryThatIsNotUsedSaysWhy: it is the reason why sandboxes start slowly.
func TestABoxBinaryThatIsNotUsedSaysWhy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode os.FileMode
		says string
	}{
		"none":                {0, ""},
		"of others":           {0o777, "may be written by others"},
		"not executable":      {0o644, "is not executable"},
		"of an unknown build": {0o755, "does not say that it is of the same build"},
	} {
		dir := t.TempDir()
		beside := filepath.Join(dir, box.Name)
		if tc.mode != 0 {
			if err := os.WriteFile(beside, []byte("no program"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(beside, tc.mode); err != nil {
				t.Fatal(err)
			}
		}
		path, unused := besideProgram(filepath.Join(dir, "sandjet"))
		if path != "" || (unused == "") != (tc.says == "") || !strings.Contains(unused, tc.says) {
			t.Errorf("%s: %q is used, %q", name, path, unused)
		}
	}
}
