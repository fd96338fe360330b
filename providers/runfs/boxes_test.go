//go:build linux

package runfs_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// TestRunFSInBoxes: the contract holds where runs are in boxes of the local provider.
func TestRunFSInBoxes(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the contract of files once more, by runs in boxes")
	dir := t.TempDir()
	p, err := local.New(local.Options{StateDir: filepath.Join(dir, "state"), Workspaces: filepath.Join(dir, "workspaces"), Pool: -1})
	if errors.Is(err, schemas.ErrUnsupported) {
		longtest.Missing(t, "this host cannot isolate: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	var n atomic.Int64
	providertest.RunFS(t, func(t *testing.T) providertest.Workspace { t.Helper(); return workspaceOf(t, p, n.Add(1)) },
		"a long directory is listed to its end", "a link that is exchanged for a directory leads nowhere else") // thousands of runs
}

// workspaceOf is a workspace of its own in a kept sandbox of p, whose files are reached by runs in there.
func workspaceOf(t *testing.T, p *local.Provider, n int64) providertest.Workspace {
	t.Helper()
	m := providers.Mount{Namespace: fmt.Sprint("fs-", n)}
	spec := providers.Spec{Account: "acct_1", Mounts: []providers.Mount{m}, Network: schemas.Network{Mode: schemas.DenyAll}}
	ref, err := p.Reserve(t.Context(), fmt.Sprint("box-", n), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Release(context.WithoutCancel(t.Context()), ref); err != nil {
			t.Error(err)
		}
	})
	run := func(ctx context.Context, c providers.Command) (providers.Result, error) {
		c.Dir, c.Mounts, c.Spec, c.Network, c.Sandbox, c.Timeout = m.Path(), spec.Mounts, spec, spec.Network, ref, time.Minute
		return p.Run(ctx, c)
	}
	sh := func(t *testing.T, words ...string) {
		t.Helper()
		var script strings.Builder
		for _, w := range words {
			fmt.Fprintf(&script, "'%s' ", strings.ReplaceAll(w, "'", `'\''`))
		}
		r, err := run(t.Context(), providers.Command{Script: script.String()})
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("%q: %v, exit code %d: %s", words, err, r.ExitCode, r.Stderr)
		}
	}
	return providertest.Workspace{
		Open: func(_ *testing.T, readOnly bool) workspacefs.FS {
			return runfs.New(runfs.Options{Run: run, ReadOnly: readOnly})
		},
		Symlink:  func(t *testing.T, target, name string) { t.Helper(); sh(t, "ln", "-s", "--", target, name) },
		HardLink: func(t *testing.T, old, name string) { t.Helper(); sh(t, "ln", "--", old, name) },
		FIFO:     func(t *testing.T, name string) { t.Helper(); sh(t, "mkfifo", "--", name) },
	}
}
