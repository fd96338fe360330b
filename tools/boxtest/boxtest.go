// Package boxtest runs the suite of the tools (package toolstest) against a provider, with calls compiled to programs in its boxes.
package boxtest

import (
	"context"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/tools/toolstest"
)

// KeepingProvider is a provider with persistent instances.
type KeepingProvider interface {
	providers.Provider
	providers.Reserver
}

// Run runs every case in one persistent instance of p, as the programs that calls are compiled to. The files of a case are moved into the
// instance's workspace and back; root returns the workspace's path on this host, once it exists. accept is that of [toolstest.Run].
func Run(t *testing.T, p KeepingProvider, root func(m providers.Mount) string, accept map[string]string) {
	t.Helper()
	const account = schemas.AccountID("acct_1")
	m := providers.Mount{Namespace: "fs-1"}
	spec := providers.Spec{Account: account, Mounts: []providers.Mount{m}, Network: schemas.Network{Mode: schemas.DenyAll}}
	ref, err := p.Reserve(t.Context(), t.Name(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Release(context.WithoutCancel(t.Context()), ref); err != nil {
			t.Error(err)
		}
	})
	there := root(m)
	var workspace sync.Mutex // all cases share one workspace
	toolstest.Run(t, func(ctx context.Context, tb testing.TB, dir string, call schemas.Call, input any) schemas.Result {
		tb.Helper()
		plan, err := tools.Compile(call, input)
		if err != nil {
			e := schemas.Public(err)
			return schemas.Result{Call: call.ID, Tool: call.Tool, Status: schemas.StatusFailed, Error: e, Text: "Error: " + e.Message}
		}
		workspace.Lock()
		defer workspace.Unlock()
		move(tb, there, dir, there)
		defer move(tb, there, there, dir)
		cmd := plan.Command()
		cmd.Dir, cmd.Mounts, cmd.Timeout, cmd.Spec, cmd.Network, cmd.Sandbox = m.Path(), spec.Mounts, time.Minute, spec, spec.Network, ref
		r, err := p.Run(ctx, cmd)
		if err != nil {
			tb.Fatalf("run: %v", err)
		}
		result := plan.Render(r)
		if result.Error != nil && result.Error.Code == schemas.Unavailable {
			tb.Logf("stdout: %.500q\nstderr: %.500q", r.Stdout, r.Stderr)
		}
		return result
	}, accept)
}

// move moves all entries of a folder to another, and gives them the owner of a third.
func move(tb testing.TB, owner, from, to string) {
	tb.Helper()
	const script = `shopt -s dotglob nullglob; for f in "$2"/*; do chown -hR --reference="$1" "$f" && mv -- "$f" "$3"/ || exit; done`
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), "bash", "-c", script, "move", owner, from, to)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
}
