package workers

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

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

const (
	// launchWithin is what one attempt to start a job may take at the provider.
	launchWithin = time.Minute
	// jobTTL is how long a job's places outlast the last renewal, see Worker.ProbeEvery.
	jobTTL = time.Minute
	// tokenBytes is the length of a callback's token before its encoding.
	tokenBytes = 32
)

// launch is a background call with all that the start of its job needs.
type launch struct {
	preparedCall
	job     streams.Pair[schemas.Job]
	starter providers.JobStarter
	boxes   providers.Reserver
	own     bool // the box is the job's alone
	life    time.Duration
	places  []limits.Lease
	// told is closed when job.started was told or there is nothing to tell: an end that is known
	// earlier waits for it, so that events stand in their order.
	told chan struct{}
	tell sync.Once
}

func (l *launch) endTelling() { l.tell.Do(func() { close(l.told) }) }

// launch takes a background call to the start of its job and its result. The order is what makes it
// safe: places, box, the proof of the start, the record, and only then the start.
func (t *execution) launch(ctx context.Context) error {
	l, err := t.prepareLaunch(ctx)
	switch {
	case err == nil && l.job.Value.State != schemas.JobWaiting:
		r, err := t.recovered(ctx)
		if err != nil {
			return streams.RetryAfter(again, err)
		}
		return t.finish(ctx, r)
	case err == nil:
	case ctx.Err() != nil, schemas.CodeOf(err) == schemas.Unavailable, errors.Is(err, errNoRoom):
		t.abandon(ctx, l)
		return streams.RetryAfter(awhile(err, t.delivery.Attempt), err) // nothing was started
	default:
		t.abandon(ctx, l)
		return t.finish(ctx, unpreparedResult(t.call, err))
	}
	defer l.endTelling()
	if err := t.w.at(atPrepared, t.call); err != nil {
		return err
	}
	if err := t.start(ctx); err != nil {
		t.abandon(ctx, l)
		return streams.RetryAfter(again, err)
	}
	// Once more, now that nobody else takes the call for one that was not started.
	if reason, found, _ := t.cancelled(); found {
		t.abandon(ctx, l)
		return t.finish(ctx, unrunResult(t.call, toCancel, reason))
	}
	begun, started := time.Now(), t.w.Bus.Now()
	t.w.Metrics.Wait(t.call.Tool, started.Sub(t.call.Accepted))
	if err := t.w.at(atStarted, t.call); err != nil {
		return err
	}
	result, err := t.startJob(ctx, l)
	if err != nil {
		return err
	}
	if err := t.w.at(atRan, t.call); err != nil {
		return err
	}
	if t.unlaunched = result.StatusID == ""; t.unlaunched {
		t.abandon(ctx, l)
	}
	t.w.Metrics.Run(t.call.Tool, time.Since(begun))
	result.Started = started
	return t.finish(ctx, result)
}

// errNoRoom marks a provider that has no room for a box now, which is no matter of the job's caps.
var errNoRoom = errors.New("the provider has no room now")

// prepareLaunch finds and takes all that can be had before the start. Codes: unavailable, and
// errNoRoom: try again later. Also with an error it returns what it has taken already.
func (t *execution) prepareLaunch(ctx context.Context) (l *launch, err error) {
	l = &launch{told: make(chan struct{})}
	var starts, keeps bool
	l.starter, starts = providers.As[providers.JobStarter](t.w.Provider)
	l.boxes, keeps = providers.As[providers.Reserver](t.w.Provider)
	if !starts || !keeps {
		return l, &schemas.Error{
			Code: schemas.Unsupported, Field: "input.background",
			Message: "background jobs are not available in this sandbox: run the command in the foreground",
		}
	}
	if l.job, err = lifecycle.EnsureJob(ctx, t.w.Bus, t.call); err != nil {
		return l, fmt.Errorf("record of the job: %w", err)
	}
	if l.job.Value.State != schemas.JobWaiting {
		return l, nil
	}
	if l.preparedCall, err = t.compile(ctx); err != nil {
		return l, err
	}
	l.life = lifetime(l.sandbox)
	l.command.Timeout, l.command.OutputLimit = l.life, 0
	if err := t.takePlaces(ctx, l); err != nil {
		return l, err
	}
	if l.own = !l.sandbox.Persistent; l.own {
		l.keep = "job." + l.job.Key
	} else {
		l.keep = sandboxes.Key(t.call)
	}
	return l, t.reserveFor(ctx, l)
}

