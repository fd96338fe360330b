//go:build linux

package local_test

import (
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/providertest"
)

func open(tb testing.TB, change func(*local.Options)) *local.Provider {
	tb.Helper()
	dir := tb.TempDir()
	o := local.Options{StateDir: dir + "/state", Workspaces: dir + "/workspaces"}
	if change != nil {
		change(&o)
	}
	p, err := local.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func TestConformance(t *testing.T) {
	providertest.Test(t, func(tb testing.TB) providers.Provider { return open(tb, nil) })
}
