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
	t      *execution
	launch *jobs.Launch
	use    *use // of a copy of files on S3
}

func (b *background) prepare(ctx context.Context) error {
	t := b.t
	o, err := t.compile(ctx)
	if err != nil {
		return err
	}
	places, err := t.jobOutputs(o.sandbox)
	if err != nil {
		return err
	}
	if b.use, err = t.bringIn(ctx, o); err != nil {
		return err
	}
	order := jobs.Order{Sandbox: o.sandbox, Command: o.command, Caps: sandboxes.Key(t.call), Outputs: places}
	if o.sandbox.Persistent {
		order.Acquire = func(ctx context.Context) (schemas.Ref, time.Time, error) {
			if err := t.acquire(ctx, &o); err != nil {
				return schemas.Ref{}, time.Time{}, err
			}
			return t.stay.Ref(), t.stay.Deadline(), nil
		}
	}
	return b.launch.Prepare(ctx, order)
}

// later is not for caps: a job may hold its place for days.
func (b *background) later(err error) bool {
	return schemas.CodeOf(err) == schemas.Unavailable || errors.Is(err, jobs.ErrNoRoom)
}

func (b *background) run(ctx context.Context) (schemas.Result, error) {
	r, err := b.launch.Start(ctx)
	if err == nil && r.StatusID != "" { // it runs, or may run
		b.use.handOver(&r)
	}
	return r, err
}

func (b *background) ran(ctx context.Context, r schemas.Result) {
	if b.t.known.notLaunched = r.StatusID == ""; b.t.known.notLaunched {
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
