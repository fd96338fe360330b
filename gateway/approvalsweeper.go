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

	mu   sync.Mutex
	open map[string]openApproval
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
	s.open = map[string]openApproval{}
	var mirror sync.WaitGroup
	defer mirror.Wait()
	mirror.Go(func() { s.mirror(ctx) })
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.sweep(ctx)
		}
	}
}

func (s *ApprovalSweeper) mirror(ctx context.Context) {
	for p, err := range lifecycle.OpenApprovals(s.Bus).Watch(ctx) {
		if err != nil {
			s.Log.Warn("the record of an approval cannot be read: it is not looked after", "approval", p.Key, "error", err)
			continue
		}
		s.mu.Lock()
		if a := p.Value; p.Deleted || a.Done {
			delete(s.open, p.Key)
		} else {
			o := openApproval{account: a.Account, id: a.ID, pending: a.State == schemas.ApprovalPending, asked: a.Asked, due: a.Expires}
			switch {
			case !o.pending:
				o.due = a.Decided.Add(s.Every)
			case !o.asked:
				o.due = a.Requested.Add(s.Every)
			}
			s.open[p.Key] = o
		}
		s.mu.Unlock()
	}
}

// sweep looks once at every approval that is due.
func (s *ApprovalSweeper) sweep(ctx context.Context) {
	now := s.Bus.Now()
	var due []openApproval
	s.mu.Lock()
	for _, o := range s.open {
		if !now.Before(o.due) {
			due = append(due, o)
		}
	}
	s.mu.Unlock()
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
