package supervisor_test

import (
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
)

// open wraps a provider of bare processes.
func open(tb testing.TB, o supervisor.Options) providers.Provider {
	tb.Helper()
	b := providertest.NewBare(tb.TempDir())
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return supervisor.Wrap(b, o)
}

func TestConformance(t *testing.T) {
	providertest.TestJobs(t, func(tb testing.TB) providers.Provider { return open(tb, supervisor.Options{}) })
}
