package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// holds reports whether what others did since then is found by the log itself, and nobody can have taken this
// worker for dead.
func (s *workerRun) holds(c streams.Certainty) bool {
	return s.Bus.Holds(c) && s.kept(c)
}

// kept reports whether nobody can have taken this worker for dead since then.
func (s *workerRun) kept(c streams.Certainty) bool {
	return s.Bus.Generation() == c.Generation && s.lease.KeptSince(c.Since)
}

// errElsewhere says that somebody else has started the call, or ended it.
var errElsewhere = errors.New("the call was started or ended elsewhere")

// read reads the conversation of the call. The certainty begins anew with it.
func (t *execution) read(ctx context.Context) (streams.CallState, error) {
	now := t.w.Bus.Certainty()
	state, err := streams.ReadCallState(ctx, t.w.Bus, t.call)
	if err != nil {
		return state, fmt.Errorf("look for the call on its conversation: %w", err)
	}
	t.sure, t.looked, t.had, t.lastStart = now, true, state.Result, state.Last
	t.proven, t.announced, t.forgotten = t.proven || len(state.Started) > 0, state.Accepted, state.Forgotten
	if state.Forgotten {
		t.lastStart = t.accepted() // it cannot have been earlier
	}
	return state, nil
}

// doubtful reports whether somebody may have given the call a result that the log would not recognise as one
// when this execution writes its own.
func (t *execution) doubtful() bool {
	if t.mine { // then nobody else writes one but he who takes this worker for dead
		return t.delivery.Late() || !t.w.kept(t.sure)
	}
	return t.delivery.Late() || !t.w.holds(t.sure)
}

// assure looks again where the certainty of a call that was not started may have ended. After nil nobody
// else has started or ended it, or the log will say so.
func (t *execution) assure(ctx context.Context) error {
	sure := t.w.holds(t.sure)
	if sure && !t.unannounced() {
		return nil
	}
	state, err := t.read(ctx)
	switch {
	case err != nil:
		return err
	case state.Result != nil || len(state.Started) > 0 || state.Forgotten && !sure: // what is forgotten was run by whoever had it meanwhile
		return schemas.Wrap(schemas.Unavailable, "start",
			"the call was started or ended elsewhere: what became of it must be looked up", errElsewhere)
	case !t.w.holds(t.sure):
		return schemas.Errorf(schemas.Unavailable, "start", "this worker may be taken for dead: the call waits until its lease is held again")
	}
	return nil
}

// stillRuns returns nil while nobody has given the call that runs here a result: nothing of a call follows that.
// Others do so only when they take this worker for dead; then it looks. A run whose result was given by another
// is ended. It must not wait long: what the run prints waits for it.
func (t *execution) stillRuns(sure streams.Certainty) (streams.Certainty, error) {
	if t.w.kept(sure) {
		return sure, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leases.TTL)
	defer cancel()
	sure = t.w.Bus.Certainty()
	state, err := streams.ReadCallState(ctx, t.w.Bus, t.call)
	switch {
	case err != nil:
		return sure, fmt.Errorf("look for the call on its conversation: %w", err)
	case state.Result != nil, state.Forgotten: // the start was there: retention removes it with the result
		t.w.inFlight.end(t.call.EventID(), errElsewhere)
		return sure, errElsewhere
	case !t.w.kept(sure):
		return sure, schemas.Errorf(schemas.Unavailable, "output",
			"this worker may be taken for dead: what the call prints is not published any more")
	}
	return sure, nil
}

// mayBegin makes what a run with side effects asks right before its command starts: its sandbox can take minutes to be ready, in which
// this worker may have stood still, or been cut off from the log, and another may have ended the call. It waits until that is certain, for
// the time of a shortage at most.
func (t *execution) mayBegin(ctx context.Context, sure streams.Certainty) func() error {
	return func() error {
		until := time.Now().Add(shortage)
		for n := 1; ; n++ {
			var err error
			if sure, err = t.stillRuns(sure); err == nil {
				return nil
			}
			if errors.Is(err, errElsewhere) || time.Now().After(until) || !runAgain.Sleep(ctx, n) {
				return schemas.Wrap(schemas.Unavailable, "run", "the command is not started: another worker may have ended its call", err)
			}
		}
	}
}
