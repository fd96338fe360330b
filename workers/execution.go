package workers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

const (
	// again is how soon a call that somebody else may be at is handed out again.
	again = time.Second
	// announcedWithin is how long who admits a call may take to announce it, from when the log has it.
	announcedWithin = 10 * time.Second
	// farewell is how long a result may take to the log after everything was asked to end.
	farewell = 5 * time.Second
)

// execution owns one delivery of a call in this process, from top to bottom: taken, prepared, its instance reserved, its start
// proven, run and finished. One goroutine has it; only what it has launched may outlast it.
type execution struct {
	w           *workerRun
	call        schemas.Call
	delivery    streams.Delivery[schemas.Call]
	sideEffects bool
	had         *schemas.Result   // the result that a look has found
	lastStart   time.Time         // where a look has found a start
	sure        streams.Certainty // of what others may have done meanwhile
	looked      bool              // the conversation was read
	forgotten   bool              // nothing of the call was there then, and that says nothing
	proven      bool              // the proof of a start is on the log, by whomever
	mine        bool              // it is this execution's
	// announced says that call.accepted is on the conversation, or goes before whatever this execution writes there.
	announced bool
	// unlaunched says that this execution has tried to launch the call's job and has certainly not.
	unlaunched bool
	stay       *sandboxes.Stay // in the persistent instance of the call; nil: in none
}

// work is what a call does between the proof of its start and its result: a run in the foreground, or the launch of a job.
type work interface {
	// prepare finds and takes all that can be had before the start, so that what is wrong or away costs no start.
	prepare(context.Context) error
	// later reports whether an error of prepare will pass.
	later(error) bool
	// run does the work and returns its result. An error is the verdict for the log.
	run(context.Context) (schemas.Result, error)
	// ran gives back what a result shows not to be used.
	ran(context.Context, schemas.Result)
	// abandon gives back what was taken for work that is not done.
	abandon(context.Context)
	// close ends the work, whatever became of it.
	close()
}

// handle takes a call from its delivery to its result. Its return value is the verdict for the log.
func (s *workerRun) handle(ctx context.Context, d streams.Delivery[schemas.Call]) error {
	t := &execution{
		w: s, call: d.Value, delivery: d, sideEffects: d.Value.SideEffects(),
		sure: streams.Certainty{Since: d.Arrived, Generation: d.Generation},
	}
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
	full, err := t.place(ctx, f)
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
	s.Log.Debug("call judged", "call", t.call.ID, "attempt", d.Attempt, "verdict", v)
	switch v {
	case toAck:
		return t.acknowledge(ctx)
	case toWait:
		return streams.RetryAfter(again, schemas.Errorf(schemas.Unavailable, "call", "another delivery of this call may still be in progress"))
	case toRun:
		return t.execute(ctx)
	case toInterrupt:
		if t.call.Job != "" {
			return t.recoverJob(ctx)
		}
		if err := t.endRun(ctx); err != nil {
			return streams.RetryAfter(later(d.Attempt), err)
		}
		r := unrunResult(t.call, v, reason)
		if t.forgotten {
			r = lifecycle.ForgottenResult(t.call)
		}
		if err := t.recoverArtifacts(ctx, &r); err != nil {
			return streams.RetryAfter(later(d.Attempt), err)
		}
		return t.finish(ctx, r)
	case toLook, toCancel, toExpire, toGiveUp:
	}
	return t.finish(ctx, unrunResult(t.call, v, reason))
}

