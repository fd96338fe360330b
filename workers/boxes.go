package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// boxes are the kept boxes that this worker has reserved. Those whose sandbox or workspace has been
// deleted since are released, with the jobs in them: nobody could reach them any more.
//
// It keeps a few words for each box, for as long as its records are there.
type boxes struct {
	specs Specs
	log   *slog.Logger
	every time.Duration

	mu   sync.Mutex
	held map[string]*heldBox // by key
}

// heldBox is one kept box.
type heldBox struct {
	ref       schemas.Ref // zero: calls of it are in hand, none has reserved it yet
	account   schemas.AccountID
	sandbox   schemas.SandboxID
	workspace schemas.WorkspaceID
	calls     int // in hand
}

func newBoxes(specs Specs, every time.Duration, log *slog.Logger) *boxes {
	return &boxes{specs: specs, every: every, log: log, held: map[string]*heldBox{}}
}

// enter notes that a call is in hand whose box must stay, until leave is called.
func (b *boxes) enter(c schemas.Call) (leave func()) {
	key := boxKey(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	if h == nil {
		h = &heldBox{account: c.Account, sandbox: c.Sandbox, workspace: c.Workspace}
		b.held[key] = h
	}
	h.calls++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if h.calls--; h.calls == 0 && h.ref.IsZero() {
			delete(b.held, key)
		}
	}
}

// keep notes the box that a call in hand has reserved.
func (b *boxes) keep(key string, ref schemas.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h != nil {
		h.ref = ref
	}
}

// look releases what is orphaned, again and again until ctx ends.
func (b *boxes) look(ctx context.Context, r providers.Reserver) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for key, h := range b.idle() {
			if !b.orphaned(ctx, h) || !b.forget(key, h.ref) {
				continue
			}
			if err := r.Release(ctx, h.ref); err != nil && ctx.Err() == nil {
				b.log.Warn("the box of a deleted sandbox is left behind", "box", key, "error", err)
				continue
			}
			b.log.Info("the box of a deleted sandbox is released", "box", key)
		}
	}
}

// idle copies the boxes that no call has in hand.
func (b *boxes) idle() map[string]heldBox {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle := map[string]heldBox{}
	for key, h := range b.held {
		if h.calls == 0 {
			idle[key] = *h
		}
	}
	return idle
}

// orphaned reports whether a record of the box is certainly gone.
func (b *boxes) orphaned(ctx context.Context, h heldBox) bool {
	_, sandbox := b.specs.Sandbox(ctx, h.account, h.sandbox)
	_, workspace := b.specs.Workspace(ctx, h.account, h.workspace)
	return errors.Is(sandbox, schemas.ErrNotFound) || errors.Is(workspace, schemas.ErrNotFound)
}

// forget takes a box out and reports whether it is still the same and nobody has it in hand.
func (b *boxes) forget(key string, ref schemas.Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	if h == nil || h.calls > 0 || h.ref != ref {
		return false
	}
	delete(b.held, key)
	return true
}
