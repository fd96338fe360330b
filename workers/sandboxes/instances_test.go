package sandboxes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// keeps is a provider that has persistent instances and runs nothing.
type keeps struct{ tied bool }

func (k keeps) Profile() providers.Profile {
	return providers.Profile{Name: "fake", Shell: "bash", Persistent: true, JobsEndWithWorker: k.tied}
}

func (keeps) Run(context.Context, providers.Command) (providers.Result, error) {
	return providers.Result{}, schemas.OpErrorf(schemas.Unsupported, "run", "nothing is run here")
}

func (keeps) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{ID: key, Epoch: "a"}, nil
}

func (keeps) Release(context.Context, schemas.Ref) error { return nil }

// records returns a record for every sandbox and workspace.
type records struct{}

func (records) Sandbox(_ context.Context, a schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error) {
	return schemas.Sandbox{ID: id, Account: a}, nil
}

func (records) Workspace(_ context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	return schemas.Workspace{ID: id, Account: a}, nil
}

func forEachKind(t *testing.T, f func(*testing.T, *Instances)) {
	for name, tied := range map[string]bool{"ends with its worker": true, "outlives its worker": false} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				f(t, New(Options{
					Bus: b, Provider: keeps{tied}, Name: "fake", Records: records{}, Every: time.Minute,
					Lease: leases.New(b, leases.Record{Worker: "worker_1"}, nil, nil), WithJobs: func() map[schemas.Ref]bool { return nil },
				}))
			})
		})
	}
}

func call() schemas.Call {
	return schemas.Call{ID: "call_1", Account: "acct_1", Sandbox: "sb_1", Workspace: "ws_1", Tool: schemas.ToolBash}
}

// Different goroutines record that an instance is in use, ready and ending; no change is lost.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestNoChangeOfAnInstanceIsLost(t *testing.T) {
	forEachKind(t, func(t *testing.T, b *Instances) {
		const changes = 40
		c := call()
		ref := schemas.Ref{ID: Key(c), Epoch: "a"}
		if err := b.owners.own(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		h := b.claimed(Key(c))
		if err := b.admit(t.Context(), h, h.rev, Request{Call: c}, ref); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range changes {
			all.Go(func() {
				err := b.change(t.Context(), Key(c), h, func(row *schemas.Instance) error {
					row.Hooking += "x"
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := len(h.row.Hooking); got != changes {
			t.Errorf("%d of %d changes are there", got, changes)
		}
	})
}

// The stream may be recreated while workers run: its new records then have lower revisions than those that workers know.
func TestALowerRevisionOnTheLogCounts(t *testing.T) {
	forEachKind(t, func(t *testing.T, b *Instances) {
		c := call()
		ref := schemas.Ref{ID: Key(c), Epoch: "a"}
		if err := b.owners.own(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		h := b.claimed(Key(c))
		if err := b.admit(t.Context(), h, h.rev, Request{Call: c}, ref); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		there := h.rev
		h.rev += 1000 // the revision in the former stream
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		used := b.Bus.Now().Add(time.Hour)
		if err := b.change(ctx, Key(c), h, func(row *schemas.Instance) error { row.Used = used; return nil }); err != nil {
			t.Fatal(err)
		}
		if h.rev != there+1 || !h.row.Used.Equal(used) {
			t.Errorf("revision %d, want %d; used %s", h.rev, there+1, h.row.Used)
		}
		if err := b.rows.Delete(t.Context(), b.rowKey(Key(c))); err != nil {
			t.Fatal(err)
		}
		err := b.admit(ctx, h, h.rev, Request{Call: c}, ref)
		if errors.Is(err, errGone) { // it may have been released, so it is reserved again
			err = b.admit(ctx, h, h.rev, Request{Call: c}, ref)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.change(ctx, Key(c), h, func(row *schemas.Instance) error { row.Used = used.Add(time.Hour); return nil }); err != nil {
			t.Fatal(err)
		}
		if p, err := b.rows.Get(ctx, b.rowKey(Key(c))); err != nil || p.Value.Ref != ref {
			t.Errorf("after the row was lost: %+v, %v", p.Value, err)
		}
	})
}

// A call uses its instance until it leaves, which it may do repeatedly. A call whose scripts fail uses none.
func TestAStayEndsOnce(t *testing.T) {
	forEachKind(t, func(t *testing.T, b *Instances) {
		q := Request{
			Call: call(), Interruptible: func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
			Hooked: func() error { return nil },
		}
		inside := func() int { return b.list()[Key(q.Call)].calls }
		first, err := b.Acquire(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		second, err := b.Acquire(t.Context(), q)
		if err != nil || inside() != 2 {
			t.Fatalf("%d calls are inside, %v", inside(), err)
		}
		first.Leave()
		first.Leave()
		if inside() != 1 {
			t.Errorf("%d calls are inside after one has left", inside())
		}
		q.Sandbox.OnResume = []string{"exit 1"}
		if _, err := b.Acquire(t.Context(), q); err == nil || inside() != 1 {
			t.Errorf("%d calls are inside, %v: the scripts of one could not run", inside(), err)
		}
		second.Leave()
		if inside() != 0 {
			t.Errorf("%d calls are inside after all have left", inside())
		}
		(*Stay)(nil).Leave()
	})
}
