package workers

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// deletable is records of which some may be gone.
type deletable struct {
	specs

	sandboxGone, workspaceGone, away atomic.Bool
}

func (d *deletable) Sandbox(ctx context.Context, a schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error) {
	switch {
	case d.away.Load():
		return schemas.Sandbox{}, schemas.Errorf(schemas.Unavailable, "", "the records are away")
	case d.sandboxGone.Load():
		return schemas.Sandbox{}, schemas.Errorf(schemas.NotFound, "", "there is no sandbox")
	}
	return d.specs.Sandbox(ctx, a, id)
}

func (d *deletable) Workspace(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	if d.workspaceGone.Load() {
		return schemas.Workspace{}, schemas.Errorf(schemas.NotFound, "", "there is no workspace")
	}
	return d.specs.Workspace(ctx, a, id)
}

// keeps is a provider that notes which boxes were released.
type keeps struct {
	fake

	released atomic.Pointer[[]schemas.Ref]
}

func (*keeps) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{ID: key, Epoch: "1"}, nil
}

func (k *keeps) Release(_ context.Context, r schemas.Ref) error {
	next := append(slices.Clone(k.list()), r)
	k.released.Store(&next)
	return nil
}

func (k *keeps) list() []schemas.Ref {
	if p := k.released.Load(); p != nil {
		return *p
	}
	return nil
}

func TestTheBoxOfADeletedSandboxIsReleased(t *testing.T) {
	for name, remove := range map[string]func(*deletable){
		"sandbox":   func(d *deletable) { d.sandboxGone.Store(true) },
		"workspace": func(d *deletable) { d.workspaceGone.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				records, p := &deletable{specs: specs{persistent: true}}, &keeps{}
				goOn := make(chan struct{})
				p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if cmd.Script == "slow" {
						<-goOn
					}
					return hello(ctx, cmd)
				}
				w.employ(p, func(wk *Worker) { wk.Specs = records })
				w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.Completed)
				records.away.Store(true)
				time.Sleep(5 * time.Minute)
				records.away.Store(false)
				time.Sleep(5 * time.Minute)
				if got := p.list(); len(got) != 0 {
					t.Fatalf("released %v while its records are there", got)
				}
				slow := w.publish(w.call("call_2", schemas.ToolBash, func(c *schemas.Call) { c.Input = []byte(`{"command":"slow"}`) }))
				time.Sleep(time.Second)
				remove(records)
				time.Sleep(time.Minute)
				if got := p.list(); len(got) != 0 {
					t.Errorf("released %v while a call is in it", got)
				}
				close(goOn)
				w.want(slow, schemas.Completed)
				time.Sleep(time.Minute)
				if got := p.list(); len(got) != 1 || got[0].ID != "acct_1.sb_1.ws_1" {
					t.Errorf("released %v, want the box once", got)
				}
			})
		})
	}
}
