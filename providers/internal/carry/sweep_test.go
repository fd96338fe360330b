package carry

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

// TestSweeping: a sandbox is ended only if sweeps have repeatedly reported remaining processes, up to the end of their time.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestSweeping(t *testing.T) {
	t.Parallel()
	stays := boxrun.SweepResult(75, "")
	away := errors.New("the connection broke")
	for name, c := range map[string]struct {
		sweeps []error // results; the last one is repeated
		gone   bool
		cancel bool
		code   schemas.Code
		ended  bool
	}{
		"at once":                           {sweeps: []error{nil}},
		"a blip":                            {sweeps: []error{away, nil}},
		"a blip, and a process that stays":  {sweeps: []error{away, stays, nil}},
		"it is gone":                        {sweeps: []error{away}, gone: true},
		"never reached":                     {sweeps: []error{away}, code: schemas.Unavailable},
		"it stays, and is not reached then": {sweeps: []error{stays, stays, away}, code: schemas.Unavailable},
		"the sweep is killed":               {sweeps: []error{boxrun.SweepResult(137, "")}, code: schemas.Unavailable},
		"it stays":                          {sweeps: []error{stays}, code: schemas.Interrupted, ended: true},
		"not reached, and it stays":         {sweeps: []error{away, stays}, code: schemas.Interrupted, ended: true},
		"the worker stops":                  {sweeps: []error{stays}, cancel: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			n, ended := 0, false
			err := Sweeping{
				Log: slog.New(slog.DiscardHandler),
				Sweep: func(context.Context) error {
					n++
					if c.cancel && n == 3 {
						cancel()
					}
					return c.sweeps[min(n, len(c.sweeps))-1]
				},
				Gone: func(context.Context, error) (bool, error) { return c.gone, nil },
				End:  func(ctx context.Context) error { ended = true; return ctx.Err() },
			}.Run(ctx)
			if c.cancel {
				if !errors.Is(err, context.Canceled) || ended {
					t.Errorf("got %v, ended %v", err, ended)
				}
				return
			}
			if schemas.CodeOf(err) != c.code || ended != c.ended || errors.Is(err, ErrSandboxEnded) != c.ended {
				t.Errorf("got %v, ended %v, want code %q and %v", err, ended, c.code, c.ended)
			}
			if left := Swept(err); c.ended && left != nil {
				t.Errorf("the run is not ended: %v", left)
			}
		})
	}
}
