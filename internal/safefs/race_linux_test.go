package safefs

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/workspacefs"
)

// patience is for what happens sooner or later.
const patience = 2 * time.Minute

// TestExchange swaps a directory and a link that leads out, again and again, while names below are read, written, listed and removed.
// Nothing outside may be seen or changed. It continues until each of these has found the directory in its place at least once.
//
//guarantee:a-run-stays-in-its-box
func TestExchange(t *testing.T) {
	t.Parallel()
	swaps := 100_000
	if !longtest.Asked() {
		swaps = 5_000
	}
	each(t, func(t *testing.T, r *Root, dir string) {
		outside := filepath.Join(dir, "..", "outside")
		must(t, os.Mkdir(outside, 0o755))
		must(t, os.WriteFile(filepath.Join(outside, "f"), []byte("outside"), 0o644))
		must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "d/f"), []byte("inside"), 0o644))
		must(t, os.Symlink("../outside", filepath.Join(dir, "x")))

		var swapping, working sync.WaitGroup
		var seen [4]atomic.Int64
		all := func() bool {
			for i := range seen {
				if seen[i].Load() == 0 {
					return false
				}
			}
			return true
		}
		stop := make(chan struct{})
		swapping.Go(func() {
			defer close(stop)
			began := time.Now()
			for n := 0; n < swaps || !all() && time.Since(began) < patience; n++ {
				if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, filepath.Join(dir, "x"),
					unix.RENAME_EXCHANGE); err != nil {
					t.Errorf("exchange: %v", err)
					return
				}
			}
		})
		work := func(i int, try func() bool) {
			working.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if try() {
							seen[i].Add(1)
						}
					}
				}
			})
		}
		work(0, func() bool {
			b, _, err := workspacefs.ReadFile(t.Context(), r, "d/f", 100)
			if string(b) == "outside" {
				t.Error("read from outside")
			}
			return err == nil
		})
		work(1, func() bool { return r.Write(t.Context(), "d/new", []byte("inside"), workspacefs.InPlace, nil) == nil })
		work(2, func() bool {
			return workspacefs.Walk(t.Context(), r, "d", plenty, func(path string, e workspacefs.Entry) error {
				if info, err := e.Info(); err == nil && path == "f" && info.Size == int64(len("outside")) {
					t.Error("listed from outside")
				}
				return nil
			}) == nil
		})
		work(3, func() bool { return r.MkdirAll(t.Context(), "d/sub") == nil && r.Remove(t.Context(), "d/sub") == nil })
		swapping.Wait()
		working.Wait()
		for i := range seen {
			if seen[i].Load() == 0 {
				t.Errorf("worker %d never got through: the test shows nothing", i)
			}
		}
		entries, err := os.ReadDir(outside)
		must(t, err)
		if content, err := os.ReadFile(filepath.Join(outside, "f")); len(entries) != 1 || string(content) != "outside" {
			t.Errorf("outside: %v, %q, %v", entries, content, err)
		}
	})
}
