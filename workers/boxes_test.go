package workers

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// deletable is records of which some may be gone.
type deletable struct {
	specs

	sandboxGone, workspaceGone, away, lost atomic.Bool
}

func (d *deletable) Sandbox(ctx context.Context, a schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error) {
	switch {
	case d.away.Load():
		return schemas.Sandbox{}, schemas.Errorf(schemas.Unavailable, "the records are away")
	case d.lost.Load():
		return schemas.Sandbox{}, schemas.Errorf(schemas.NotFound, "there is no sandbox")
	case d.sandboxGone.Load():
		return schemas.Sandbox{}, schemas.Wrap(schemas.NotFound, "", "there is no sandbox", streams.ErrDeleted)
	}
	return d.specs.Sandbox(ctx, a, id)
}

func (d *deletable) Workspace(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	if d.workspaceGone.Load() {
		return schemas.Workspace{}, schemas.Wrap(schemas.NotFound, "", "there is no workspace", streams.ErrDeleted)
	}
	return d.specs.Workspace(ctx, a, id)
}

// keeps is a provider whose boxes outlive their release. It notes which boxes were released. A box that a release has ended is created again with the
// next epoch.
type keeps struct {
	fake

	tied     bool // boxes end with their worker
	epoch    atomic.Int64
	released atomic.Pointer[[]schemas.Ref]
}

func (k *keeps) Profile() providers.Profile {
	return providers.Profile{Name: "fake", Shell: "bash", Persistent: true, JobsEndWithWorker: k.tied}
}

func (k *keeps) ref(key string) schemas.Ref {
	return schemas.Ref{ID: key, Epoch: string(rune('a' + k.epoch.Load()))}
}

func (k *keeps) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return k.ref(key), nil
}

func (k *keeps) Release(_ context.Context, r schemas.Ref) error {
	if r == k.ref(r.ID) {
		k.epoch.Add(1)
	}
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

// scripts lists what was run, without what compiling adds.
func (k *keeps) scripts() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, c := range k.runs {
		all = append(all, strings.TrimSpace(c.Script))
	}
	return all
}

// eachKind runs a test with boxes that end with their worker, and with boxes that do not.
func eachKind(t *testing.T, f func(*testing.T, *world, *keeps)) {
	for name, tied := range map[string]bool{"boxes that end with their worker": true, "boxes that outlive their worker": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) { f(t, w, &keeps{tied: tied}) })
		})
	}
}

// command is a change of a call's input.
func command(text string) func(*schemas.Call) {
	return func(c *schemas.Call) { c.Input = []byte(`{"command":"` + text + `"}`) }
}

// patient gives a call the longest time.
func patient(c *schemas.Call) { c.Timeout = schemas.Duration(schemas.MaxTimeout) }

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestTheBoxOfADeletedSandboxIsReleased(t *testing.T) {
	natstest.Hours(t)
	for name, remove := range map[string]func(*deletable){
		"sandbox":   func(d *deletable) { d.sandboxGone.Store(true) },
		"workspace": func(d *deletable) { d.workspaceGone.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, w *world, p *keeps) {
				records := &deletable{specs: specs{persistent: true}}
				goOn := make(chan struct{})
				p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if cmd.Script == "slow" {
						<-goOn
					}
					return hello(ctx, cmd)
				}
				w.employ(p, func(wk *Worker) { wk.Specs = records })
				w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusCompleted)
				records.away.Store(true)
				time.Sleep(5 * time.Minute)
				records.away.Store(false)
				time.Sleep(5 * time.Minute)
				if got := p.list(); len(got) != 0 {
					t.Fatalf("released %v while its records are there", got)
				}
				slow := w.publish(w.call("call_2", schemas.ToolBash, command("slow"), patient))
				time.Sleep(time.Second)
				remove(records)
				time.Sleep(2 * time.Minute)
				if got := p.list(); len(got) != 0 {
					t.Errorf("released %v while a call is in it", got)
				}
				close(goOn)
				w.want(slow, schemas.StatusCompleted)
				time.Sleep(2 * time.Minute)
				if got := p.list(); len(got) != 1 || got[0].ID != "acct_1.sb_1.ws_1" {
					t.Errorf("released %v, want the box once", got)
				}
			})
		})
	}
}

