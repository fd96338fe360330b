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

// Housekeeper is one part of what keeps the log in order.
type Housekeeper struct {
	// Name is what log lines and metrics call it.
	Name string
	// Run blocks until its context ends. It is called again after it has failed, so it keeps nothing from one call to the next.
	Run func(context.Context) error
}

// Supervisor runs the housekeepers of a process. One that fails is started again after a while, so that neither the process nor
// the other housekeepers end with it: what it left undone is on the log, and is found again.
type Supervisor struct {
	Housekeepers []Housekeeper
	Log          *slog.Logger // nil: silent
	// Failed is called each time a housekeeper has failed, before it is started again. Nil: nothing is. It must not block.
	Failed func(name string) // sandjet_housekeeper_failures_total{housekeeper}
}

// restart is how long a housekeeper that has failed stays ended. One that ran for healthy has not failed before.
var restart = wait.Backoff{First: time.Second, Most: time.Minute} //nolint:gochecknoglobals // a constant

const healthy = 5 * time.Minute

// Run runs the housekeepers until ctx ends, waits until each has ended, and returns nil.
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

// keep runs one housekeeper until ctx ends.
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

// firstLook is within what time of taking a duty its work begins.
const firstLook = time.Second

// byOne runs work in one process of the deployment at a time: the one that holds the lease of the duty. Work blocks until its context ends,
// which it does when the lease is lost; before each step that must not be repeated by a process that was suspended, it asks
// [streams.Tenure.Held]. When the holder dies, another process takes over within [streams.DutyTakenOver].
func byOne(ctx context.Context, b *streams.Bus, duty string, log *slog.Logger, work func(context.Context, *streams.Tenure)) error {
	d := streams.Duty{
		Bus: b, Name: duty, Every: firstLook, Log: log,
		Begin: func() func(context.Context, *streams.Tenure) { return work },
	}
	return d.Run(ctx)
}
