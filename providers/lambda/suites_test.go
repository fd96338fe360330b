//go:build linux

package lambda_test

import (
	"context"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/providers/lambda/lambdatest"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools/boxtest"
)

// TestConformance is the whole suite in the long form, but for what needs a run to be followed or ended before its end.
func TestConformance(t *testing.T) {
	with := []providertest.Option{providertest.Declares(lambda.Declared())}
	if !longtest.Asked() {
		with = append(with, providertest.Groups("Profile", "Isolation", "Run/an exit code is a result", "Run/what must not begin is not started",
			"Run/standard input arrives whole", "Run/the environment is cleared", "Run/files of a workspace stay",
			"Run/many runs do not mix", "End/a timeout kills the whole tree",
			"End/a timeout keeps what was printed", "End/a process left in the background does not hold up the run",
			"End/a fresh box leaves no process", "Output/every byte comes through", "Output/above the limit head and tail are kept"))
	}
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		p, _ := start(tb, lambdatest.Options{}, nil)
		return p
	}, with...)
}

// workspaces is a provider as the suite of tools wants one: its box is a workspace.
type workspaces struct{ *lambda.Provider }

func (workspaces) Reserve(context.Context, string, providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{}, nil
}
func (workspaces) Release(context.Context, schemas.Ref) error { return nil }

// TestTools runs the suite of compiled tools in functions, with the files of one workspace.
func TestTools(t *testing.T) {
	longtest.Only(t, "the suite of compiled tools once more, in functions of Lambda")
	p, s := start(t, lambdatest.Options{}, nil)
	if got := ok(t, p, command("pwd -P")); got != "/mnt/workspaces/"+namespace {
		t.Errorf("it starts in %s", got)
	}
	boxtest.Run(t, workspaces{p}, func(m providers.Mount) string { return s.Workspace(m.Namespace) }, nil)
}
