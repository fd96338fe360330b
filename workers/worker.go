package workers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/gopool"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// Specs finds the records that a call names. Codes: not_found, unavailable.
type Specs interface {
	Sandbox(ctx context.Context, account schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error)
	Workspace(ctx context.Context, account schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error)
}

// Defaults of a [Worker].
const (
	DefaultSlots = 16
	DefaultGrace = 20 * time.Second
	// DefaultProbeEvery is how often a running job is looked after.
	DefaultProbeEvery = 15 * time.Second
)

// maxAttempts is out of reach on purpose: a call that waits for a place or for another worker's end
// uses up an attempt each time, and its deadline ends it. What keeps killing workers is ended by its
// starts, see decide.
const maxAttempts = 1_000_000

// Worker runs the calls of one provider. Any number of workers, in any number of processes, may
// serve the same provider.
type Worker struct {
	Bus      *streams.Bus
	Provider providers.Provider
	// Name is the provider's name on the log. Empty: what its profile says.
	Name  string
	Specs Specs
	// Limiter holds the caps. Nil: there are none.
	Limiter limits.Limiter
	// AccountCap is how many calls of one account run at the same time, over all workers that share
	// the limiter. 0: as many as there are slots.
	AccountCap int
	// Slots is how many calls this worker has in hand at most. 0: DefaultSlots.
	Slots int
	// Grace is how long calls in hand may go on once Run is told to end. 0: DefaultGrace.
	Grace time.Duration
	// JobLimit is how many background jobs run in one sandbox at the same time, where its record does
	// not say. 0: schemas.DefaultJobs.
	JobLimit int
	// AccountJobs is how many background jobs of one account run at the same time, over all workers
	// that share the limiter. 0: as many as its sandboxes take.
	AccountJobs int
	// ProbeEvery is how often the worker looks after each background job and each kept box. 0: DefaultProbeEvery.
	ProbeEvery time.Duration
	// CallbackURL is where the gateway is reached from inside a sandbox, such as
	// https://sandjet.example.com. Empty: jobs are not told to call back.
	CallbackURL string
	Log         *slog.Logger
	Metrics     Metrics

	// at is called at each stage of a call, and an error from it ends the call's handling right there.
	// It is how tests let a worker die between two effects.
	at func(stage, schemas.Call) error
}

// stage is a place between two effects, where a process may die.
type stage string

const (
	atDelivered stage = "delivered" // nothing was done
	atHooked    stage = "hooked"    // the scripts of a new box have run, nobody knows it yet
	atPrepared  stage = "prepared"  // a place is taken, the box is reserved
	atStarted   stage = "started"   // the proof of the start is on the log
	atLaunching stage = "launching" // the record says that the job may have been started
	atLaunched  stage = "launched"  // the provider has started the job
	atRecorded  stage = "recorded"  // the record says that the job runs
	atRan       stage = "ran"       // the run has ended
	atFinished  stage = "finished"  // the result is on the log, the call is not acknowledged

	atRenewal stage = "renewal" // of the worker's lease, no call's
)

// workerRun is one Run of a worker.
type workerRun struct {
	Worker

	lease        *leases.Lease
	inFlight     *inFlight
	stuck        *stuck
	runs         gopool.Pool // not waited for: some do not end
	waiting      *putBacks
	accountSlots *accountSlots
	cancels      *cancelSet
	jobs         *jobManager
	instances    *sandboxes.Instances
	settle       chan settlement // calls that were cancelled while nobody here had them in hand
}

