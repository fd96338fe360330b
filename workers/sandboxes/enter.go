package sandboxes

import (
	"context"

	"github.com/sandjet/sandjet/schemas"
)

// Sandbox returns the id of the sandbox record to which the instance belongs.
func (s *Stay) Sandbox() schemas.SandboxID { return s.sandbox }

// Enter begins a stay in a live instance for a workspace, of any sandbox. It creates, resumes and prepares nothing. It returns false if
// there is no ready instance, another worker owns it, or its record cannot be read. The instance is in use until Leave.
func (b *Instances) Enter(ctx context.Context, account schemas.AccountID, workspace schemas.WorkspaceID) (*Stay, bool) {
	if b.reserver == nil {
		return nil, false
	}
	live := map[string]*instance{}
	b.mu.Lock()
	for key, h := range b.held {
		if h.row.Account == account && h.row.Workspace == workspace && b.enterable(h) {
			live[key] = h
		}
	}
	b.mu.Unlock()
	for key, h := range live {
		if s, err := b.enter(ctx, key, h); err == nil {
			return s, true
		}
	}
	return nil, false
}

// enterable reports whether an instance is ready, as far as this worker knows. The caller holds the mutex.
func (b *table) enterable(h *instance) bool {
	r := h.row
	mine := !b.tied || r.Worker == b.me() && b.Lease.KeptSince(h.seen)
	return mine && r.State == schemas.InstanceReady && !r.Ref.IsZero() && !r.Hooked.IsZero() && r.Wanted.State == "" &&
		b.Bus.Now().Before(r.Deadline)
}

// enter counts a stay, as admit does for a call. errGone: the instance is no longer ready.
func (b *Instances) enter(ctx context.Context, key string, h *instance) (*Stay, error) {
	if !b.tied { // any worker may have paused or ended it
		if err := b.reload(ctx, key, h, b.revision(h)); err != nil {
			return nil, err
		}
	}
	s, now := &Stay{in: b.table, at: h}, b.Bus.Now()
	counted := false
	err := b.change(ctx, key, h, func(row *schemas.Instance) error {
		if !b.enterable(h) {
			return errGone
		}
		s.ref, s.sandbox = row.Ref, row.Sandbox
		if !b.tied && now.Sub(row.Used) >= usedFresh/2 { // otherwise other workers would take it for unused
			row.Used = now
		}
		if !counted {
			h.calls++
			h.used = now
			counted = true
		}
		return nil
	})
	if err != nil {
		if counted {
			b.mu.Lock()
			h.calls--
			b.mu.Unlock()
		}
		return nil, err
	}
	return s, nil
}
