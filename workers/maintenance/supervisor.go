package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/streams"
)

// Housekeeper is a maintenance task that runs as long as its process.
type Housekeeper struct {
	// Name is its name in logs and metrics.
	Name string
	// Run blocks until its context is done. It is called again after an error, so it must not depend on state of an earlier call.
	Run func(context.Context) error
}

// Supervisor runs the housekeepers of a process. If one fails, it is restarted after a delay, and neither the process nor the other
// housekeepers end: the state is in streams, and the restarted housekeeper finds the work that was left.
type Supervisor struct {
	Housekeepers []Housekeeper
	Log          *slog.Logger // nil: silent
	// Failed is called each time a housekeeper has failed, before its restart. It must not block. Nil: it is not called.
	Failed func(name string) // sandjet_housekeeper_failures_total{housekeeper}
}

// restart is the delay before a failed housekeeper is restarted. After a run of at least healthy the delays start again from the shortest.
var restart = wait.Backoff{First: time.Second, Most: time.Minute} //nolint:gochecknoglobals // a constant

const healthy = 5 * time.Minute

// Run runs the housekeepers until ctx is done, waits until each has returned, and returns nil.
func (s *Supervisor) Run(ctx context.Context) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, h := range s.Housekeepers {
		parts.Go(func() { s.keep(ctx, h, log.With("housekeeper", h.Name)) })
	}
	return nil
}

// keep runs and restarts one housekeeper until ctx is done.
func (s *Supervisor) keep(ctx context.Context, h Housekeeper, log *slog.Logger) {
	for failures := 1; ; failures++ {
		begun := time.Now()
		err := h.Run(ctx)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				log.Warn("housekeeper stopped with an error", "error", err)
			}
			return
		}
		if time.Since(begun) >= healthy {
			failures = 1
		}
		if s.Failed != nil {
			s.Failed(h.Name)
		}
		pause := restart.After(failures)
		log.Error("housekeeper failed, restarting", "error", err, "failures", failures, "restart_in", pause)
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// firstLook is the time between taking over a duty and the beginning of its work.
const firstLook = time.Second

// byOne runs work in one process of the deployment at a time: the one that holds the lease of the duty. Work blocks until its context is
// done, which is also the case when the lease is lost. Before each step that a process must not take after it was suspended and another
// has taken over, work checks [streams.Tenure.Held]. If the holder crashes, another process takes over within [streams.DutyTakenOver].
func byOne(ctx context.Context, b *streams.Bus, duty string, log *slog.Logger, work func(context.Context, *streams.Tenure)) error {
	d := streams.Duty{
		Bus: b, Name: duty, Every: firstLook, Log: log,
		Begin: func() func(context.Context, *streams.Tenure) { return work },
	}
	return d.Run(ctx)
}
