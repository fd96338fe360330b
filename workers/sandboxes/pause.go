package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// settleWithin is the time limit for recording that an instance is paused, or for resuming it.
const settleWithin = 10 * time.Second

// pause pauses an instance: it records that no call may enter, has the provider pause it, and then records that it is paused, so that
// calls can resume it. If the worker crashes in between, the next check repeats the pause. errGone: a call was faster, or another worker
// pauses it.
func (b *reaper) pause(ctx context.Context, key string, seen schemas.Instance, s schemas.Sandbox, t *streams.Tenure) error {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	asked, begun, at := false, clock.Now(), b.Bus.Now()
	err := b.change(ctx, key, h, func(row *schemas.Instance) error {
		if asked || row.Ref != seen.Ref || h.calls+h.claims > 0 || lifecycle.PauseInstance(row, at) != nil {
			return errGone
		}
		asked = true
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.still(begun, t); err != nil {
		return err
	}
	err = b.pauser.Pause(ctx, seen.Ref)
	if errors.Is(err, schemas.ErrUnsupported) {
		return b.end(ctx, key, seen.Ref, endIdle, t)
	}
	// The result is recorded or corrected even if this worker was suspended meanwhile and no longer has the duty.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	if err != nil {
		err = fmt.Errorf("pause the instance: %w", err)
	} else {
		err = b.change(ctx, key, h, func(row *schemas.Instance) error {
			if row.Ref != seen.Ref || !row.Pausing.Equal(at) {
				return errGone
			}
			return lifecycle.PausedInstance(row, b.Bus.Now())
		})
	}
	if err != nil { // another worker may have paused it, and a call may have resumed it and be using it
		return errors.Join(err, b.rouse(ctx, key, seen.Ref, s))
	}
	return nil
}

// rouse resumes an instance whose record says that it is ready.
func (b *reaper) rouse(ctx context.Context, key string, ref schemas.Ref, s schemas.Sandbox) error {
	p, err := b.rows.Get(ctx, b.rowKey(key))
	if err != nil || p.Value.Ref != ref || p.Value.State != schemas.InstanceReady {
		return err
	}
	_, err = b.reserve(ctx, key, p.Value, s)
	return err
}

// wake resumes a paused instance. Its scripts run at the next call.
func (b *reaper) wake(ctx context.Context, key string, seen schemas.Instance, s schemas.Sandbox) error {
	h := b.claimed(key)
	defer b.unclaim(h)
	ref, err := b.reserve(ctx, key, seen, s)
	if err != nil {
		return err
	}
	return b.change(ctx, key, h, func(row *schemas.Instance) error {
		if row.State != schemas.InstancePaused {
			return errGone
		}
		return lifecycle.ReadyInstance(row, ref, b.Bus.Now(), maxLifetime(s), len(s.OnCreate) > 0)
	})
}

func (b *reaper) reserve(ctx context.Context, key string, row schemas.Instance, s schemas.Sandbox) (schemas.Ref, error) {
	of, err := b.deployment(ctx)
	if err != nil {
		return schemas.Ref{}, err
	}
	w, err := b.Records.Workspace(ctx, row.Account, row.Workspace)
	if err != nil {
		return schemas.Ref{}, fmt.Errorf("workspace of the instance: %w", err)
	}
	spec := b.Spec(s, w)
	spec.Deployment = of
	ref, err := b.reserver.Reserve(ctx, key, spec)
	if err != nil {
		return ref, fmt.Errorf("resume the instance: %w", err)
	}
	return ref, nil
}

// dropWish removes the requested state from a record that has that state already or cannot reach it.
func (b *reaper) dropWish(ctx context.Context, key string, seen schemas.Instance) error {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	return b.change(ctx, key, h, func(row *schemas.Instance) error {
		if row.Wanted != seen.Wanted || row.State != seen.State {
			return errGone
		}
		row.Wanted = schemas.InstanceWish{}
		return nil
	})
}
