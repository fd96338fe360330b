package workers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstore"
)

// retrySoon is how soon a call is redelivered that another worker or delivery may be running.
const retrySoon = time.Second

// execution owns one delivery of a call in this process: taken, prepared, its instance reserved, its start proven, run and finished. It is
// for one goroutine; only what it has launched may outlive it.
type execution struct {
	w           *workerRun
	call        schemas.Call
	sideEffects bool
	attempt     int       // of the delivery
	due         time.Time // the call's deadline
	known       *evidence
}

// work is what a call does between the proof of its start and its result: a run in the foreground, or the launch of a job.
type work interface {
	// prepare finds and takes all that can be had before the start, so that what is wrong or unavailable costs no start.
	prepare(context.Context) error
	// temporary reports whether an error of prepare will pass.
	temporary(error) bool
	// run does the work and returns its result. An error is the verdict for the log.
	run(context.Context) (schemas.Result, error)
	// release returns what was taken and a result shows not to be used.
	release(context.Context, schemas.Result)
	// abandon returns what was taken for work that is not done.
	abandon(context.Context)
	// close ends the work, whatever its result.
	close()
}

// handle processes a delivered call until it has its result. Its return value is the verdict for the log.
func (s *workerRun) handle(ctx context.Context, d streams.Delivery[schemas.Call]) error {
	known := newEvidence(observer{bus: s.Bus, lease: s.lease}, d)
	t := &execution{w: s, call: d.Value, sideEffects: known.sideEffects, attempt: d.Attempt,
		due: callstore.Due(d.Value, d.Published, d.Headers), known: known}
	if d.Attempt > 1 {
		s.Metrics.Redelivered()
	}
	id := t.call.EventID()
	taken := s.inFlight.take(id, t.call.Accepted)
	if taken {
		s.Metrics.Slots(s.Name, s.inFlight.count(), s.Slots)
		defer func() {
			s.accountSlots.give(ctx, t.call) // not where another delivery of the call is in flight: the slot is that one's
			s.inFlight.drop(id)
			s.Metrics.Slots(s.Name, s.inFlight.count(), s.Slots)
		}()
	}
	if err := s.at(atDelivered, t.call); err != nil {
		return err
	}
	f, reason := t.facts(!taken)
	full, err := t.takeSlot(ctx, f)
	if err != nil {
		return err
	}
	v := decide(f)
	if v == toLook {
		s.Metrics.Looked()
		if f, err = known.complete(ctx, f); err != nil {
			return streams.RetryAfter(retryDelay(d.Attempt), err)
		}
		v = decide(f)
	}
	if v == toRun && full != nil {
		return t.requeue(full, true)
	}
	s.waiting.forget(id)
	s.Log.Debug("call judged", "call", t.call.ID, "attempt", d.Attempt, "verdict", v)
	switch v {
	case toAck:
		return t.acknowledge(ctx)
	case toWait:
		return streams.RetryAfter(retrySoon, schemas.OpErrorf(schemas.Unavailable, "call", "another delivery of this call may still be in progress"))
	case toRun:
		return t.execute(ctx)
	case toInterrupt:
		if t.call.Job != "" {
			return t.recoverJob(ctx)
		}
		if err := s.endRun(ctx, known); err != nil {
			return streams.RetryAfter(retryDelay(d.Attempt), err)
		}
		r := unrunResult(t.call, v, reason)
		if known.forgotten {
			r = lifecycle.ForgottenResult(t.call)
		}
		if err := s.recoverArtifacts(ctx, known, &r); err != nil {
			return streams.RetryAfter(retryDelay(d.Attempt), err)
		}
		return t.finisher().finish(ctx, r)
	case toLook, toCancel, toExpire, toAbandon:
	}
	return t.finisher().finish(ctx, unrunResult(t.call, v, reason))
}

