package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
)

const (
	// launchWithin is what one attempt to start a job may take at the provider.
	launchWithin = time.Minute
	// shortage is how long a started call waits for a provider that has no room or is unreachable, and for the log to take the record.
	// The call cannot be redelivered any more: another worker would have to end it as interrupted.
	shortage = 30 * time.Second
	// abandonWithin is how long the release of what was taken may take.
	abandonWithin = 5 * time.Second
	// tokenBytes is the length of a callback's token before its encoding.
	tokenBytes = 32
)

var (
	startAgain  = wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // a constant
	recordAgain = wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}      //nolint:gochecknoglobals // a constant
)

// ErrNoRoom marks a provider that has no room for an instance now, which is no matter of the job's caps: try again.
var ErrNoRoom = errors.New("the provider has no room now")

// Launcher starts the jobs of background calls. Its methods may be called from any number of goroutines.
type Launcher struct {
	options Options
	manager *Manager
}

// NewLauncher makes a launcher of jobs that m manages.
func NewLauncher(o Options, m *Manager) *Launcher { return &Launcher{options: o, manager: m} }

// Order is what a job is started with.
type Order struct {
	Sandbox schemas.Sandbox
	Command providers.Command
	// Outputs is where the job leaves artifacts. Nil: it has none.
	Outputs *schemas.JobOutputs
	// Caps names what the number of jobs in one sandbox is counted under.
	Caps string
	// Acquire gets the call into the persistent instance of its sandbox and returns when this ends at the latest. It is called
	// again when the instance has vanished before the start. Nil: the sandbox keeps none, and the job gets one of its own.
	Acquire func(context.Context) (ref schemas.Ref, deadline time.Time, err error)
}

// Launch is a background call until the start of its job. It is for one goroutine. The order makes it safe: [Launch.Prepare] takes slots
// and instance, then the caller proves the start of the call, then [Launch.Start] writes the record and starts the job. A caller that does
// not start the job calls [Launch.Abandon]; every caller ends with [Launch.Close].
type Launch struct {
	*launchRecord

	launcher *Launcher
	starter  providers.JobStarter
	reserver providers.Reserver
	order    Order
	own      bool // the instance is the job's alone
	life     time.Duration
	places   []limits.Lease

	// announced is closed when job.started is published or never will be: an end that is known earlier waits for it, so that
	// events stand in their order.
	announced chan struct{}
	announce  sync.Once
}

// Close ends the launch: the publication of job.started is no longer awaited. It may be called more than once.
func (x *Launch) Close() { x.announce.Do(func() { close(x.announced) }) }

