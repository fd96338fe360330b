package workers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/gopool"
	"github.com/sandjet/sandjet/internal/membudget"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/filesync"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/served"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/workers/artifacts"
	"github.com/sandjet/sandjet/workers/files"
	"github.com/sandjet/sandjet/workers/jobs"
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
	// DefaultProbeEvery is how often a running job is checked.
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
	// Removed reports whether an account was certainly removed; with an error that is unknown. The files of its workspaces go
	// [providers.WorkspacesKept] later, where the provider keeps them on a disk of its own. Nil: they stay.
	Removed func(context.Context, schemas.AccountID) (bool, error)
	// Skills are what load_skill loads. Nil: its calls fail.
	Skills Skills
	// Copies bring the files of workspaces on S3 in and out, where the provider's profile says that it has copies of them. Nil: such a
	// workspace is refused then.
	Copies *filesync.Copies
	// Reader opens the files of a workspace on S3 as they are there, for calls that only read and have no sandbox. It returns no files and
	// no error where this worker has no way to them: the provider is asked then. Nil: as that.
	Reader func(context.Context, schemas.Workspace) (workspacefs.FS, error)
	// BucketFiles opens the files of a workspace on S3 for applications, which may write them too, at BucketPlaces and within BucketRoom. With
	// no places this worker serves none.
	BucketFiles  func(context.Context, schemas.Workspace) (workspacefs.FS, error)
	BucketPlaces []streams.FilesPlace
	BucketRoom   *files.Room
	// OnlyS3 refuses workspaces that are not on S3, so that workers of one provider need not share a folder.
	OnlyS3 bool
	// Limiter holds the caps. Nil: there are none.
	Limiter limits.Limiter
	// AccountCap is how many calls of one account run at the same time, over all workers that share
	// the limiter. 0: as many as there are slots.
	AccountCap int
	// AccountSandboxes is how many persistent sandboxes of one account run at the provider at a time; calls that need one more wait. 0: as
	// many as it likes.
	AccountSandboxes int
	// Slots is how many calls this worker has in flight at most. 0: DefaultSlots.
	Slots int
	// Grace is how long calls in flight may continue once the context of Run has ended. 0: DefaultGrace.
	Grace time.Duration
	// JobLimit is how many background jobs run in one sandbox at the same time, where its record does
	// not say. 0: schemas.DefaultJobs.
	JobLimit int
	// MaxJobs bounds JobLimit, whatever the record says. 0: nothing does.
	MaxJobs int
	// AccountJobs is how many background jobs of one account run at the same time, over all workers
	// that share the limiter. 0: as many as its sandboxes take.
	AccountJobs int
	// ProbeEvery is how often the worker checks each background job and each kept box. 0: DefaultProbeEvery.
	ProbeEvery time.Duration
	// CallbackURL is where the gateway is reached from inside a sandbox, such as
	// https://sandjet.example.com. Empty: jobs do not call back.
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
	atHooked    stage = "hooked"    // the scripts of a new box have run, the log does not know it yet
	atPrepared  stage = "prepared"  // a place is taken, the box is reserved
	atStarted   stage = "started"   // the proof of the start is on the log
	atLaunching       = stage(jobs.Launching)
	atLaunched        = stage(jobs.Launched)
	atRecorded        = stage(jobs.Recorded)
	atRan       stage = "ran"       // the run has ended
	atBytes     stage = "bytes"     // the bytes of the call's artifacts are on the log, no event names them
	atKept      stage = "kept"      // an artifact is on the log, not announced
	atAnnounced stage = "announced" // all artifacts are, the result is not there
	atStaging   stage = "staging"   // a skill lies aside, or its former version is out of its place
	atFinished  stage = "finished"  // the result is on the log, the call is not acknowledged

	atEnding stage = "ending" // what a dead worker has left running of a call is about to be ended
	atEnded  stage = "ended"  // none of it is left

	atRenewal stage = "renewal" // of the worker's lease, no call's
)

// workerRun is one Run of a worker.
type workerRun struct {
	Worker

	lease        *leases.Lease
	inFlight     *inFlight
	stuck        *stuck
	searches     *tools.Searches // that are carried out in this process
	runs         gopool.Pool     // not waited for: some do not end
	waiting      *waitingCalls
	accountSlots *accountSlots
	cancels      *cancelSet
	jobs         *jobs.Manager
	launcher     *jobs.Launcher
	memory       artifacts.Memory
	skillBytes   *membudget.Budget // of skills that are being loaded
	status       jobs.Status
	instances    *sandboxes.Instances
	byRuns       *fileRuns
	reconciler   *sandboxes.Reconciler
	settle       chan settlement // calls that were cancelled while they were not in flight here
}

