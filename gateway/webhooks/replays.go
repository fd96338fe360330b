package webhooks

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/schemas"
)

const (
	replaysAtMost = 2 // that read and write the log at the same time
	replayPatient = 10 * time.Second
)

// replays limits concurrent replays: one per account, and replaysAtMost in total. It is safe for concurrent use.
type replays struct {
	accounts *quota.Ledger
	places   chan struct{}
}

func newReplays() *replays {
	return &replays{quota.NewLedger(1, 0), make(chan struct{}, replaysAtMost)}
}

// enter waits for a slot, which leave frees. Codes: exhausted (the account has a replay in progress), unavailable.
func (p *replays) enter(ctx context.Context, a schemas.AccountID) (leave func(), err error) {
	own, full := p.accounts.Take(a)
	if full != quota.Free {
		return nil, schemas.Errorf(schemas.Exhausted, "a replay of the account is in progress at this gateway: wait for its answer")
	}
	t := time.NewTimer(replayPatient)
	defer t.Stop()
	select {
	case p.places <- struct{}{}:
		return func() {
			<-p.places
			own.Release()
		}, nil
	case <-t.C:
	case <-ctx.Done():
	}
	own.Release()
	return nil, schemas.Errorf(schemas.Unavailable, "replays of other accounts are in progress at this gateway: try again later")
}
