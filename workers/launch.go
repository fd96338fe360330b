package workers

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/jobs"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// background is the launch of a background call's job.
type background struct {
	w      *workerRun
	known  *evidence
	prep   *preparation
	launch *jobs.Launch
	use    *use // of a copy of files on S3
}

func (b *background) prepare(ctx context.Context) error {
	o, err := b.prep.compile(ctx)
	if err != nil {
		return err
	}
	places, err := b.w.jobOutputs(b.known.call, o.sandbox)
	if err != nil {
		return err
	}
	if b.use, err = b.prep.copyIn(ctx, o); err != nil {
		return err
	}
	order := jobs.Order{Sandbox: o.sandbox, Command: o.command, Caps: sandboxes.Key(b.known.call), Outputs: places}
	if o.sandbox.Persistent {
		order.Acquire = func(ctx context.Context) (schemas.Ref, time.Time, error) {
			if err := b.prep.acquire(ctx, &o); err != nil {
				return schemas.Ref{}, time.Time{}, err
			}
			return b.prep.stay.Ref(), b.prep.stay.Deadline(), nil
		}
	}
	return b.launch.Prepare(ctx, order)
}

// temporary does not hold for caps: a job may hold its slot for days.
func (b *background) temporary(err error) bool {
	return schemas.CodeOf(err) == schemas.Unavailable || errors.Is(err, jobs.ErrNoRoom)
}

func (b *background) run(ctx context.Context) (schemas.Result, error) {
	r, err := b.launch.Start(ctx)
	if err == nil && r.StatusID != "" { // it runs, or may run
		b.use.handOver(&r)
	}
	return r, err
}

func (b *background) release(ctx context.Context, r schemas.Result) {
	if b.known.notLaunched = r.StatusID == ""; b.known.notLaunched {
		b.launch.Abandon(ctx)
		b.use.abandon()
	}
}

func (b *background) abandon(ctx context.Context) {
	b.launch.Abandon(ctx)
	b.use.abandon()
}

func (b *background) close() {
	b.launch.Close()
	b.use.leave()
}
