// Package jobs starts and manages the background jobs of one worker. A [Launch] takes a background call to the start of
// its job, the [Manager] manages the jobs of its worker and takes over those of workers that are gone, and [Status] answers
// what a model asks about a job.
//
// What holds for all of them: a job's record says that it is being launched before the provider is asked to, so that a worker that finds
// the call later knows from the record whether the job may run. The record names the worker that manages the job; it is
// changed only on the condition that no other process has changed it. The first completion of a job on the log counts.
package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
)

// Options are what a [Manager] and a [Launcher] need of their worker. All are required unless their comment says otherwise.
type Options struct {
	Bus      *streams.Bus
	Provider providers.Provider
	Name     string        // the provider's name on the log
	Lease    *leases.Lease // the worker's own
	// Limiter holds the caps. Nil: there are none.
	Limiter limits.Limiter
	// PerSandbox is how many jobs run in one sandbox at the same time, where its record does not say. 0: schemas.DefaultJobs.
	PerSandbox int
	// MaxPerSandbox bounds that, whatever the record says. 0: nothing does.
	MaxPerSandbox int
	// PerAccount is how many jobs of one account run at the same time, over all workers that share the limiter. 0: any number.
	PerAccount int
	// ProbeEvery is how often the sandbox of each job is asked for its state.
	ProbeEvery time.Duration
	// CallbackURL is where a job reports its end over HTTP. Empty: nowhere.
	CallbackURL string
	Log         *slog.Logger

	// LaunchingHere reports whether this process is launching the job of a call, which is named by its EventID.
	LaunchingHere func(call string) bool
	// LimiterAway is called when the limiter cannot be reached.
	LimiterAway func(context.Context, error)
	// At is called at each stage of a launch, and an error from it ends the launch right there: by it tests let a worker die.
	At func(Stage, schemas.Call) error

	Managed func(n int)        // how many jobs this worker manages, at each round
	Started func()             // a job was started
	Limited func(limit string) // a job was refused because of a cap
}

// Stage is a point between two effects of a launch, at which a process may die.
type Stage string

// The stages in their order.
const (
	Launching Stage = "launching" // the record says that the job may have been started
	Launched  Stage = "launched"  // the provider has started the job
	Recorded  Stage = "recorded"  // the record says that the job runs
)
