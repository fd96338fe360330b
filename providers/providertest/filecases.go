package providertest

import (
	"errors"
	"testing"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
)

type fileCase struct {
	name string
	run  func(t *testing.T, s subject, f providers.Filer)
}

func fileCases() []fileCase {
	return []fileCase{
		{"what a run wrote can be read", filesRead},
		{"what was written here a run can use", filesWritten},
		{"a workspace that never was is made", filesMade},
		{"nothing leads out of the workspace", filesInside},
		{"a read-only mount is read-only here too", filesReadOnly},
		{"a namespace that is no name is refused", filesNames},
	}
}

// files opens the test's workspace.
func (s subject) files(t *testing.T, f providers.Filer) *safefs.Root {
	t.Helper()
	root, err := f.OpenWorkspace(t.Context(), account, s.mount)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return root
}

func filesRead(t *testing.T, s subject, f providers.Filer) {
	s.sh(t, "mkdir -p a/b; printf 'content\\0' >a/b/file; chmod 600 a/b/file; chmod 700 a/b")
	got, _, err := s.files(t, f).ReadFile("a/b/file", 100)
	if err != nil || string(got) != "content\x00" {
		t.Errorf("%q, %v", got, err)
	}
}

func filesWritten(t *testing.T, s subject, f providers.Filer) {
	root := s.files(t, f)
	for _, mode := range []safefs.Mode{safefs.Create, safefs.Replace, safefs.InPlace} {
		if err := root.Write("dir/file", []byte("by the tool\n"), mode, nil); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "what a run sees and may do", s.sh(t, "cat dir/file; echo more >>dir/file; touch dir/new; rm dir/new; mv dir/file dir/g; cat dir/g; rm -r dir; ls"),
		"by the tool\nby the tool\nmore")
}

func filesMade(t *testing.T, s subject, f providers.Filer) {
	s.files(t, f)
	want(t, "files", s.sh(t, "ls -A; echo x >file; cat file"), "x")
}

func filesInside(t *testing.T, s subject, f providers.Filer) {
	root := s.files(t, f)
	s.sh(t, "ln -s /etc/passwd absolute; ln -s ../../../../../../../../etc/passwd climbing; ln -s / all; ln -s .. up; ln -s /proc/self/root/etc/passwd magic; mkfifo pipe; mkdir dir")
	for _, name := range []string{"absolute", "climbing", "all/etc/passwd", "up/x", "magic", "../x", "/../x", "dir/../../x", "pipe", "dir", ".", "", "a\x00b"} {
		if got, _, err := root.ReadFile(name, 1<<20); err == nil {
			t.Errorf("%q was read: %.40q", name, got)
		}
	}
	for _, name := range []string{"all/tmp/sandjet-x", "up/x", "../x", "pipe", "dir", "climbing/x"} {
		if err := root.Write(name, []byte("x"), safefs.InPlace, nil); err == nil {
			t.Errorf("%q was written", name)
		}
	}
}

func filesReadOnly(t *testing.T, s subject, f providers.Filer) {
	s.sh(t, "echo content >file")
	s.mount.ReadOnly = true
	root := s.files(t, f)
	if got, _, err := root.ReadFile("file", 100); err != nil || string(got) != "content\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := root.Write("file", []byte("x"), safefs.Replace, nil); !errors.Is(err, safefs.ErrReadOnly) {
		t.Errorf("writing: %v", err)
	}
}

func filesNames(t *testing.T, _ subject, f providers.Filer) {
	for _, ns := range []string{"", ".", "..", "a/b", "/etc", "../x", "a\x00b"} {
		if root, err := f.OpenWorkspace(t.Context(), account, providers.Mount{Namespace: ns}); err == nil {
			_ = root.Close()
			t.Errorf("namespace %q was taken", ns)
		}
	}
}
