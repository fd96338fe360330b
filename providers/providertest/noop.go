package providertest

import (
	"context"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Noop is a provider that runs nothing: every command succeeds at once, without output. Benchmarks measure the overhead around a provider
// with it. It is safe for concurrent use.
type Noop struct{}

var (
	_ providers.Provider = Noop{}
	_ providers.Reserver = Noop{}
	_ providers.Profiler = Noop{}
)

// Run returns at once. Like every provider it refuses a cancelled context.
func (Noop) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	if err := ctx.Err(); err != nil {
		return providers.Result{Runtime: "noop"}, err
	}
	if err := cmd.MayBegin(); err != nil {
		return providers.Result{Runtime: "noop"}, err
	}
	return providers.Result{Runtime: "noop", Started: true, Sandbox: cmd.Sandbox}, nil
}

// Reserve returns the same box for the same key, for ever.
func (Noop) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{ID: key, Epoch: "1"}, nil
}

// Release does nothing.
func (Noop) Release(context.Context, schemas.Ref) error { return nil }

// Profile returns a profile that promises everything, since nothing is run.
func (Noop) Profile() providers.Profile {
	return providers.Profile{
		Name:        "noop",
		Networks:    []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		Isolation:   schemas.Isolation{Level: "L0"},
		Persistent:  true,
		MaxTimeout:  schemas.Duration(schemas.MaxTimeout),
		MaxMemory:   schemas.MaxMemoryLimit << 20,
		Jobs:        true,
		MaxOutput:   schemas.MaxOutputLimit,
		MemoryLimit: true, PidsLimit: true, CPULimit: true,
		Shell: "none",
	}
}
