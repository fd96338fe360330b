package deno

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// EndRun ends all remains of a run: its own sandbox, and its processes in the persistent one, which are found by their mark.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	return carry.EndRun(ctx, &p.work, endTimeout,
		func(ctx context.Context) error { return p.endOwn(ctx, id) },
		func(ctx context.Context) error { return p.endInKept(ctx, boxOf(account, key), id) })
}

// endOwn kills the sandboxes that were made for one run.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelBox: kindRun + cloud.Digest(id)})
	for _, s := range found {
		err = errors.Join(err, p.end(ctx, s))
	}
	return err
}

// endInKept kills the processes of a run in a persistent sandbox.
func (p *Provider) endInKept(ctx context.Context, box, id string) error {
	found, err := p.kept(ctx, box)
	for _, s := range found {
		d := p.doorOf(s.ID, nil)
		err = errors.Join(err, carry.Swept(p.sweep(ctx, s, d, boxrun.MarkOf(id))))
		d.Close()
	}
	return err
}

// sweep kills the processes that a command has left in a persistent sandbox, after its program has ended. A sandbox that is gone has none.
func (p *Provider) sweep(ctx context.Context, s sandbox, d *door, mark string) error {
	return carry.Sweeping{
		Sandbox: s.ID, Log: p.log,
		Sweep: func(ctx context.Context) error { return spool.SweepOnce(ctx, d, carry.SearchPath, mark) },
		Gone: func(ctx context.Context, failed error) (bool, error) {
			if code := cloud.StatusOf(failed); code == http.StatusNotFound || code == http.StatusGone {
				return true, nil
			}
			there, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelBirth: s.Labels[labelBirth]})
			return !slices.ContainsFunc(there, func(one sandbox) bool { return one.ID == s.ID }), err
		},
		End: func(ctx context.Context) error { return p.end(ctx, s) },
	}.Run(ctx)
}
