package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

const (
	// again is how soon a call that somebody else may be at is handed out again.
	again = time.Second
	// farewell is how long a result may take to the log after everything was told to end.
	farewell = 5 * time.Second
)

// execution owns one delivery of a call in this process, from top to bottom: taken, prepared, its instance reserved, its start
// proven, run and finished. One goroutine has it; only what it has launched may outlast it.
type execution struct {
	w        *workerRun
	call     schemas.Call
	delivery streams.Delivery[schemas.Call]
	had      *schemas.Result   // the result that a look has found
	sure     streams.Certainty // of what others may have done meanwhile
	looked   bool              // the conversation was read
	proven   bool              // the proof of a start is on the log, by whomever
	mine     bool              // it is this execution's
	// announced says that call.accepted is on the conversation, or goes before whatever this execution writes there.
	announced bool
	// unlaunched says that this execution has tried to launch the call's job and has certainly not.
	unlaunched bool
	stay       *sandboxes.Stay // in the kept box of the call; nil: in none
}

// handle takes a call from its delivery to its result. Its return value is the verdict for the log.
func (s *workerRun) handle(ctx context.Context, d streams.Delivery[schemas.Call]) error {
	t := &execution{w: s, call: d.Value, delivery: d, sure: streams.Certainty{Since: d.Arrived, Generation: d.Generation}}
	if d.Attempt > 1 {
		s.Metrics.Redelivered()
	}
	id := t.call.EventID()
	taken := s.inFlight.take(id, t.accepted())
	if taken {
		s.Metrics.Slots(s.Name, s.inFlight.count(), s.Slots)
		defer func() {
			s.inFlight.drop(id)
			s.Metrics.Slots(s.Name, s.inFlight.count(), s.Slots)
		}()
	}
	if err := s.at(atDelivered, t.call); err != nil {
		return err
	}
	f, reason := t.facts(!taken)
	full, err := t.place(ctx, f)
	defer t.w.accountSlots.give(ctx, t.call)
	if err != nil {
		return err
	}
	v := decide(f)
	if v == toLook {
		if f, err = t.look(ctx, f); err != nil {
			return streams.RetryAfter(later(d.Attempt), err)
		}
		v = decide(f)
	}
	if v == toRun && full != nil {
		return t.stayAway(full, true)
	}
	s.waiting.forget(id)
	s.Log.Debug("verdict", "call", t.call.ID, "attempt", d.Attempt, "verdict", v)
	switch v {
	case toAck:
		return t.acknowledge(ctx)
	case toWait:
		return streams.RetryAfter(again, schemas.Errorf(schemas.Unavailable, "call", "another delivery of this call may still be in hand"))
	case toRun:
		return t.run(ctx)
	case toInterrupt:
		if t.call.Job == "" {
			break
		}
		r, err := t.recovered(ctx)
		if err != nil {
			return streams.RetryAfter(again, err)
		}
		return t.finish(ctx, r)
	case toLook, toCancel, toExpire, toGiveUp:
	}
	return t.finish(ctx, unrunResult(t.call, v, reason))
}

// place takes the call's place under its account's cap before anything is read about it, so that calls that wait for
// one cost others next to nothing. Full says that there is none: a call of which it is not known whether somebody has
// started it is looked up all the same, a few each second. An error puts the call back at once.
func (t *execution) place(ctx context.Context, f facts) (full, err error) {
	if f.inHand || f.cancelled || f.left <= 0 { // it will not be run
		return nil, nil
	}
	full = t.w.accountSlots.take(ctx, t.call)
	if full == nil {
		return nil, nil
	}
	if schemas.CodeOf(full) == schemas.Exhausted {
		t.w.Metrics.Limited("account")
	}
	if f.doubt && t.w.waiting.mayLook() {
		return full, nil
	}
	return full, t.stayAway(full, !f.doubt)
}

// stayAway puts a call back that waits for a place. Known says that nothing of it was started.
func (t *execution) stayAway(cause error, known bool) error {
	return streams.RetryAfter(t.w.waiting.putBack(t.call, t.delivery.Attempt, t.sure, known), cause)
}

// acknowledge is the end of a call that has its result: whoever wrote it may have died before it could
// settle the job that was not started.
func (t *execution) acknowledge(ctx context.Context) error {
	if t.had == nil {
		return nil
	}
	if err := t.leftover(ctx, *t.had); err != nil {
		return streams.RetryAfter(again, err)
	}
	return nil
}

// facts is what is known without a look.
func (t *execution) facts(inHand bool) (f facts, reason string) {
	now := t.w.Bus.Now()
	reason, isCancelled, sure := t.cancelled()
	doubt := t.delivery.Attempt > 1
	if back, own := t.w.waiting.takeBack(t.call.EventID(), t.delivery.Attempt); doubt && own && t.w.kept(back) {
		doubt, t.sure = false, back // nobody else had it since this worker put it back
	}
	return facts{
		left:        t.call.Deadline.Sub(now),
		sideEffects: t.call.SideEffects(),
		doubt:       doubt || t.delivery.Late() || !sure || !t.sawAll(now),
		inHand:      inHand,
		cancelled:   isCancelled,
	}, reason
}