// Find looks up or makes the record of a call's job. Codes: unsupported (the provider cannot start jobs), unavailable.
func (l *Launcher) Find(ctx context.Context, c schemas.Call) (*Launch, error) {
	x := &Launch{launcher: l, announced: make(chan struct{})}
	var starts, reserves bool
	x.starter, starts = providers.As[providers.JobStarter](l.options.Provider)
	x.reserver, reserves = providers.As[providers.Reserver](l.options.Provider)
	if !starts || !reserves {
		return nil, &schemas.Error{
			Code: schemas.Unsupported, Field: "input.background",
			Message: "background jobs are not available in this sandbox: run the command in the foreground",
		}
	}
	var err error
	x.launchRecord, err = l.record(ctx, c)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Decided reports whether the job was already launched or ended, by any process. [Launcher.Recover] returns the result.
func (x *Launch) Decided() bool { return x.job.Value.State != schemas.JobWaiting }

// Prepare takes everything that is available before the start: the slots under the caps, and the instance. Codes: exhausted (a cap is
// reached), unavailable and [ErrNoRoom] (try again later), those of Acquire. Call Abandon also after an error.
func (x *Launch) Prepare(ctx context.Context, o Order) error {
	x.order = o
	x.life = lifetime(o.Sandbox)
	x.order.Command.Timeout, x.order.Command.OutputLimit = x.life, 0
	if err := x.takePlaces(ctx); err != nil {
		return err
	}
	x.own = o.Acquire == nil
	return x.reserve(ctx)
}

// reserve gets the instance of the job: the sandbox's, or one of its own.
func (x *Launch) reserve(ctx context.Context) (err error) {
	var deadline time.Time
	if x.own {
		if x.order.Command.Sandbox, err = x.reserver.Reserve(ctx, "job."+x.job.Key, x.order.Command.Spec); err != nil {
			err = fmt.Errorf("reserve the sandbox: %w", err)
		}
	} else {
		var ref schemas.Ref
		if ref, deadline, err = x.order.Acquire(ctx); err == nil {
			x.order.Command.Sandbox = ref
		}
	}
	switch {
	case schemas.CodeOf(err) == schemas.Exhausted:
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	case err != nil || x.own:
		return err
	}
	x.life = max(min(x.life, deadline.Sub(x.launcher.options.Bus.Now())), time.Second) // it ends with its instance at the latest
	x.order.Command.Timeout = x.life
	return nil
}

// lifetime is how long a job of a sandbox may run.
func lifetime(s schemas.Sandbox) time.Duration {
	if s.JobLifetime <= 0 {
		return schemas.DefaultJobLifetime
	}
	return min(time.Duration(s.JobLifetime), schemas.MaxJobLifetime)
}

// takePlaces takes the job's slots under its caps. Above a cap the call fails: a job may occupy its slot for days, so the model gets the
// error rather than wait.
func (x *Launch) takePlaces(ctx context.Context) error {
	o := x.launcher.options
	if o.Limiter == nil {
		return nil
	}
	inSandbox := cmp.Or(x.order.Sandbox.JobLimit, o.PerSandbox, schemas.DefaultJobs)
	if o.MaxPerSandbox > 0 {
		inSandbox = min(inSandbox, o.MaxPerSandbox)
	}
	for _, limit := range []struct {
		key, name, where string
		most             int
	}{
		{"jobs." + x.order.Caps, "box", "in this sandbox", inSandbox},
		{"jobs." + string(x.call.Account), "jobs", "in this account", o.PerAccount},
	} {
		if limit.most <= 0 {
			continue
		}
		place, err := o.Limiter.Acquire(ctx, limit.key, x.job.Key, limit.most, placeTTL(o.ProbeEvery))
		switch {
		case err == nil:
			x.places = append(x.places, place)
		case schemas.CodeOf(err) == schemas.Exhausted:
			o.Limited(limit.name)
			return schemas.Errorf(schemas.Exhausted,
				"background job limit reached (%d concurrent): that many run %s. Wait until one has ended, or stop one with async_status",
				limit.most, limit.where)
		default:
			o.LimiterAway(ctx, err)
			return schemas.Wrap(schemas.Unavailable, "caps", "the limiter is away: the call waits for it", err)
		}
	}
	return nil
}

// Abandon releases what a launch has taken and does not use. It may be called more than once, also on nil.
func (x *Launch) Abandon(ctx context.Context) {
	if x == nil {
		return
	}
	x.Close()
	o := x.launcher.options
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	if len(x.places) > 0 {
		if err := o.Limiter.Release(ctx, x.places...); err != nil {
			o.Log.Warn("slots of a job not released, they expire", "job", x.call.Job, "error", err, "after", placeTTL(o.ProbeEvery))
		}
	}
	if x.own && !x.order.Command.Sandbox.IsZero() {
		if err := x.reserver.Release(ctx, x.order.Command.Sandbox); err != nil {
			o.Log.Warn("sandbox instance of an unstarted job not released", "job", x.call.Job, "instance", x.order.Command.Sandbox.ID, "error", err)
		}
	}
}

// Start starts the job and returns the call's result: with a status id when the job runs or may run, without one when it
// certainly does not; then [Launch.Abandon] is due. The start of the call must have been proven. An error is one of [Options.At]
// alone. It blocks for a minute for each attempt, and for half a minute of attempts.
func (x *Launch) Start(ctx context.Context) (schemas.Result, error) {
	o := x.launcher.options
	callback, hash := x.callback()
	until := time.Now().Add(min(shortage, x.call.Deadline.Sub(o.Bus.Now())))
	for attempt := 1; ; attempt++ {
		mine, err := x.recordLaunch(ctx, hash)
		if err != nil {
			return lifecycle.FailedResult(x.call, err), nil // nothing was started
		}
		if !mine {
			return lifecycle.NotLaunchedResult(x.call), nil
		}
		x.launcher.manager.open.Take(x.job, nil) // a job may have ended before the watch shows that it was there
		if err := o.At(Launching, x.call); err != nil {
			return schemas.Result{}, err
		}
		ref, err := x.startOnce(ctx, callback)
		if err == nil {
			if err := o.At(Launched, x.call); err != nil {
				return schemas.Result{}, err
			}
			if err := x.recordStart(ctx, ref); err != nil {
				return schemas.Result{}, err
			}
			return lifecycle.LaunchedResult(x.call, x.job.Value), nil
		}
		o.Log.Warn("job not started", "job", x.call.Job, "attempt", attempt, "code", schemas.CodeOf(err), "error", err)
		pause := startAgain.After(attempt)
		switch code := schemas.CodeOf(err); {
		case !surelyUnstarted(code):
			return lifecycle.MayRunResult(x.call), nil
		case time.Now().Add(pause).After(until), code != schemas.NotFound && !code.Retryable(), !wait.Sleep(ctx, pause):
			return lifecycle.FailedResult(x.call, err), nil
		case code == schemas.NotFound: // the instance is gone: a new one has another name
			if err := x.reserve(ctx); err != nil && !schemas.CodeOf(err).Retryable() {
				return lifecycle.FailedResult(x.call, err), nil
			}
		}
	}
}

// surelyUnstarted reports whether a provider's error says that nothing was started. With all other
// codes the job may run.
func surelyUnstarted(c schemas.Code) bool {
	switch c {
	case schemas.Invalid, schemas.NotFound, schemas.Conflict, schemas.Denied, schemas.Exhausted, schemas.Unavailable, schemas.Unsupported:
		return true
	case schemas.Timeout, schemas.Interrupted, schemas.Internal:
	}
	return false
}

// startOnce asks the provider once.
func (x *Launch) startOnce(ctx context.Context, callback *providers.Callback) (schemas.JobRef, error) {
	ctx, cancel := context.WithTimeout(ctx, launchWithin)
	defer cancel()
	return x.starter.StartJob(ctx, x.call.Job, x.order.Command, providers.JobOptions{Notify: x.notify(ctx), Callback: callback})
}

// callback creates the job's token, of which the record has only a hash.
func (x *Launch) callback() (callback *providers.Callback, hash string) {
	base := x.launcher.options.CallbackURL
	if base == "" {
		return nil, ""
	}
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	token := string(x.call.Account) + "." + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	url := strings.TrimSuffix(base, "/") + "/sandbox-jobs/" + string(x.call.Job) + "/complete"
	return &providers.Callback{URL: url, Token: token}, hex.EncodeToString(sum[:])
}

// notify returns a function that reports the end of the job when the provider learns of it. The manager finds ends that it could not
// report.
func (x *Launch) notify(ctx context.Context) func(providers.JobEnd) {
	const (
		within = time.Minute     // of the completion's way to the log, also when the worker has ended
		order  = 5 * time.Second // that job.started may take to go first
	)
	ctx = context.WithoutCancel(ctx)
	o, have := x.launcher.options, x.job.Value
	j := schemas.Job{
		Account: have.Account, ID: have.ID, Provider: have.Provider, Sandbox: have.Sandbox, Workspace: have.Workspace,
		DedicatedSandbox: have.DedicatedSandbox, Ref: have.Ref,
	}
	return func(end providers.JobEnd) {
		select {
		case <-x.announced:
		case <-time.After(order):
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		c := completionOf(j, end, schemas.ReportedByProvider, x.launcher.manager.stopReason(j.Key()), o.Bus.Now())
		for attempt := 1; ; attempt++ {
			err := lifecycle.EndJob(ctx, o.Bus, j, c, end.Replaced)
			if err == nil {
				return
			}
			if !startAgain.Sleep(ctx, attempt) {
				o.Log.Warn("job completion not published, the job manager will find it", "job", j.ID, "error", err)
				return
			}
		}
	}
}

// Recover returns the result of a background call whose start is proven and whose worker is gone, or whose job was already launched or
// ended: the job's record decides. Code: unavailable.
func (l *Launcher) Recover(ctx context.Context, c schemas.Call) (schemas.Result, error) {
	r, err := l.record(ctx, c)
	if err != nil {
		return schemas.Result{}, err
	}
	if r.job.Value.State == schemas.JobWaiting {
		// Fence off its launch, also by its worker if that was only suspended: it will find
		// another name in the record.
		if _, err := r.amend(ctx, func(j *schemas.Job) bool {
			mine := j.State == schemas.JobWaiting
			j.Worker = l.options.Lease.Worker()
			return mine
		}); err != nil {
			return schemas.Result{}, err
		}
	}
	j := r.job.Value
	switch lifecycle.StartOf(j) {
	case lifecycle.HasStarted:
		if err := publishStarted(ctx, l.options.Bus, j); err != nil {
			return schemas.Result{}, fmt.Errorf("publish the job's start: %w", err)
		}
		return lifecycle.LaunchedResult(c, j), nil
	case lifecycle.MayHaveStarted:
		return lifecycle.MayRunResult(c), nil
	case lifecycle.NeverStarted:
	}
	return lifecycle.NotLaunchedResult(c), nil
}
