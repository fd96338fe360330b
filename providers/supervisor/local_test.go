//go:build linux

package supervisor_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// plain is the local provider without its own jobs: what a provider of boxes elsewhere is.
type plain struct{ p *local.Provider }

var (
	_ providers.Reserver = plain{}
	_ providers.Profiler = plain{}
)

func (w plain) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	return w.p.Run(ctx, cmd)
}

func (w plain) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	return w.p.Reserve(ctx, key, spec)
}

func (w plain) Release(ctx context.Context, ref schemas.Ref) error { return w.p.Release(ctx, ref) }

func (w plain) Profile() providers.Profile { return w.p.Profile() }

func TestConformanceInLocalBoxes(t *testing.T) {
	longtest.Only(t, "the suite of jobs once more, in boxes")
	providertest.TestJobs(t, func(tb testing.TB) providers.Provider {
		tb.Helper()
		dir := tb.TempDir()
		p, err := local.New(local.Options{StateDir: filepath.Join(dir, "state"), Workspaces: filepath.Join(dir, "workspaces"),
			Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll}})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := p.Close(); err != nil {
				tb.Error(err)
			}
		})
		return supervisor.Wrap(plain{p}, supervisor.Options{})
	})
}
