package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DefaultApprovalSweep is how often approvals are looked at.
const DefaultApprovalSweep = 5 * time.Second

// ApprovalSweeper ends approvals that nobody answered in time, asks where the process that admitted the call could
// not, and does what follows from an answer where the process that took it died. One per deployment is enough, more do no harm.
type ApprovalSweeper struct {
	Bus *streams.Bus
	Log *slog.Logger // nil: silent
	// Every is the time between two looks. Default [DefaultApprovalSweep]. What was answered is left to
	// the process that took the answer for so long.
	Every time.Duration
}

// openApproval is what is remembered of an approval that is not done: not its call, which may be large.
type openApproval struct {
	account schemas.AccountID
	id      schemas.ApprovalID
	pending bool
	asked   bool
	due     time.Time // from when on it is looked after
}

// Run sweeps until ctx ends, and returns nil then. It may be called once.
func (s *ApprovalSweeper) Run(ctx context.Context) error {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Every = cmp.Or(s.Every, DefaultApprovalSweep)
	open := &streams.Mirror[schemas.Approval, openApproval]{
		Source: lifecycle.OpenApprovals(s.Bus), Keep: s.keep,
		Unreadable: func(key string, err error) {
			s.Log.Warn("record of an approval not read, it is not looked after", "approval", key, "err", err)
		},
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { _ = open.Run(ctx) }) // it ends with ctx alone
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.sweep(ctx, open.All())
		}
	}
}

// keep is what is remembered of an approval, and whether it has to be looked after.
func (s *ApprovalSweeper) keep(p streams.Pair[schemas.Approval]) (openApproval, bool) {
	a := p.Value
	o := openApproval{account: a.Account, id: a.ID, pending: a.State == schemas.ApprovalPending, asked: a.Asked, due: a.Expires}
	switch {
	case !o.pending:
		o.due = a.Decided.Add(s.Every)
	case !o.asked:
		o.due = a.Requested.Add(s.Every)
	}
	return o, !a.Done
}

// sweep looks once at every approval that is due.
func (s *ApprovalSweeper) sweep(ctx context.Context, open map[string]openApproval) {
	now := s.Bus.Now()
	var due []openApproval
	for _, o := range open {
		if !now.Before(o.due) {
			due = append(due, o)
		}
	}
	approvals := admission.Approvals{Bus: s.Bus, Log: s.Log}
	for _, o := range due {
		act := approvals.Finish
		switch {
		case o.pending && !o.asked:
			act = approvals.Ask
		case o.pending:
			act = approvals.Expire
		}
		if err := act(ctx, o.account, o.id); err != nil && ctx.Err() == nil {
			s.Log.Warn("an approval is not looked after: that is tried again", "approval", o.id, "error", err)
		}
	}
}