// execute prepares a call, proves its start, does its work and finishes it. The order is what keeps the promises: nothing that
// could fail for a reason known before costs a start; nothing with side effects happens before the proof of its start is on the
// log; and from the proof on, only a result ends the call.
func (t *execution) execute(ctx context.Context) error {
	defer func() { t.stay.Leave() }()
	t.call, _ = t.call.Read() // what follows derives from this one reading; preparing says what is wrong with it
	t.delivery.Value = schemas.Call{}
	work, err := t.work(ctx)
	if err == nil && work == nil {
		return t.recoverJob(ctx)
	}
	if err == nil {
		defer work.close()
		err = work.prepare(ctx)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil, work == nil && schemas.CodeOf(err) == schemas.Unavailable, work != nil && work.later(err):
		t.abandon(ctx, work)
		return streams.RetryAfter(awhile(err, t.delivery.Attempt), err) // nothing was started
	default:
		t.abandon(ctx, work)
		return t.finish(ctx, unpreparedResult(t.call, err))
	}
	if err := t.w.at(atPrepared, t.call); err != nil {
		return err
	}
	if reason, found, _ := t.cancelled(); found {
		work.abandon(ctx)
		return t.finish(ctx, unrunResult(t.call, toCancel, reason))
	}
	if err := t.start(ctx); err != nil {
		work.abandon(ctx)
		return streams.RetryAfter(again, err)
	}
	// Once more, now that nobody else takes the call for one that was not started.
	if reason, found, _ := t.cancelled(); found {
		work.abandon(ctx)
		return t.finish(ctx, unrunResult(t.call, toCancel, reason))
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
	work.ran(ctx, result)
	t.w.Metrics.Run(t.call.Tool, time.Since(begun))
	result.Started = started
	return t.finish(ctx, result)
}

// work is what the call is to do; nil: somebody has decided about its job already.
func (t *execution) work(ctx context.Context) (work, error) {
	if t.call.Job == "" {
		return &foreground{t: t}, nil
	}
	l, err := t.w.launcher.Find(ctx, t.call)
	if err != nil || l.Decided() {
		return nil, err
	}
	return &background{t: t, launch: l}, nil
}

func (t *execution) abandon(ctx context.Context, w work) {
	if w != nil {
		w.abandon(ctx)
	}
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
	if err := t.settleUnlaunched(ctx, *t.had); err != nil {
		return streams.RetryAfter(again, err)
	}
	return nil
}

// facts is what is known without a look.
func (t *execution) facts(inHand bool) (f facts, reason string) {
	now := t.w.Bus.Now()
	reason, isCancelled, sure := t.cancelled()
	doubt := t.delivery.Attempt > 1 || t.sentAgain()
	if back, own := t.w.waiting.takeBack(t.call.EventID(), t.delivery.Attempt); doubt && own && t.w.kept(back) {
		doubt, t.sure = false, back // nobody else had it since this worker put it back
	}
	return facts{
		left:        t.due().Sub(now),
		sideEffects: t.sideEffects,
		doubt:       doubt || t.delivery.Late() || !sure || !t.sawAll(),
		inHand:      inHand,
		cancelled:   isCancelled,
	}, reason
}

// cancelled returns why the end of the call was asked for, see cancelSet.find.
func (t *execution) cancelled() (reason string, found, sure bool) {
	return t.w.cancels.find(t.call.Account, t.call.ID, t.call.Accepted, t.w.Bus.Now())
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
// must have been published while this worker watched. How old it is may not be known: see [streams.Bus.Age].
func (t *execution) sawAll() bool {
	age, known := t.w.Bus.Age(t.delivery.Published) // by the log's clock; the lease knows this process's
	return known && (age < streams.SureWithin || t.w.lease.KeptFor(age))
}

// sentAgain reports whether the call was accepted so long before it was published that it was on the log before: a dead letter
// that was sent again, or an answer to a question that was acted on late. Where the log's clock was set back in between it may have
// been published before it was accepted.
func (t *execution) sentAgain() bool {
	after := t.delivery.Published.Sub(t.call.Accepted)
	return after >= streams.SureWithin || after < -streams.ClocksApart
}

// left is how much time the call has until its deadline.
func (t *execution) left() time.Duration { return t.due().Sub(t.w.Bus.Now()) }

func (t *execution) due() time.Time {
	return streams.Due(t.call, t.delivery.Published, t.delivery.Headers)
}

// look adds what the conversation shows.
func (t *execution) look(ctx context.Context, f facts) (facts, error) {
	t.w.Metrics.Looked()
	state, err := t.read(ctx)
	if err != nil {
		return f, err
	}
	f.looked, f.finished, f.starts = true, state.Result != nil, len(state.Started)
	f.forgotten = state.Forgotten && f.doubt // else nobody had it before
	age, known := t.w.Bus.Age(t.delivery.Published)
	f.young = known && age < announcedWithin
	if f.starts == 0 || f.finished || !f.sideEffects {
		return f, nil
	}
	gone, err := t.w.lease.AllGone(ctx, state.Started) // what this process started and has not in flight is over
	f.alive = !gone
	return f, err
}