// Run takes calls and runs them until ctx ends. Then it takes no more, finishes what is in flight
// for at most Grace, and ends the rest: a call with side effects gets the result interrupted with
// what it had printed, others are redelivered. It returns nil after that, and an error when the
// log refuses the consumer for good.
//
// The same Worker may be Run again after it returned, each time under a new identity.
func (w *Worker) Run(ctx context.Context) error {
	s := w.begin()
	defer s.runs.Close()
	// The parts around the calls continue until the last call has ended.
	around, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	ready := make(chan struct{}, 2) // a lease that others see, and every earlier request for an end
	started := func() { ready <- struct{}{} }
	parts.Go(func() { s.lease.Keep(around, started) })
	parts.Go(func() { s.watchCancels(around, started) })
	parts.Go(func() { s.settleCancelled(around) })
	parts.Go(func() { s.noteServed(around) })
	parts.Go(func() { s.accountSlots.keep(around) })
	parts.Go(func() { s.jobs.Run(around) })
	parts.Go(func() { s.instances.Run(around) })
	parts.Go(func() { s.reconciler.Run(around) })
	if s.Copies != nil {
		parts.Go(func() { _ = s.Copies.Run(around) }) // it has no error
	}
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
	parts.Go(func() { s.serveFiles(around) })
	parts.Go(func() { s.serveJobOutputs(around) })
	for _, place := range s.BucketPlaces {
		parts.Go(func() {
			(&files.Server{Bus: s.Bus, Place: place, Open: s.openInBucket, Room: s.BucketRoom, Log: s.Log}).Run(around)
		})
	}
	defer s.instances.DisownAll(around) // before the lease ends
	parts.Go(func() {                   // it has no error
		_ = (&sandboxes.WorkspaceCleaner{Bus: s.Bus, Provider: s.Provider, Store: storeOf(s.Provider), Removed: s.Removed, Log: s.Log}).Run(around)
	})
	s.Log.Info("worker started", "slots", s.Slots)
	err := streams.Calls.Consume(ctx, s.Bus, streams.ConsumeOptions{
		Name: "w-" + s.Name, Filter: s.Name, Slots: s.Slots, Grace: s.Grace, MaxAttempts: maxAttempts, Turns: true,
		MaxPending: streams.ManyPending,
	}, s.handle)
	if err != nil {
		return fmt.Errorf("worker of %s: %w", s.Name, err)
	}
	s.Log.Info("worker stopped")
	return nil
}

func (w *Worker) begin() *workerRun {
	s := &workerRun{Worker: *w, inFlight: &inFlight{}, waiting: newWaitingCalls(), settle: make(chan settlement, 1024),
		skillBytes: membudget.New(SkillLoadBytes, SkillLoadBytesOfAccount)}
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
	s.Provider = providers.Guarded(s.Provider, s.Log)
	s.lease = leases.New(s.Bus, leases.Record{Worker: me, Provider: s.Name, Started: s.Bus.Now(), Store: s.store(),
		Profile: profileOf(s.Provider)}, s.Log,
		func() error { return s.at(atRenewal, schemas.Call{}) })
	s.stuck = &stuck{most: s.Slots, changed: func(n int) { s.Metrics.Stuck(s.Name, n) }}
	s.cancels = newCancelSet(maxCancels, cancelsMatter)
	s.searches = tools.NewSearches(0)
	s.accountSlots = &accountSlots{limiter: s.Limiter, most: s.AccountCap, log: s.Log, held: make(map[string]limits.Lease)}
	options := s.jobOptions()
	s.jobs = jobs.NewManager(options)
	s.launcher, s.status = jobs.NewLauncher(options, s.jobs), jobs.Status{Bus: s.Bus}
	s.instances = sandboxes.New(sandboxes.Options{
		Bus: s.Bus, Provider: s.Provider, Name: s.Name, Records: s.Specs, Lease: s.lease, Every: s.ProbeEvery,
		AccountMost: s.AccountSandboxes, WithJobs: s.jobs.Instances, Spec: keptSpecOf, Log: s.Log,
		Known: func(n int) { s.Metrics.Boxes(s.Name, n) }, Ended: func(why string) { s.Metrics.BoxEnded(s.Name, why) },
	})
	s.byRuns = newFileRuns(s)
	s.reconciler = &sandboxes.Reconciler{Bus: s.Bus, Provider: s.Provider, Name: s.Name, Records: s.Specs, Lease: s.lease,
		WithJobs: s.jobs.Instances, Log: s.Log}
	return s
}

// jobOptions are what the manager and the launcher of jobs need of this worker.
func (s *workerRun) jobOptions() jobs.Options {
	return jobs.Options{
		Bus: s.Bus, Provider: s.Provider, Name: s.Name, Lease: s.lease, Limiter: s.Limiter, PerSandbox: s.JobLimit, MaxPerSandbox: s.MaxJobs, PerAccount: s.AccountJobs,
		ProbeEvery: s.ProbeEvery, CallbackURL: s.CallbackURL, Log: s.Log, LaunchingHere: s.inFlight.has, LimiterAway: s.accountSlots.logAway,
		At:      func(at jobs.Stage, c schemas.Call) error { return s.at(stage(at), c) },
		Managed: func(n int) { s.Metrics.Jobs(s.Name, n) }, Started: func() { s.Metrics.JobStarted(s.Name) }, Limited: s.Metrics.Limited,
	}
}

// noteServed marks the provider as served, for the gateways, until ctx ends.
func (s *workerRun) noteServed(ctx context.Context) {
	for {
		err := served.Note(ctx, s.Bus, s.Name)
		if err != nil && ctx.Err() == nil {
			s.Log.Info("provider not marked as served, retrying", "error", err)
		}
		if !wait.Sleep(ctx, served.Every) {
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