// reserveFor gets the box of the job, a kept one or one of its own.
func (t *execution) reserveFor(ctx context.Context, l *launch) (err error) {
	if l.own {
		if l.command.Sandbox, err = l.boxes.Reserve(ctx, l.keep, l.command.Spec); err != nil {
			err = fmt.Errorf("reserve the sandbox: %w", err)
		}
	} else {
		err = t.acquire(ctx, &l.preparedCall)
	}
	switch {
	case schemas.CodeOf(err) == schemas.Exhausted:
		return fmt.Errorf("%w: %w", errNoRoom, err)
	case err != nil || l.own:
		return err
	}
	l.life = max(min(l.life, t.stay.Deadline().Sub(t.w.Bus.Now())), time.Second) // it ends with its box at the latest
	l.command.Timeout = l.life
	return nil
}

// lifetime is how long a job of a sandbox may run.
func lifetime(s schemas.Sandbox) time.Duration {
	if s.JobLifetime <= 0 {
		return schemas.DefaultJobLifetime
	}
	return min(time.Duration(s.JobLifetime), schemas.MaxJobLifetime)
}

// takePlaces takes the job's places under its caps. Above a cap the call fails: unlike a call, a job
// may hold its place for days, so the model is told rather than kept waiting.
func (t *execution) takePlaces(ctx context.Context, l *launch) error {
	if t.w.Limiter == nil {
		return nil
	}
	c := t.call
	for _, limit := range []struct {
		key, name, where string
		most             int
	}{
		{"jobs." + sandboxes.Key(c), "box", "in this sandbox", cmp.Or(l.sandbox.JobLimit, t.w.JobLimit, schemas.DefaultJobs)},
		{"jobs." + string(c.Account), "jobs", "in this account", t.w.AccountJobs},
	} {
		if limit.most <= 0 {
			continue
		}
		place, err := t.w.Limiter.Acquire(ctx, limit.key, l.job.Key, limit.most, placeTTL(t.w.ProbeEvery))
		switch {
		case err == nil:
			l.places = append(l.places, place)
		case schemas.CodeOf(err) == schemas.Exhausted:
			t.w.Metrics.Limited(limit.name)
			return schemas.Errorf(schemas.Exhausted, "",
				"background job limit reached (%d concurrent): that many run %s. Wait until one has ended, or stop one with async_status", limit.most, limit.where)
		default:
			t.w.accountSlots.tellAway(ctx, err)
			return schemas.Wrap(schemas.Unavailable, "caps", "the limiter is away: the call waits for it", err)
		}
	}
	return nil
}

// placeTTL leaves a job's place three renewals that fail.
func placeTTL(probeEvery time.Duration) time.Duration { return max(jobTTL, 4*probeEvery) }

// abandon gives back what a launch has taken and will not use. Releasing twice harms nobody.
func (t *execution) abandon(ctx context.Context, l *launch) {
	l.endTelling()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if len(l.places) > 0 {
		if err := t.w.Limiter.Release(ctx, l.places...); err != nil {
			t.w.Log.Warn("places of a job not given back: they end by themselves", "job", t.call.Job, "error", err, "after", placeTTL(t.w.ProbeEvery))
		}
	}
	if l.own && !l.command.Sandbox.IsZero() {
		if err := l.boxes.Release(ctx, l.command.Sandbox); err != nil {
			t.w.Log.Warn("the box of a job that was not started is left behind", "job", t.call.Job, "box", l.command.Sandbox.ID, "error", err)
		}
	}
}

// startJob starts the job and returns the call's result: with a status id when the job runs or may
// run, without one when it certainly does not. An error is one of the stages.
func (t *execution) startJob(ctx context.Context, l *launch) (schemas.Result, error) {
	callback, hash := t.callback()
	until := time.Now().Add(min(shortage, t.left()))
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		mine, err := t.recordLaunch(ctx, l, hash)
		if err != nil {
			return lifecycle.FailedResult(t.call, err), nil // nothing was started
		}
		if !mine {
			return lifecycle.NotLaunchedResult(t.call), nil
		}
		t.w.jobs.observe(l.job.Value) // a job may be over before the watch tells that it was there
		if err := t.w.at(atLaunching, t.call); err != nil {
			return schemas.Result{}, err
		}
		ref, err := t.startOnce(ctx, l, callback)
		if err == nil {
			if err := t.w.at(atLaunched, t.call); err != nil {
				return schemas.Result{}, err
			}
			l.job.Value.Ref = ref
			if err := t.recordStart(ctx, l); err != nil {
				return schemas.Result{}, err
			}
			return lifecycle.LaunchedResult(t.call, l.job.Value), nil
		}
		t.w.Log.Warn("job not started", "job", t.call.Job, "code", schemas.CodeOf(err), "error", err)
		switch code := schemas.CodeOf(err); {
		case !surelyUnstarted(code):
			return lifecycle.MayRunResult(t.call), nil
		case time.Now().Add(wait).After(until), code != schemas.NotFound && !code.Retryable(), !sleep(ctx, wait):
			return lifecycle.FailedResult(t.call, err), nil
		case code == schemas.NotFound: // the box is gone: one made anew has another name
			if err := t.reserveFor(ctx, l); err != nil && !schemas.CodeOf(err).Retryable() {
				return lifecycle.FailedResult(t.call, err), nil
			}
		}
	}
}