// Run takes calls and runs them until ctx ends. Then it takes no more, finishes what is in hand
// for at most Grace, and ends the rest: a call with side effects gets the result interrupted with
// what it had printed, others go back to the log. It returns nil after that, and an error when the
// log refuses the consumer for good.
//
// The same Worker may be Run again after it returned, each time under a new identity.
func (w *Worker) Run(ctx context.Context) error {
	s := w.begin()
	defer s.runs.Close()
	// The parts around the calls go on until the last call is out of hand.
	around, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	ready := make(chan struct{}, 2) // a lease that others see, and every earlier request for an end
	tell := func() { ready <- struct{}{} }
	parts.Go(func() { s.lease.Keep(around, tell) })
	parts.Go(func() { s.watchCancels(around, tell) })
	parts.Go(func() { s.settleCancelled(around) })
	parts.Go(func() { s.noteServed(around) })
	parts.Go(func() { s.accountSlots.keep(around) })
	parts.Go(func() { s.jobs.keep(around) })
	parts.Go(func() { s.instances.Run(around) })
	for range cap(ready) {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	if err := s.checkStore(ctx); err != nil {
		return err
	}
	defer s.instances.DisownAll(around) // before the lease ends
	s.Log.Info("worker takes calls", "slots", s.Slots)
	err := streams.Calls.Consume(ctx, s.Bus, streams.ConsumeOptions{
		Name: "w-" + s.Name, Filter: s.Name, Slots: s.Slots, Grace: s.Grace, MaxAttempts: maxAttempts, Turns: true, MaxPending: streams.ManyPending,
	}, s.handle)
	if err != nil {
		return fmt.Errorf("worker of %s: %w", s.Name, err)
	}
	s.Log.Info("worker has ended")
	return nil
}

func (w *Worker) begin() *workerRun {
	s := &workerRun{Worker: *w, inFlight: &inFlight{}, waiting: newPutBacks(), settle: make(chan settlement, 1024)}
	s.Name = cmp.Or(s.Name, providers.ProfileOf(s.Provider).Name)
	s.Slots = cmp.Or(s.Slots, DefaultSlots)
	s.Grace = cmp.Or(s.Grace, DefaultGrace)
	s.ProbeEvery = cmp.Or(s.ProbeEvery, DefaultProbeEvery)
	s.Metrics = s.Metrics.orQuiet()
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.at == nil {
		s.at = func(stage, schemas.Call) error { return nil }
	}
	me := schemas.NewID("worker_")
	s.Log = s.Log.With("worker", me, "provider", s.Name)
	s.lease = leases.New(s.Bus, leases.Record{Worker: me, Provider: s.Name, Started: s.Bus.Now(), Store: storeOf(s.Provider), Profile: profileOf(s.Provider)}, s.Log,
		func() error { return s.at(atRenewal, schemas.Call{}) })
	s.stuck = &stuck{most: s.Slots, told: func(n int) { s.Metrics.Stuck(s.Name, n) }}
	s.cancels = newCancelSet(maxCancels, cancelsMatter)
	s.accountSlots = &accountSlots{limiter: s.Limiter, most: s.AccountCap, log: s.Log, held: make(map[string]limits.Lease)}
	s.jobs = newJobManager(s)
	s.instances = sandboxes.New(sandboxes.Options{
		Bus: s.Bus, Provider: s.Provider, Name: s.Name, Records: s.Specs, Lease: s.lease, Every: s.ProbeEvery, WithJobs: s.jobs.instances, Log: s.Log,
		Known: func(n int) { s.Metrics.Boxes(s.Name, n) }, Ended: func(why string) { s.Metrics.BoxEnded(s.Name, why) },
	})
	return s
}

// noteServed tells the gateways, until ctx ends, that calls of the provider have somebody to go to.
func (s *workerRun) noteServed(ctx context.Context) {
	for {
		err := streams.NoteServed(ctx, s.Bus, s.Name)
		if err != nil && ctx.Err() == nil {
			s.Log.Info("not noted that the provider is served: that is tried again", "error", err)
		}
		if !sleep(ctx, streams.ServedEvery) {
			return
		}
	}
}

// profileOf is what a provider can do on this host; nil where it does not say.
func profileOf(p providers.Provider) *schemas.Profile {
	f, ok := providers.As[providers.Profiler](p)
	if !ok {
		return nil
	}
	profile := f.Profile()
	return &profile
}

// me is the name under which this run of the worker signs its starts.
func (s *workerRun) me() string { return s.lease.Worker() }
