package e2b

import (
	"context"
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// EndRun ends all remains of a run: its own sandbox, and its processes in the persistent one, which are found by their mark. A paused
// sandbox is woken for that.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	return carry.EndRun(ctx, &p.work, endTimeout,
		func(ctx context.Context) error { return p.endOwn(ctx, id) },
		func(ctx context.Context) error { return p.endInKept(ctx, cloud.BoxDigest(account, key), id) })
}

// endOwn kills the sandboxes that were made for one run.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	found, err := p.list(ctx, map[string]string{metaInstallation: p.opt.Installation, metaRun: cloud.Digest(id)})
	for _, s := range found {
		err = errors.Join(err, p.end(ctx, s.ID))
	}
	return err
}

// endInKept kills the processes of a run in a persistent sandbox.
func (p *Provider) endInKept(ctx context.Context, box, id string) error {
	found, err := p.kept(ctx, box)
	for _, s := range found {
		var woken sandbox
		woken, waking := p.connect(ctx, s.ID, p.opt.Idle)
		switch {
		case cloud.StatusOf(waking) == http.StatusNotFound:
		case waking != nil:
			err = errors.Join(err, waking)
		default:
			err = errors.Join(err, carry.Swept(p.sweep(ctx, s.ID, p.daemonOf(woken), boxrun.MarkOf(id))))
		}
	}
	return err
}

// sweep kills the processes that a command has left in a persistent sandbox, after its program has ended: as root, because the command may
// have become root. A sandbox that is gone has none.
func (p *Provider) sweep(ctx context.Context, id string, d daemon, mark string) error {
	return carry.Sweeping{
		Sandbox: id, Log: p.log,
		Sweep: func(ctx context.Context) error {
			code, said, err := d.execute(ctx, userRoot, boxrun.TrySweepArguments("bash", carry.SearchPath, mark)...)
			if err != nil {
				return err
			}
			return boxrun.SweepResult(code, said)
		},
		Gone: func(ctx context.Context, _ error) (bool, error) {
			s, err := p.get(ctx, id)
			if cloud.StatusOf(err) == http.StatusNotFound {
				return true, nil
			}
			return s.State == statePaused, err // a paused one is suspended, and its program's limit ends the command when it is woken
		},
		End: func(ctx context.Context) error { return p.end(ctx, id) },
	}.Run(ctx)
}
