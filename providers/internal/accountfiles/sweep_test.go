//go:build unix

package accountfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
)

// TestJudge: files are removed only if their account was certainly removed for a total of [providers.WorkspacesKept].
func TestJudge(t *testing.T) {
	t.Parallel()
	kept, unknown := providers.WorkspacesKept, errors.New("not known")
	for name, c := range map[string]struct {
		removed        bool
		err            error
		before, passed time.Duration
		absent         time.Duration
		want           verdict
	}{
		"not known":                       {true, unknown, kept, kept, kept, leaveFiles},
		"there":                           {false, nil, kept, kept, 0, forgetMark},
		"seen removed for the first time": {true, nil, 0, 0, 0, keepMark},
		"a look later":                    {true, nil, time.Hour, time.Minute, time.Hour + time.Minute, keepMark},
		"almost long enough":              {true, nil, kept - time.Minute, time.Minute - 1, kept - 1, keepMark},
		"long enough":                     {true, nil, kept - time.Minute, time.Minute, kept, removeFiles},
		"a clock that went back":          {true, nil, time.Hour, -time.Hour, time.Hour, keepMark},
		"a damaged mark":                  {true, nil, -kept, time.Minute, time.Minute, keepMark},
	} {
		if absent, v := judge(c.removed, c.err, c.before, c.passed); absent != c.absent || v != c.want {
			t.Errorf("%s: %v and %d, want %v and %d", name, absent, v, c.absent, c.want)
		}
	}
}

// FuzzAbsence: whatever the file contains, the time for which an account was removed is within its limits, and what was written is read
// again.
func FuzzAbsence(f *testing.F) {
	f.Add([]byte(`{"seconds":60}`))
	f.Add([]byte(`{"seconds":-1}`))
	f.Add([]byte(`{"seconds":9223372036854775807}`))
	f.Add([]byte(`{"seconds":1e99}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x"+absentSuffix)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := readAbsence(path)
		if err != nil || d < 0 || d > providers.WorkspacesKept {
			t.Fatalf("%q is %v, %v", data, d, err)
		}
		if err := writeAbsence(path, d); err != nil {
			t.Fatal(err)
		}
		if again, err := readAbsence(path); err != nil || again != d {
			t.Errorf("%v was written, and %v read: %v", d, again, err)
		}
	})
}

// TestRemoveTree: deep trees, unreadable folders, names that RemoveTree itself uses, and a link to the outside. After an error, the next
// try removes the rest.
func TestRemoveTree(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	file := func(path string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	file(filepath.Join(outside, "kept"))
	top := filepath.Join(t.TempDir(), "top")
	file(filepath.Join(top, strings.Repeat("d/", 400)+"f"))
	file(filepath.Join(top, movedPrefix+"1", "f"))
	file(filepath.Join(top, movedPrefix+"2"))
	file(filepath.Join(top, "closed", "in", "f"))
	if err := errors.Join(os.Symlink(outside, filepath.Join(top, "link")), os.Chmod(filepath.Join(top, "closed"), 0),
		os.Chmod(top, 0)); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	asked := 0
	err := RemoveTree(top, func() error {
		if asked++; asked > 5 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Fatalf("it ends with %v", err)
	}
	if err := RemoveTree(top, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if err := RemoveTree(top, func() error { return nil }); err != nil {
		t.Errorf("what is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}
