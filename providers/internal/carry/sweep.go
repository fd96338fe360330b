package carry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

// ErrSandboxEnded is the error of a command whose persistent sandbox was ended, because processes of the command could not be killed
// alone.
var ErrSandboxEnded = errors.New("processes of the command could not be ended, so its sandbox was ended with all that ran in it")

// leastStays is how many consecutive sweeps must have reported remaining processes before the sandbox is ended.
const leastStays = 2

// Sweeping kills the processes that a command has left in a persistent sandbox. All fields are required.
type Sweeping struct {
	Sandbox string // its id, for the log
	// Sweep runs the sweep in the sandbox once, with the right to kill all processes if the service grants it. Its error is that of
	// [boxrun.SweepResult], or one of the request.
	Sweep func(ctx context.Context) error
	// Gone reports whether no process runs in the sandbox, or all processes are suspended. It is called after a failed sweep.
	Gone func(ctx context.Context, failed error) (bool, error)
	// End ends the sandbox.
	End func(ctx context.Context) error
	Log *slog.Logger
}

// Run sweeps repeatedly until no process is left, for two thirds of the time until the deadline of ctx, which must have one.
//
// The sandbox contains more than this command: files, memory, jobs of other calls. So it is ended only if sweeps have repeatedly found
// processes that they could not kill, up to the end of that time. An unreachable sandbox proves nothing: it stays, and the command ends at
// its time limit. Codes: interrupted (it is an [ErrSandboxEnded]), unavailable.
func (s Sweeping) Run(ctx context.Context) error {
	const share, of = 2, 3
	end, _ := ctx.Deadline()
	trying, cancel := context.WithTimeout(ctx, time.Until(end)*share/of)
	defer cancel()
	stays := 0
	again := wait.Backoff{First: 200 * time.Millisecond, Most: 3 * time.Second}
	var failed error
	for n := 1; ; n++ {
		err := s.Sweep(trying)
		if err == nil {
			return nil
		}
		stays = staysAfter(stays, err, trying.Err() != nil)
		if trying.Err() == nil || failed == nil { // otherwise the error only says that the time was over
			failed = err
		}
		if gone, look := s.Gone(ctx, err); look == nil && gone {
			return nil
		}
		s.Log.Debug("command not ended alone, retrying", "sandbox", s.Sandbox, "attempt", n, "error", err)
		if !again.Sleep(trying, n) {
			break
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case stays < leastStays:
		return schemas.Wrap(schemas.Unavailable, "sweep", "the command in the sandbox could not be ended", failed)
	}
	s.Log.Warn("command not ended alone, ending its sandbox", "sandbox", s.Sandbox, "sweeps", stays, "error", failed)
	if err := s.End(ctx); err != nil {
		return errors.Join(failed, err)
	}
	return schemas.Wrap(schemas.Interrupted, "sweep", ErrSandboxEnded.Error(), ErrSandboxEnded)
}

// staysAfter returns the number of consecutive sweeps that reported remaining processes, after another failed sweep. A sweep that was cut
// short by the deadline leaves the number unchanged.
func staysAfter(stays int, failed error, cut bool) int {
	switch {
	case errors.Is(failed, boxrun.ErrStays):
		return stays + 1
	case cut:
		return stays
	default:
		return 0
	}
}

// Swept returns the error of a sweep for callers that want the command ended by any means: nil if the whole sandbox was ended.
func Swept(err error) error {
	if errors.Is(err, ErrSandboxEnded) {
		return nil
	}
	return err
}