// TestABoxOutlivesTheLossOfItsRecord: that there is no record does not mean that the sandbox was deleted.
func TestABoxOutlivesTheLossOfItsRecord(t *testing.T) {
	natstest.Hours(t)
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		records := &deletable{specs: specs{persistent: true}}
		w.employ(p, func(wk *Worker) { wk.Specs = records })
		w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusCompleted)
		records.lost.Store(true)
		time.Sleep(2 * schemas.DefaultIdleTimeout)
		if got := p.list(); len(got) != 0 {
			t.Fatalf("released %v, whose record may come back", got)
		}
		records.lost.Store(false)
		records.sandboxGone.Store(true)
		time.Sleep(2 * time.Minute)
		if got := p.list(); len(got) != 1 {
			t.Errorf("released %v of a deleted sandbox, want the box", got)
		}
	})
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestAnIdleBoxIsReleasedAndABusyOneIsNot(t *testing.T) {
	natstest.Hours(t)
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		const idle = 5 * time.Minute
		w.specs.persistent = true
		w.specs.change = func(s *schemas.Sandbox) { s.IdleTimeout = schemas.Duration(idle) }
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Script == "long" {
				time.Sleep(9 * time.Minute) // longer than it may be idle
			}
			return hello(ctx, cmd)
		}
		w.employ(p)
		long := w.publish(w.call("call_1", schemas.ToolBash, command("long"), patient))
		w.want(long, schemas.StatusCompleted)
		time.Sleep(idle - time.Minute)
		if got := p.list(); len(got) != 0 {
			t.Fatalf("released %v, which was in use or not idle for long enough", got)
		}
		time.Sleep(3 * time.Minute)
		if got := p.list(); len(got) != 1 {
			t.Fatalf("released %v, want the idle box once", got)
		}
		w.want(w.publish(w.call("call_2", schemas.ToolBash)), schemas.StatusCompleted)
	})
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestTheDeadlineOfABoxIsNotMovedByItsUse(t *testing.T) {
	natstest.Hours(t)
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.specs.persistent = true
		w.specs.change = func(s *schemas.Sandbox) { s.MaxLifetime = schemas.Duration(time.Hour) }
		w.employ(p)
		began := time.Now()
		for n := range 90 {
			w.want(w.publish(w.call("call_"+string(rune('0'+n/10))+string(rune('0'+n%10)), schemas.ToolBash)), schemas.StatusCompleted)
			time.Sleep(time.Minute)
			if age := time.Since(began); len(p.list()) > 0 && age < time.Hour {
				t.Fatalf("released after %s", age)
			}
		}
		if got := p.list(); len(got) != 1 {
			t.Errorf("released %v, want the first box once", got)
		}
	})
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestTheDeadlineOfABoxOutlivesItsWorker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		w.specs.change = func(s *schemas.Sandbox) {
			s.MaxLifetime, s.IdleTimeout = schemas.Duration(time.Hour), schemas.Duration(schemas.MaxIdleTimeout)
		}
		p := &keeps{}
		first := w.employ(p)
		w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusCompleted)
		first.retire()
		time.Sleep(50 * time.Minute)
		w.employ(p) // it has never used the box
		time.Sleep(5 * time.Minute)
		w.want(w.publish(w.call("call_2", schemas.ToolBash)), schemas.StatusCompleted)
		if got := p.list(); len(got) != 0 {
			t.Fatalf("released %v before its deadline", got)
		}
		time.Sleep(10 * time.Minute)
		if got := p.list(); len(got) != 1 {
			t.Errorf("released %v, want it at the first worker's deadline", got)
		}
	})
}
