package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/workers/leases"
)

// announcedWithin is how long admission may take to announce a call, from when the log has the call.
const announcedWithin = 10 * time.Second

// errElsewhere says that another worker has started the call, or ended it.
var errElsewhere = errors.New("the call was started or ended elsewhere")

// observer judges how far earlier knowledge of the log still holds for this worker.
type observer struct {
	bus   *streams.Bus
	lease *leases.Lease
}

// alive reports whether no other worker can have taken this one for dead since then.
func (o observer) alive(c streams.Certainty) bool {
	return o.bus.Generation() == c.Generation && o.lease.KeptSince(c.Since)
}

// fresh reports whether the log itself detects changes that other processes made since then, and no other worker can have taken this one for
// dead.
func (o observer) fresh(c streams.Certainty) bool { return o.bus.Holds(c) && o.alive(c) }

// evidence is what a worker knows of one call from the log, and how far that knowledge still holds. The delivery of the call is the first
// piece, a read of its conversation renews all of it, and what this worker writes adds to it. One goroutine has it; a run has a [liveCheck].
type evidence struct {
	observer
	call        schemas.Call
	sideEffects bool
	attempt     int       // of the delivery
	published   time.Time // when the log took the call
	late        func() bool

	asOf        streams.Certainty // since when this worker has missed nothing that the log would not detect
	read        bool              // the conversation was read
	result      *schemas.Result   // of another process, found by a read; nil: none
	started     bool              // a proof of a start is on the log, by any worker
	ownStart    bool              // this execution's proof
	lastStart   time.Time         // of any worker, found by a read
	announced   bool              // call.accepted is on the conversation, or precedes whatever this execution writes there
	forgotten   bool              // a read has found nothing of the call, and retention may have removed it
	notLaunched bool              // this execution tried to launch the call's job, and certainly did not
}

func newEvidence(o observer, d streams.Delivery[schemas.Call]) *evidence {
	return &evidence{
		observer: o, call: d.Value, sideEffects: d.Value.SideEffects(), attempt: d.Attempt, published: d.Published, late: d.Late,
		asOf: streams.Certainty{Since: d.Arrived, Generation: d.Generation},
	}
}

// accepted is when the call was accepted, by the earlier of two clocks: that of the process that accepted it, and the log's.
func (e *evidence) accepted() time.Time {
	if e.published.Before(e.call.Accepted) {
		return e.published
	}
	return e.call.Accepted
}

// doubtful reports whether more may have happened to the call than its delivery shows. If this worker was the last to have the call, and
// requeued it for want of a slot, waited is since when it knows that nothing was started: that is then as good as a read, and the evidence
// counts from there on.
func (e *evidence) doubtful(waited streams.Certainty, own bool) bool {
	repeated := e.attempt > 1 || e.resent()
	if repeated && own && e.alive(waited) {
		repeated, e.asOf = false, waited // no other worker had the call since
	}
	return repeated || e.late() || !e.firstSeen()
}

// resent reports whether the call was accepted so long before it was published that it was on the log before: a dead letter
// that was sent again, or an answer to a question that was acted on late. Where the log's clock was set back in between it may have
// been published before it was accepted.
func (e *evidence) resent() bool {
	after := e.published.Sub(e.call.Accepted)
	return after >= streams.SureWithin || after < -streams.ClocksApart
}

// firstSeen reports whether a first delivery is surely that. When the log itself was killed it may
// have forgotten that it had delivered a call, and count from one again. A recent start is then
// recognised when its proof is written a second time; a call that is older than this recognition
// must have been published while this worker watched. How old it is may not be known: see [streams.Bus.Age].
func (e *evidence) firstSeen() bool {
	age, known := e.bus.Age(e.published) // by the log's clock; the lease knows this process's
	return known && (age < streams.SureWithin || e.lease.KeptFor(age))
}

// complete adds to the facts what the conversation shows.
func (e *evidence) complete(ctx context.Context, f facts) (facts, error) {
	state, err := e.readLog(ctx)
	if err != nil {
		return f, err
	}
	f.looked, f.finished, f.starts = true, state.Result != nil, len(state.Started)
	f.forgotten = state.Forgotten && f.doubt // without a doubt no other worker had it before
	age, known := e.bus.Age(e.published)
	f.young = known && age < announcedWithin
	if f.starts == 0 || f.finished || !f.sideEffects {
		return f, nil
	}
	gone, err := e.lease.AllGone(ctx, state.Started) // what this process started and has not in flight is over
	f.alive = !gone
	return f, err
}

// readLog reads the conversation of the call, and renews the evidence.
func (e *evidence) readLog(ctx context.Context) (callstate.State, error) {
	now := e.bus.Certainty()
	state, err := e.bus.States().Read(ctx, e.call)
	if err != nil {
		return state, fmt.Errorf("look for the call on its conversation: %w", err)
	}
	e.asOf, e.read, e.result, e.lastStart = now, true, state.Result, state.Last
	e.started, e.announced, e.forgotten = e.started || len(state.Started) > 0, state.Accepted, state.Forgotten
	if state.Forgotten {
		e.lastStart = e.accepted() // it cannot have been earlier
	}
	return state, nil
}

// stale reports whether another process may have written a result that duplicate detection no longer covers.
func (e *evidence) stale() bool {
	if e.ownStart { // then only a worker that takes this one for dead writes a result
		return e.late() || !e.alive(e.asOf)
	}
	return e.late() || !e.fresh(e.asOf)
}

// confirm reads the log again if the evidence that a call was not started may be stale. After nil no other worker has started or ended the
// call, or the log will refuse this worker's proof.
func (e *evidence) confirm(ctx context.Context) error {
	fresh := e.fresh(e.asOf)
	if fresh && !e.announcementUnknown() {
		return nil
	}
	state, err := e.readLog(ctx)
	switch {
	case err != nil:
		return err
	case state.Result != nil || len(state.Started) > 0 || state.Forgotten && !fresh: // another worker may have run what is forgotten
		return schemas.Wrap(schemas.Unavailable, "start",
			"the call was started or ended elsewhere: what became of it must be looked up", errElsewhere)
	case !e.fresh(e.asOf):
		return schemas.OpErrorf(schemas.Unavailable, "start", "this worker may be taken for dead: the call waits until its lease is held again")
	}
	return nil
}

// announcement returns call.accepted unless it is known to be published. It must precede every other event of the call. Admission
// publishes it after storing the call, so a worker may be first, or admission may have crashed. Both publish the same event, which the log
// stores once.
//
// If admission ran in this process and the log has confirmed the event, no read is needed; what a read has shown takes precedence.
func (e *evidence) announcement() []schemas.Event {
	e.announced = e.announced || !e.read && e.bus.Announced(e.call)
	if e.announced {
		return nil
	}
	return []schemas.Event{schemas.AcceptedEvent(e.call)}
}

// announcementUnknown reports whether call.accepted may have been published so long ago that the log would not recognise it: a read must
// show whether it is there.
func (e *evidence) announcementUnknown() bool {
	return !e.announced && !e.read && !e.bus.Recognises(e.accepted())
}
