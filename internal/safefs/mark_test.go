package safefs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers/workspacefs"
)

// TestMark keeps a mode and a time of a file, and refuses what may lie outside.
func TestMark(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "root")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o755))
	must(os.WriteFile(filepath.Join(dir, "f"), nil, 0o640))
	must(os.WriteFile(filepath.Join(base, "secret"), nil, 0o600))
	must(os.Link(filepath.Join(base, "secret"), filepath.Join(dir, "hard")))
	must(os.Symlink("../secret", filepath.Join(dir, "out")))
	root, err := safefs.Open(dir, safefs.Options{})
	must(err)
	defer func() { must(root.Close()) }()
	at := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	for _, want := range []os.FileMode{0o750, 0o640} {
		must(root.Mark(t.Context(), "f", new(want == 0o750), at))
		if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Mode() != want || !info.ModTime().Equal(at) {
			t.Errorf("%v, %v: want %o", info, err, want)
		}
	}
	for name, code := range map[string]workspacefs.Code{
		"hard": workspacefs.ErrHardLink, "out": workspacefs.ErrEscape, "none": workspacefs.ErrNotFound, ".": workspacefs.ErrIsDirectory,
	} {
		if err := root.Mark(t.Context(), name, new(true), at); workspacefs.CodeOf(err) != code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Stat(filepath.Join(base, "secret")); err != nil || info.Mode() != 0o600 || info.ModTime().Equal(at) {
		t.Errorf("outside: %v, %v", info, err)
	}
}
