package carry

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// EndRun ends the remains of a run, at most within that time: own ends the run's own sandbox, kept its processes in a persistent sandbox.
// It calls both. Code: unavailable.
func EndRun(ctx context.Context, work *inflight.Work, within time.Duration, own, kept func(context.Context) error) error {
	if err := work.Begin(); err != nil {
		return err
	}
	defer work.Done()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := errors.Join(own(ctx), kept(ctx)); err != nil {
		return schemas.Wrap(schemas.Unavailable, "end run", "what is left of the run cannot be ended", err)
	}
	return nil
}
