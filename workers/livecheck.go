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

// liveCheck answers, for one goroutine of a run, whether the call still has no result: nothing of a call follows its result.
type liveCheck struct {
	observer
	call  schemas.Call
	asOf  streams.Certainty
	calls *inFlight
}

func newLiveCheck(e *evidence, calls *inFlight) *liveCheck {
	return &liveCheck{observer: e.observer, call: e.call, asOf: e.asOf, calls: calls}
}

// unfinished returns nil while no other process has given the call a result. Other workers do so only when they take this one for dead;
// then it reads the log. A run whose call has another worker's result is ended. It must not wait long: what the run prints waits for it.
func (l *liveCheck) unfinished() error {
	if l.alive(l.asOf) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leases.TTL)
	defer cancel()
	l.asOf = l.bus.Certainty()
	state, err := l.bus.States().Read(ctx, l.call)
	switch {
	case err != nil:
		return fmt.Errorf("look for the call on its conversation: %w", err)
	case state.Result != nil, state.Forgotten: // the start was there: retention removes it with the result
		l.calls.end(l.call.EventID(), errElsewhere)
		return errElsewhere
	case !l.alive(l.asOf):
		return schemas.OpErrorf(schemas.Unavailable, "output",
			"this worker may be taken for dead: what the call prints is not published any more")
	}
	return nil
}

// await is asked by a run with side effects right before its command starts: its sandbox can take minutes to be ready, in which this worker
// may have been suspended or cut off from the log, and another may have ended the call. It waits until that is certain, for the time of a
// shortage at most.
func (l *liveCheck) await(ctx context.Context) error {
	until := time.Now().Add(shortage)
	for n := 1; ; n++ {
		err := l.unfinished()
		if err == nil {
			return nil
		}
		if errors.Is(err, errElsewhere) || time.Now().After(until) || !runAgain.Sleep(ctx, n) {
			return schemas.Wrap(schemas.Unavailable, "run", "the command is not started: another worker may have ended its call", err)
		}
	}
}