// cancelled returns why the end of the call was asked for, see cancelSet.find.
func (t *execution) cancelled() (reason string, found, sure bool) {
	return t.w.cancels.find(t.call.EventID(), t.accepted(), t.w.Bus.Now())
}

// accepted is when the call was accepted, by the earlier of two clocks: that of who did it, and the log's.
func (t *execution) accepted() time.Time {
	if t.delivery.Published.Before(t.call.Accepted) {
		return t.delivery.Published
	}
	return t.call.Accepted
}

// sawAll reports whether a first delivery is surely that. When the log itself was killed it may
// have forgotten that it had delivered a call, and count from one again. A recent start is then
// recognised when its proof is written a second time; a call that is older than this recognition
// must have been published while this worker watched.
func (t *execution) sawAll(now time.Time) bool {
	age := now.Sub(t.delivery.Published) // by the log's clock; the lease knows this process's
	return age < streams.SureWithin || t.w.lease.KeptSinceWall(time.Now().Add(-age))
}

// left is how much time the call has until its deadline.
func (t *execution) left() time.Duration { return t.call.Deadline.Sub(t.w.Bus.Now()) }

// look adds what the conversation tells.
func (t *execution) look(ctx context.Context, f facts) (facts, error) {
	t.w.Metrics.Looked()
	state, err := t.read(ctx)
	if err != nil {
		return f, err
	}
	f.looked, f.finished, f.starts = true, state.Result != nil, len(state.Started)
	if f.starts == 0 || f.finished || !f.sideEffects {
		return f, nil
	}
	// First whether absence is proof, then the absence: the other way round a lapse in between
	// would go unseen.
	f.settled = t.w.lease.Settled()
	f.alive, err = t.w.lease.AnyHeld(ctx, state.Started) // what this process started and has not in hand is over
	if err != nil {
		return f, err
	}
	return f, nil
}

// finish writes the result, once, and settles the job that it leaves unstarted. It tries for as long as this
// worker may: a log that is away for a moment must not cost a result.
func (t *execution) finish(hard context.Context, r schemas.Result) error {
	r.Finished = t.w.Bus.Now()
	ctx, cancel := context.WithCancel(context.WithoutCancel(hard))
	defer cancel()
	defer context.AfterFunc(hard, func() { time.AfterFunc(farewell, cancel) })()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		written, err := t.write(ctx, r)
		if written {
			t.w.Metrics.Finished(t.call.Tool, r.Status)
		}
		if err == nil {
			if t.had != nil {
				r = *t.had
			}
			err = t.leftover(ctx, r)
		}
		if err == nil {
			return t.w.at(atFinished, t.call)
		}
		switch {
		case schemas.CodeOf(err) == schemas.Invalid:
			return fmt.Errorf("write the result: %w", err) // no use in saying it again
		case errors.Is(err, errElsewhere):
			return streams.RetryAfter(again, err)
		}
		t.w.Log.Warn("result not written yet", "call", t.call.ID, "error", err)
		select {
		case <-ctx.Done():
			return streams.RetryAfter(0, fmt.Errorf("write the result: %w", errors.Join(err, ctx.Err())))
		case <-time.After(wait):
		}
	}
}

// write publishes the result unless there may be one already and there is.
func (t *execution) write(ctx context.Context, r schemas.Result) (written bool, err error) {
	unstarted := !t.proven // when the result was made
	if t.doubtful() || t.unannounced() {
		if done, err := t.told(ctx, r, unstarted); done || err != nil {
			return false, err
		}
	}
	written, err = lifecycle.Finish(ctx, t.w.Bus, t.call, r, t.proven, t.announcement()...)
	if err != nil || written {
		return written, err
	}
	done, err := t.told(ctx, r, unstarted)
	if err == nil && !done {
		err = schemas.Errorf(schemas.Unavailable, "result", "the log has a start or a result of the call that cannot be read yet")
	}
	return false, err
}

// told looks whether the call has its result, which is kept then.
func (t *execution) told(ctx context.Context, r schemas.Result, unstarted bool) (bool, error) {
	state, err := t.read(ctx)
	switch {
	case err != nil:
		return false, err
	case state.Result != nil:
		if state.Result.Finished.Equal(r.Finished) && state.Result.Status == r.Status {
			t.had = nil // it is this execution's own, whose confirmation was lost
		} else {
			t.w.Log.Warn("a result came too late and is dropped: the call has one", "call", t.call.ID, "status", r.Status, "has", state.Result.Status)
		}
		return true, nil
	case unstarted && t.call.SideEffects() && len(state.Started) > 0:
		return false, errElsewhere
	}
	return false, nil
}
