package providertest

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
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
		{"what a run put there leads nowhere", filesInside},
		{"a namespace that is no name is refused", filesNames},
	}
}

// workspace returns the test's workspace, in which links and devices are made by commands in its sandbox.
func (s subject) workspace(f providers.Filer) Workspace {
	return Workspace{
		Open: func(t *testing.T, readOnly bool) workspacefs.FS {
			t.Helper()
			m := s.mount
			m.ReadOnly = readOnly
			fsys, err := f.OpenWorkspace(t.Context(), account, m)
			if err != nil {
				t.Fatal(err)
			}
			return fsys
		},
		Symlink:  func(t *testing.T, target, name string) { s.sh(t, "ln -s -- "+quoted(target)+" "+quoted(name)) },
		HardLink: func(t *testing.T, old, name string) { s.sh(t, "ln -- "+quoted(old)+" "+quoted(name)) },
		FIFO:     func(t *testing.T, name string) { s.sh(t, "mkfifo -- "+quoted(name)) },
	}
}

// quoted quotes s as one word of a shell command.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// files opens the test's workspace.
func (s subject) files(t *testing.T, f providers.Filer) workspacefs.FS {
	t.Helper()
	return opened(t, s.workspace(f), false)
}

func filesRead(t *testing.T, s subject, f providers.Filer) {
	s.sh(t, "mkdir -p a/b; printf 'content\\0' >a/b/file; chmod 600 a/b/file; chmod 700 a/b")
	got, _, err := workspacefs.ReadFile(t.Context(), s.files(t, f), "a/b/file", 100)
	if err != nil || string(got) != "content\x00" {
		t.Errorf("%q, %v", got, err)
	}
}

func filesWritten(t *testing.T, s subject, f providers.Filer) {
	root := s.files(t, f)
	for _, mode := range []workspacefs.Mode{workspacefs.Create, workspacefs.Replace, workspacefs.InPlace} {
		if err := root.Write(t.Context(), "dir/file", []byte("by the tool\n"), mode, nil); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "what a run sees and may do", s.sh(t,
		"cat dir/file; echo more >>dir/file; touch dir/new; rm dir/new; mv dir/file dir/g; cat dir/g; rm -r dir; ls"),
		"by the tool\nby the tool\nmore")
}

func filesMade(t *testing.T, s subject, f providers.Filer) {
	s.files(t, f)
	want(t, "files", s.sh(t, "ls -A; echo x >file; cat file"), "x")
}

func filesInside(t *testing.T, s subject, f providers.Filer) {
	root := s.files(t, f)
	s.sh(t,
		"ln -s /etc/passwd absolute; ln -s ../../../../../../../../etc/passwd climbing; ln -s / all; "+
			"ln -s .. up; ln -s /proc/self/root/etc/passwd magic; mkfifo pipe; mkdir dir")
	for _, name := range []string{"absolute", "climbing", "all/etc/passwd", "up/x", "magic", "../x", "/../x", "dir/../../x", "pipe",
		"dir", ".", "", "a\x00b"} {
		if got, _, err := workspacefs.ReadFile(t.Context(), root, name, 1<<20); err == nil || workspacefs.CodeOf(err) == "" {
			t.Errorf("%q was read, or refused without a code: %.40q, %v", name, got, err)
		}
	}
	for _, name := range []string{"all/tmp/sandjet-x", "up/x", "../x", "pipe", "dir", "climbing/x"} {
		if err := root.Write(t.Context(), name, []byte("x"), workspacefs.InPlace, nil); err == nil || workspacefs.CodeOf(err) == "" {
			t.Errorf("%q was written, or refused without a code: %v", name, err)
		}
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
