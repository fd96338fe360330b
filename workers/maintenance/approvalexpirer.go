package maintenance

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DefaultApprovalEvery is the default time between two rounds of an [ApprovalExpirer].
const DefaultApprovalEvery = 5 * time.Second

// ApprovalExpirer expires approvals that were not answered in time. It also publishes approval.requested if the process that admitted the
// call has not, and carries out an answer if the process that received it has not.
//
// Of all ApprovalExpirers, one does the work at a time; another takes over within [streams.DutyTakenOver]. Two at once do no harm: each
// step is a write on the condition that the approval has not changed since it was read.
type ApprovalExpirer struct {
	Bus *streams.Bus
	Log *slog.Logger // nil: silent
	// Every is the time between two rounds. 0: [DefaultApprovalEvery]. For so long, a request or an answer is left to the process that
	// received it.
	Every time.Duration

	due  rounds[openApproval]
	logs sometimes.Keyed // rate-limits logs about approvals that cannot be handled
}

// openApproval is what is kept in memory of an approval that is not done. It does not contain the call, which may be large.
type openApproval struct {
	account schemas.AccountID
	id      schemas.ApprovalID
	pending bool
	asked   bool
	due     time.Time // from then on it is handled
}

// Run handles approvals until ctx ends, and returns nil then. It may be called once.
func (x *ApprovalExpirer) Run(ctx context.Context) error {
	if x.Log == nil {
		x.Log = slog.New(slog.DiscardHandler)
	}
	x.Every, x.logs.Every = cmp.Or(x.Every, DefaultApprovalEvery), repeatedAfter
	return byOne(ctx, x.Bus, "approvals", x.Log, x.serve)
}

// serve handles approvals until ctx ends.
func (x *ApprovalExpirer) serve(ctx context.Context, tenure *streams.Tenure) {
	open := &streams.Mirror[schemas.Approval, openApproval]{
		Source: lifecycle.OpenApprovals(x.Bus), Keep: x.keep,
		Unreadable: func(p streams.BucketEntry[schemas.Approval], err error) {
			x.Log.Warn("record of an approval not readable", "approval", p.Key, "error", err)
		},
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { _ = open.Run(ctx) }) // it ends only with ctx
	for pause := x.Every; wait.Sleep(ctx, pause); {
		pause = x.Every
		if x.look(ctx, tenure, open.All()) {
			pause = min(nextRound, x.Every)
		}
	}
}

// keep returns what is kept in memory of an approval, and whether it still has to be handled.
func (x *ApprovalExpirer) keep(p streams.BucketEntry[schemas.Approval]) (openApproval, bool) {
	a := p.Value
	o := openApproval{account: a.Account, id: a.ID, pending: a.State == schemas.ApprovalPending, asked: a.Asked, due: a.Expires}
	switch {
	case !o.pending:
		o.due = a.Decided.Add(x.Every)
	case !o.asked:
		o.due = a.Requested.Add(x.Every)
	}
	return o, !a.Done
}

func (o openApproval) of() schemas.AccountID { return o.account }

func (o openApproval) key() string { return schemas.ApprovalKey(o.account, o.id) }

// older orders approvals by their due times.
func (o openApproval) older(other openApproval) int {
	return cmp.Or(o.due.Compare(other.due), cmp.Compare(o.account, other.account), cmp.Compare(o.id, other.id))
}

// look handles the due approvals, for one round. It reports whether some are left.
func (x *ApprovalExpirer) look(ctx context.Context, tenure *streams.Tenure, open map[string]openApproval) (left bool) {
	now := x.Bus.Now()
	var due []openApproval
	for _, o := range open {
		if !now.Before(o.due) {
			due = append(due, o)
		}
	}
	approvals := admission.Approvals{Bus: x.Bus, Log: x.Log}
	x.due.account, x.due.key, x.due.first = openApproval.of, openApproval.key, openApproval.older
	return x.due.run(ctx, due, func(o openApproval) error {
		if err := tenure.Held(); err != nil {
			return err // this process was suspended, and another has taken over
		}
		act := approvals.Finish
		switch {
		case o.pending && !o.asked:
			act = approvals.Ask
		case o.pending:
			act = approvals.Expire
		}
		err := act(ctx, o.account, o.id)
		if err != nil && ctx.Err() == nil && x.logs.Due(o.key()) {
			x.Log.Warn("overdue approval not handled, retrying", "approval", o.id, "error", err)
		}
		return err
	})
}
