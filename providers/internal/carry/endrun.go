package carry

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// EndRun ends what is left of a run, within a time: own ends the sandbox that the run had alone, kept its processes in a persistent one.
// Both are tried. Code: unavailable.
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
