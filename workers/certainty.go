package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// sureWithin is how long the log surely recognises what is published a second time. What is older is
// looked up.
const sureWithin = 5 * time.Minute

// certainty is from when on nothing that others did to a call can have escaped a worker: its delivery, or
// the last look at its conversation.
type certainty struct {
	since      clock.Reading
	generation uint64 // of the Bus, from before that
}

func certaintyNow(b *streams.Bus) certainty {
	return certainty{since: clock.Now(), generation: b.Generation()}
}

// holds reports whether what others did since then is found by the log itself, which recognises ids for ten
// minutes. A worker that stood still has missed the minutes, its lease, or, where all clocks of its host stood
// still with it, its connections: the server ends those of a client that is silent for so long.
func (s *shift) holds(c certainty) bool {
	return clock.Since(c.since) < sureWithin && s.kept(c)
}

// kept reports whether nobody can have taken this worker for dead since then.
func (s *shift) kept(c certainty) bool {
	return s.Bus.Generation() == c.generation && s.lease.keptSince(c.since)
}

// errElsewhere says that somebody else has started the call, or ended it.
var errElsewhere = errors.New("the call was started or ended elsewhere")

// read reads the conversation of the call. The certainty begins anew with it.
func (t *turn) read(ctx context.Context) (streams.CallState, error) {
	now := certaintyNow(t.Bus)
	state, err := streams.ReadCallState(ctx, t.Bus, t.call)
	if err != nil {
		return state, fmt.Errorf("look for the call on its conversation: %w", err)
	}
	t.sure, t.had, t.proven = now, state.Result, t.proven || len(state.Started) > 0
	return state, nil
}

// doubtful reports whether somebody may have given the call a result that the log would not recognise as one
// when this turn writes its own.
func (t *turn) doubtful() bool {
	if t.mine { // then nobody else writes one but he who takes this worker for dead
		return t.delivery.Late() || !t.kept(t.sure)
	}
	return t.delivery.Late() || !t.holds(t.sure)
}

// assure looks again where the certainty of a call that was not started may have ended. After nil nobody
// else has started or ended it, or the log will say so.
func (t *turn) assure(ctx context.Context) error {
	if t.holds(t.sure) {
		return nil
	}
	state, err := t.read(ctx)
	switch {
	case err != nil:
		return err
	case state.Result != nil || len(state.Started) > 0:
		return schemas.Wrap(schemas.Unavailable, "start", "the call was started or ended elsewhere: what became of it must be looked up", errElsewhere)
	case !t.holds(t.sure):
		return schemas.Errorf(schemas.Unavailable, "start", "this worker may be taken for dead: the call waits until its lease is held again")
	}
	return nil
}

// stillRuns returns nil while nobody has given the call that runs here a result: nothing of a call follows that.
// Others do so only when they take this worker for dead; then it looks. A run whose result was given by another
// is ended. It must not wait long: what the run prints waits for it.
func (t *turn) stillRuns(sure certainty) (certainty, error) {
	if t.kept(sure) {
		return sure, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseTTL)
	defer cancel()
	sure = certaintyNow(t.Bus)
	state, err := streams.ReadCallState(ctx, t.Bus, t.call)
	switch {
	case err != nil:
		return sure, fmt.Errorf("look for the call on its conversation: %w", err)
	case state.Result != nil:
		t.hands.end(t.call.EventID(), t.Bus.Now(), errElsewhere)
		return sure, errElsewhere
	case !t.kept(sure):
		return sure, schemas.Errorf(schemas.Unavailable, "output", "this worker may be taken for dead: what the call prints is not told any more")
	}
	return sure, nil
}
