package daytona

import (
	"context"
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// EndRun ends all remains of a run: its own sandbox, and its processes in the persistent one, which are found by their mark. A stopped
// sandbox has none.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	return carry.EndRun(ctx, &p.work, endTimeout,
		func(ctx context.Context) error { return p.endOwn(ctx, id) },
		func(ctx context.Context) error { return p.endInKept(ctx, cloud.BoxDigest(account, key), id) })
}

// endOwn deletes the sandboxes that were made for one run.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelRun: cloud.Digest(id)})
	for _, s := range found {
		err = errors.Join(err, p.end(ctx, s.ID))
	}
	return err
}

// endInKept kills the processes of a run in a persistent sandbox.
func (p *Provider) endInKept(ctx context.Context, box, id string) error {
	s, err := p.get(ctx, p.nameOf(box))
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound:
		return nil
	case err != nil:
		return err
	case s.State != stateStarted || s.Labels[labelInstallation] != p.opt.Installation:
		return nil
	}
	t, err := p.toolboxOf(s)
	if err != nil {
		return err
	}
	return carry.Swept(p.sweep(ctx, s.ID, t, boxrun.MarkOf(id)))
}

// sweep kills the processes that a command has left in a persistent sandbox, after its program has ended. A sandbox that is gone or
// stopped has none.
func (p *Provider) sweep(ctx context.Context, id string, t toolbox, mark string) error {
	return carry.Sweeping{
		Sandbox: id, Log: p.log,
		Sweep: func(ctx context.Context) error { return spool.SweepOnce(ctx, t, carry.SearchPath, mark) },
		Gone: func(ctx context.Context, _ error) (bool, error) {
			s, err := p.get(ctx, id)
			if cloud.StatusOf(err) == http.StatusNotFound {
				return true, nil
			}
			running, _ := count([]sandbox{s})
			return running == 0 && s.State != stateDestroying, err
		},
		End: func(ctx context.Context) error { return p.end(ctx, id) },
	}.Run(ctx)
}