// surelyUnstarted reports whether a provider's error says that nothing was started. Of all others
// nobody knows.
func surelyUnstarted(c schemas.Code) bool {
	switch c {
	case schemas.Invalid, schemas.NotFound, schemas.Conflict, schemas.Denied, schemas.Exhausted, schemas.Unavailable, schemas.Unsupported:
		return true
	case schemas.Timeout, schemas.Interrupted, schemas.Internal:
	}
	return false
}

// startOnce asks the provider once.
func (t *execution) startOnce(ctx context.Context, l *launch, callback *providers.Callback) (ref schemas.JobRef, err error) {
	ctx, cancel := context.WithTimeout(ctx, launchWithin)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = schemas.Errorf(schemas.Internal, "start", "the provider broke the worker's code: %v", p)
		}
	}()
	ref, err = l.starter.StartJob(ctx, t.call.Job, l.command, providers.JobOptions{Notify: t.notify(ctx, l), Callback: callback})
	return ref, err
}

// callback makes the job's token, of which the record keeps a hash only.
func (t *execution) callback() (callback *providers.Callback, hash string) {
	if t.w.CallbackURL == "" {
		return nil, ""
	}
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	token := string(t.call.Account) + "." + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	url := strings.TrimSuffix(t.w.CallbackURL, "/") + "/sandbox-jobs/" + string(t.call.Job) + "/complete"
	return &providers.Callback{URL: url, Token: token}, hex.EncodeToString(sum[:])
}

// notify tells the end of the job when the provider hears of it itself.
func (t *execution) notify(ctx context.Context, l *launch) func(providers.JobEnd) {
	const (
		within = time.Minute     // of the completion's way to the log, also when the worker has ended
		order  = 5 * time.Second // that job.started may take to go first
	)
	ctx = context.WithoutCancel(ctx)
	j := schemas.Job{Account: t.call.Account, ID: t.call.Job}
	return func(end providers.JobEnd) {
		select {
		case <-l.told:
		case <-time.After(order):
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		c := completionOf(j, end, schemas.ViaProvider, t.w.jobs.stopReason(j.Key()), t.w.Bus.Now())
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
			err := lifecycle.CompleteOnce(ctx, t.w.Bus, c)
			if err == nil {
				return
			}
			if !sleep(ctx, wait) {
				t.w.Log.Warn("job completion not published, it is found later", "job", j.ID, "error", err)
				return
			}
		}
	}
}

// recovered is the result of a background call whose proof of a start is on the log and whose worker
// is gone, or whose job somebody has decided about: the job's record tells how far it came.
func (t *execution) recovered(ctx context.Context) (schemas.Result, error) {
	l := &launch{}
	var err error
	if l.job, err = lifecycle.EnsureJob(ctx, t.w.Bus, t.call); err != nil {
		return schemas.Result{}, fmt.Errorf("record of the job: %w", err)
	}
	if l.job.Value.State == schemas.JobWaiting {
		// Nobody may launch it any more, not even its worker if that was only asleep: it will find
		// another name in the record.
		if _, err := t.amend(ctx, l, func(j *schemas.Job) bool {
			mine := j.State == schemas.JobWaiting
			j.Worker = t.w.me()
			return mine
		}); err != nil {
			return schemas.Result{}, err
		}
	}
	j := l.job.Value
	switch lifecycle.StartOf(j) {
	case lifecycle.HasStarted:
		if err := tellStarted(ctx, t.w.Bus, j); err != nil {
			return schemas.Result{}, fmt.Errorf("tell of the job's start: %w", err)
		}
		return lifecycle.LaunchedResult(t.call, j), nil
	case lifecycle.MayHaveStarted:
		return lifecycle.MayRunResult(t.call), nil
	case lifecycle.NeverStarted:
	}
	return lifecycle.NotLaunchedResult(t.call), nil
}

// leftover settles the job of a background call that has its result r, if it was not launched. This execution
// may know that for certain; of another's result it takes the record's word, because whoever wrote it may
// not have known of a launch.
func (t *execution) leftover(ctx context.Context, r schemas.Result) error {
	switch {
	case t.call.Job == "", r.StatusID != "":
		return nil
	case t.unlaunched && t.had == nil:
		return lifecycle.SettleNotStarted(ctx, t.w.Bus, t.call, whyUnstarted(r), lifecycle.Certainly)
	}
	return lifecycle.SettleNotStarted(ctx, t.w.Bus, t.call, whyUnstarted(r), lifecycle.AsRecorded)
}

// whyUnstarted is the reason in the completion of a job that its call has not started.
func whyUnstarted(r schemas.Result) string {
	if r.Status == schemas.Failed && r.Error != nil {
		return r.Error.Message
	}
	return cmp.Or(r.Text, string(r.Status))
}
