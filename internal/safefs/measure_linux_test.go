package safefs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

func measured(t *testing.T, dir string) Measured {
	t.Helper()
	m, err := Measure(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMeasure: links to a file count once together, holes cost nothing, symbolic links are not followed.
func TestMeasure(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	const size = 1 << 20
	must(t, os.WriteFile(filepath.Join(outside, "f"), make([]byte, size), 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	empty := measured(t, dir)
	if empty.Files != 2 || empty.Hidden {
		t.Errorf("two directories: %+v", empty)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	must(t, err)
	_, err = f.Write(make([]byte, size))
	must(t, errors.Join(err, f.Sync(), f.Close()))
	one := measured(t, dir)
	if got := one.Bytes - empty.Bytes; got < size || got > size+64<<10 || one.Files != 3 {
		t.Errorf("a file of %d bytes: %+v after %+v", size, one, empty)
	}
	for i := range 6 {
		must(t, os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "a/b", fmt.Sprint("link", i))))
	}
	must(t, os.Symlink(filepath.Join(outside, "f"), filepath.Join(dir, "to-file")))
	must(t, os.Symlink(outside, filepath.Join(dir, "to-folder")))
	must(t, os.WriteFile(filepath.Join(dir, "hole"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir, "hole"), 1<<40))
	all := measured(t, dir)
	if got := all.Bytes - one.Bytes; got < 0 || got > 64<<10 || all.Files != 6 {
		t.Errorf("with links and a hole: %+v after %+v", all, one)
	}
}

// TestMeasureIsBounded: what is nested too deep is not entered, and said to be hidden.
func TestMeasureIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := dir
	for range MeasureDepth - 1 {
		at = filepath.Join(at, "d")
	}
	const chain = 5 * MeasureDepth
	must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", chain)), 0o755))
	if m := measured(t, dir); m.Hidden || m.Files != chain {
		t.Errorf("one deep chain: %+v, want %d", m, chain)
	}
	for i := range MeasureDeep - 1 { // with the chain's own
		must(t, os.Mkdir(filepath.Join(at, fmt.Sprint(i)), 0o755))
	}
	if m := measured(t, dir); m.Hidden || m.Files != chain+MeasureDeep-1 {
		t.Errorf("as many as may be: %+v", m)
	}
	must(t, os.Mkdir(filepath.Join(at, "more"), 0o755))
	if m := measured(t, dir); !m.Hidden {
		t.Errorf("one more: %+v", m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, dir, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a measurement that is given up: %v", err)
	}
	if _, err := Measure(t.Context(), filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

// TestMeasureStaysInside swaps a directory and a link that leads out while it is measured: nothing outside is ever counted.
func TestMeasureStaysInside(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	for i := range 100 {
		must(t, os.WriteFile(filepath.Join(outside, fmt.Sprint(i)), nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(dir, "x")))
	var swapping sync.WaitGroup
	stop := make(chan struct{})
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, filepath.Join(dir, "x"),
				unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, syscall.ENOENT) {
				t.Errorf("exchange: %v", err)
				return
			}
		}
	})
	rested := 0
	for range 3000 {
		m, err := Measure(t.Context(), dir, func(context.Context, time.Duration) { rested++ })
		if err != nil || m.Files > 3 {
			t.Fatalf("counted %+v, %v: there are two entries", m, err)
		}
	}
	close(stop)
	swapping.Wait()
	if rested == 0 {
		t.Error("nobody was told of the work")
	}
}

// TestAdmit: Admit is called with the bytes and files by which a write makes the root grow.
func TestAdmit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var asked []string
	full := errors.New("full")
	r, err := Open(dir, Options{Admit: func(bytes, files int64) error {
		asked = append(asked, fmt.Sprint(bytes, files))
		if bytes > 100 {
			return full
		}
		return nil
	}})
	must(t, err)
	defer r.Close()
	must(t, r.Write(t.Context(), "f", make([]byte, 100), workspacefs.Create, nil))
	must(t, r.Write(t.Context(), "f", make([]byte, 40), workspacefs.Replace, nil))
	must(t, r.Write(t.Context(), "f", make([]byte, 50), workspacefs.Append, nil))
	must(t, r.Write(t.Context(), "f", make([]byte, 90), workspacefs.InPlace, nil))
	if err := r.Write(t.Context(), "d/g", make([]byte, 101), workspacefs.Create, nil); !errors.Is(err, full) {
		t.Errorf("what is not admitted: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "d")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made for what was not admitted: %v", err)
	}
	if got, want := fmt.Sprint(asked), "[100 1 -60 0 50 0 0 0 101 1]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}
