package maintenance

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/served"
)

const (
	// cancelAlone is how long a cancelled call is left to the workers of its provider, which end it within 600 ms. Up to half as much is
	// added at random, so that one of many processes is the first.
	cancelAlone = 2 * time.Second
	// cancelAgain is the time between checks of a cancelled call whose provider has workers, because they may end without handling it.
	cancelAgain = 10 * time.Second
	// cancelsOpen is the maximal number of cancelled calls that a CallExpirer tracks. Others end by their deadline.
	cancelsOpen = 10_000
	// cancelsOfOne is the maximal number of these per account.
	cancelsOfOne = cancelsOpen / 4
	// cancelsAhead is the age of the oldest cancel requests that a CallExpirer reads when it starts.
	cancelsAhead = time.Hour
)

// cancelled is a call for which a cancel request was made.
type cancelled struct {
	cancel schemas.Cancel
	at     time.Time // when the request was stored
	due    time.Time // when the call is checked next
}

// openCancels are the cancelled calls that a CallExpirer tracks, by account and call.
type openCancels struct {
	calls map[string]cancelled
	of    map[schemas.AccountID]int
}

func newOpenCancels() *openCancels {
	return &openCancels{map[string]cancelled{}, map[schemas.AccountID]int{}}
}

// add adds a call, unless there are too many, of its account or in total.
func (o *openCancels) add(s cancelled) {
	a := s.cancel.Account
	key := string(a) + "." + string(s.cancel.Call)
	if _, there := o.calls[key]; !there {
		if len(o.calls) >= cancelsOpen || o.of[a] >= cancelsOfOne {
			return
		}
		o.of[a]++
	}
	o.calls[key] = s
}

// drop removes a call.
func (o *openCancels) drop(key string) {
	s, there := o.calls[key]
	if !there {
		return
	}
	delete(o.calls, key)
	if o.of[s.cancel.Account]--; o.of[s.cancel.Account] == 0 {
		delete(o.of, s.cancel.Account)
	}
}

// endCancelled ends cancelled calls whose provider has no worker, until ctx is done.
func (c *CallExpirer) endCancelled(ctx context.Context) {
	var at schemas.Cursor
	open := newOpenCancels()
	logged := false
	for wait.Sleep(ctx, time.Second) {
		next, err := c.readCancels(ctx, at, open)
		at = next
		if err != nil && ctx.Err() == nil && !logged {
			c.Log.Warn("cancel requests not read, retrying", "error", err)
		}
		logged = err != nil
		for key, s := range open.calls {
			if time.Now().Before(s.due) {
				continue
			}
			ended, err := c.endOne(ctx, s)
			if err != nil && ctx.Err() == nil {
				c.Log.Warn("cancelled call not finished, retrying", "call", s.cancel.Call, "error", err)
			}
			if s.due = time.Now().Add(cancelAgain); ended {
				open.drop(key)
			} else {
				open.calls[key] = s
			}
		}
	}
}

func (c *CallExpirer) readCancels(ctx context.Context, at schemas.Cursor, open *openCancels) (schemas.Cursor, error) {
	for e, err := range streams.Cancels.Replay(ctx, c.Bus, "", at) {
		switch code := schemas.CodeOf(err); {
		case err == nil:
			if c.Bus.Now().Sub(e.Stored) < cancelsAhead {
				open.add(cancelled{cancel: e.Value, at: e.Stored, due: time.Now().Add(cancelAlone + rand.N(cancelAlone/2))})
			}
		case e.Cursor.IsStart() && code == schemas.Conflict:
			return schemas.Cursor{}, err
		case e.Cursor.IsStart(), code.Retryable(), ctx.Err() != nil:
			return at, err
		}
		at = e.Cursor
	}
	return at, nil
}

// endOne ends a cancelled call unless a worker does, and reports whether the call needs no further check.
func (c *CallExpirer) endOne(ctx context.Context, s cancelled) (bool, error) {
	call, err := c.Bus.Calls().Find(ctx, s.cancel.Account, s.cancel.Call)
	if errors.Is(err, schemas.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if !lifecycle.CancelConcerns(s.cancel, s.at, call.Accepted) { // the id belongs to a newer call
		return true, nil
	}
	now := c.Bus.Certainty()
	state, err := c.Bus.States().Read(ctx, call)
	switch {
	case err != nil:
		return false, err
	case state.Result != nil, state.Forgotten: // if it may have run, it is left to its next delivery or its deadline
		return true, nil
	case len(state.Started) > 0: // left to its worker, or to the process that detects that worker's end
		return false, nil
	}
	served, err := c.served(ctx, call.Provider)
	if err != nil || served {
		return false, err
	}
	return lifecycle.FinishUnheld(ctx, c.Bus, lifecycle.CancelledResult(call, s.cancel.Reason), state, now)
}

// served reports whether a worker of a provider is alive.
func (c *CallExpirer) served(ctx context.Context, provider string) (bool, error) {
	queue, err := c.Bus.Calls().QueueStats(ctx, provider)
	if err != nil || queue.Pulls > 0 {
		return queue.Pulls > 0, err
	}
	if queue.AckPending == 0 { // no call of the provider is in flight, and no worker is fetching one
		return false, nil
	}
	return served.LivingWorker(ctx, c.Bus, provider)
}