// execute prepares a call, proves its start, runs it and finishes it. The order matters: everything that can fail for a known reason comes
// before the start; nothing with side effects happens before the proof of the start is on the log; and after the proof only a result ends
// the call.
func (t *execution) execute(ctx context.Context) error {
	t.call, _ = t.call.Read() // what follows derives from this one reading; preparing says what is wrong with it
	t.known.call = t.call
	prep := &preparation{w: t.w, call: t.call, sideEffects: t.sideEffects, due: t.due}
	defer prep.leave()
	work, err := t.work(ctx, prep)
	if err == nil && work == nil {
		return t.recoverJob(ctx)
	}
	if err == nil {
		defer work.close()
		err = work.prepare(ctx)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil, work == nil && schemas.CodeOf(err) == schemas.Unavailable, work != nil && work.temporary(err):
		t.abandon(ctx, work)
		return streams.RetryAfter(prepareDelay(err, t.attempt), err) // nothing was started
	default:
		t.abandon(ctx, work)
		return t.finisher().finish(ctx, unpreparedResult(t.call, err))
	}
	if err := t.w.at(atPrepared, t.call); err != nil {
		return err
	}
	if reason, found, _ := t.cancelled(); found {
		work.abandon(ctx)
		return t.finisher().finish(ctx, unrunResult(t.call, toCancel, reason))
	}
	if err := (startWriter{w: t.w, known: t.known}).start(ctx); err != nil {
		work.abandon(ctx)
		return streams.RetryAfter(retrySoon, err)
	}
	// Once more, now that every other worker sees that the call was started.
	if reason, found, _ := t.cancelled(); found {
		work.abandon(ctx)
		return t.finisher().finish(ctx, unrunResult(t.call, toCancel, reason))
	}
	begun, started := time.Now(), t.w.Bus.Now()
	t.w.Metrics.Wait(t.call.Tool, started.Sub(t.call.Accepted))
	if err := t.w.at(atStarted, t.call); err != nil {
		return err
	}
	result, err := work.run(ctx)
	if err != nil {
		return err
	}
	if err := t.w.at(atRan, t.call); err != nil {
		return err
	}
	work.release(ctx, result)
	t.w.Metrics.Run(t.call.Tool, time.Since(begun))
	result.Started = started
	return t.finisher().finish(ctx, result)
}

// work returns what the call is to do; nil if another process has already decided about its job.
func (t *execution) work(ctx context.Context, prep *preparation) (work, error) {
	if t.call.Job == "" {
		return &foreground{w: t.w, call: t.call, known: t.known, prep: prep}, nil
	}
	l, err := t.w.launcher.Find(ctx, t.call)
	if err != nil || l.Decided() {
		return nil, err
	}
	return &background{w: t.w, known: t.known, prep: prep, launch: l}, nil
}

func (t *execution) abandon(ctx context.Context, w work) {
	if w != nil {
		w.abandon(ctx)
	}
}

// takeSlot takes the call's slot under its account's cap before anything is read, so that waiting calls cost others next to nothing. full
// says why there is none; the conversation of a call that another worker may have started is still read, a few per second. err is a
// verdict to return at once.
func (t *execution) takeSlot(ctx context.Context, f facts) (full, err error) {
	if f.inFlight || f.cancelled || f.left <= 0 { // it will not be run
		return nil, nil
	}
	full = t.w.accountSlots.take(ctx, t.call)
	if full == nil {
		return nil, nil
	}
	if schemas.CodeOf(full) == schemas.Exhausted {
		t.w.Metrics.Limited("account")
	}
	if f.doubt && t.w.waiting.mayRead() {
		return full, nil
	}
	return full, t.requeue(full, !f.doubt)
}

// requeue naks a call that waits for a slot. known says that nothing of it was started.
func (t *execution) requeue(cause error, known bool) error {
	return streams.RetryAfter(t.w.waiting.add(t.call, t.attempt, t.known.asOf, known), cause)
}

// acknowledge handles a call that has its result: the process that wrote it may have died before it settled the job that was not started.
func (t *execution) acknowledge(ctx context.Context) error {
	if t.known.result == nil {
		return nil
	}
	if err := t.finisher().settleJob(ctx, *t.known.result); err != nil {
		return streams.RetryAfter(retrySoon, err)
	}
	return nil
}

// facts returns what is known before the conversation is read.
func (t *execution) facts(inFlight bool) (f facts, reason string) {
	now := t.w.Bus.Now()
	reason, isCancelled, sure := t.cancelled()
	waited, own := t.w.waiting.resumed(t.call.EventID(), t.attempt)
	doubt := t.known.doubtful(waited, own)
	return facts{
		left:        t.due.Sub(now),
		sideEffects: t.sideEffects,
		doubt:       doubt || !sure,
		inFlight:    inFlight,
		cancelled:   isCancelled,
	}, reason
}

// cancelled returns the reason of a request to cancel the call, see cancelSet.find.
func (t *execution) cancelled() (reason string, found, sure bool) {
	return t.w.cancels.find(t.call.Account, t.call.ID, t.call.Accepted, t.w.Bus.Now())
}

func (t *execution) finisher() finisher { return finisher{w: t.w, known: t.known} }

// recoverJob finishes a background call whose start is proven and whose worker is gone, or about whose job another process has
// decided: the job's record says how far it came.
func (t *execution) recoverJob(ctx context.Context) error {
	r, err := t.w.launcher.Recover(ctx, t.call)
	if err != nil {
		return streams.RetryAfter(retrySoon, err)
	}
	return t.finisher().finish(ctx, r)
}
