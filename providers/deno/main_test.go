package deno_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) {
	longtest.SideBySide()
	os.Exit(m.Run())
}

const (
	account  = schemas.AccountID("acct_deno")
	patience = 60 * time.Second
)

// start starts a service of the test's own, and a provider on it. When the test ends, no sandbox may be left.
func start(tb testing.TB, o denotest.Options, change func(*deno.Options)) (*deno.Provider, *denotest.Service) {
	tb.Helper()
	s, url := denotest.Start(tb, o)
	p := on(tb, url, change)
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
		if left := s.Boxes(); len(left) > 0 {
			tb.Errorf("sandboxes are left: %v", left)
		}
	})
	return p, s
}

// on opens a provider on a service.
func on(tb testing.TB, url string, change func(*deno.Options)) *deno.Provider {
	tb.Helper()
	o := deno.Options{
		Token: denotest.Token, APIURL: url, SandboxURL: url,
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
	}
	if change != nil {
		change(&o)
	}
	p, err := deno.Open(o)
	testwait.OK(tb, err)
	return p
}

func spec() providers.Spec {
	return providers.Spec{Account: account, Mounts: []providers.Mount{{Namespace: "ws-1"}}, Network: schemas.Network{Mode: schemas.DenyAll}}
}

// command is script in a sandbox of its own with a workspace.
func command(script string) providers.Command {
	s := spec()
	return providers.Command{Script: script, Mounts: s.Mounts, Network: s.Network, Spec: s, Timeout: patience}
}

// in is script in a kept sandbox.
func in(ref schemas.Ref, script string) providers.Command {
	cmd := command(script)
	cmd.Sandbox = ref
	return cmd
}

// reserve keeps a sandbox until the end of the test.
func reserve(t *testing.T, p *deno.Provider) schemas.Ref {
	t.Helper()
	ref, err := p.Reserve(t.Context(), t.Name(), spec())
	testwait.OK(t, err)
	t.Cleanup(func() { testwait.OK(t, p.Release(context.WithoutCancel(t.Context()), ref)) })
	return ref
}

// ok runs cmd, which must succeed, and returns what it printed.
func ok(t *testing.T, p *deno.Provider, cmd providers.Command) string {
	t.Helper()
	return cloudtest.OK(t, p, cmd)
}
