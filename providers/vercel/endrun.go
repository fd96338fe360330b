package vercel

import (
	"context"
	"net/http"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// EndRun ends all remains of a run: its own sandbox, and its processes in the persistent one, which are found by their mark. A sandbox
// whose session has ended has none.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	return carry.EndRun(ctx, &p.work, endTimeout,
		func(ctx context.Context) error { return p.endOwn(ctx, id) },
		func(ctx context.Context) error { return p.endInKept(ctx, cloud.BoxDigest(account, key), id) })
}

// there returns a sandbox of this installation; false if there is none.
func (p *api) there(ctx context.Context, name string) (b box, ok bool, err error) {
	b, err = p.get(ctx, name, false)
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound:
		return b, false, nil
	case err != nil:
		return b, false, err
	}
	return b, b.Sandbox.Tags[tagInstallation] == p.opt.Installation, nil
}

// endOwn deletes the sandbox that was made for one run.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	b, ok, err := p.there(ctx, p.nameOf(kindRun, digest(id)))
	if err != nil || !ok {
		return err
	}
	return p.end(ctx, b.Sandbox.Name, b.Session.ID)
}

// endInKept kills the processes of a run in a persistent sandbox.
func (p *Provider) endInKept(ctx context.Context, digest, id string) error {
	b, ok, err := p.there(ctx, p.nameOf(kindKept, digest))
	if err != nil || !ok || b.Session.Status != statusRunning {
		return err
	}
	return carry.Swept(p.sweep(ctx, b, boxrun.MarkOf(id)))
}

// sweep kills the processes that a command has left in a persistent sandbox, after its program has ended: as root, because the command may
// have become root. If that fails it ends the session with all its processes; the files stay. A session that has ended has none.
func (p *Provider) sweep(ctx context.Context, b box, mark string) error {
	s := session{p.api, b.Session.ID}
	return carry.Sweeping{
		Sandbox: b.Sandbox.Name, Log: p.log,
		Sweep: func(ctx context.Context) error {
			e, err := s.executeAs(ctx, true, "sweep", endTimeout, `exec "$@"`, boxrun.TrySweepArguments("bash", carry.SearchPath, mark)...)
			if err != nil {
				return err
			}
			return boxrun.SweepResult(e.Exit, excerpt(e.Output))
		},
		Gone: func(_ context.Context, failed error) (bool, error) {
			return stopped(failed) || cloud.StatusOf(failed) == http.StatusNotFound, nil
		},
		End: func(ctx context.Context) error {
			_, err := s.ask(ctx, http.MethodPost, "/stop", nil)
			if err != nil && !stopped(err) && cloud.StatusOf(err) != http.StatusNotFound {
				return err
			}
			return p.ended(ctx, b.Session.ID)
		},
	}.Run(ctx)
}
