package maintenance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/workers/leases"
)

// CallExpirer gives a result to calls that no worker will give one to: those that ended in the dead letters, those whose deadline passed
// while no worker had a slot for them, those that were cancelled while no worker served their provider, and those that were left when
// everything was off for a day and more. It also forgets the calls that are no longer the record of their id. One per deployment is enough,
// more do no harm.
type CallExpirer struct {
	Bus *streams.Bus
	Log *slog.Logger
	// Providers are those whose queues are checked each minute, beside those that were ever served.
	Providers []string

	// lease is the CallExpirer's own: only who kept his for long enough may take the absence of another's for a death.
	lease *leases.Lease
}

const (
	sweepEvery = time.Minute
	// overdue is how long after its deadline a call is left to a worker, which ends it then itself.
	overdue = time.Minute
	// longestEnd is how long the worker that started a call may still publish its result after the call was dead-lettered or its deadline has
	// passed: a run, its grace, and the word to the log.
	longestEnd = schemas.MaxTimeout + 5*time.Minute
)

// Run writes results until ctx ends. It returns nil then, and an error when the log refuses its
// consumer for good.
func (c *CallExpirer) Run(ctx context.Context) error {
	x := *c
	x.lease = leases.New(c.Bus, leases.Record{Worker: schemas.NewID("closer_"), Started: c.Bus.Now()}, c.Log, nil)
	return x.run(ctx)
}

func (c *CallExpirer) run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	around, stop := context.WithCancel(ctx)
	defer stop()
	parts.Go(func() { c.lease.Keep(around, func() {}) })
	parts.Go(func() { c.sweep(around) })
	parts.Go(func() { c.endCancelled(around) })
	o := streams.ConsumeOptions{Name: "closer", Filter: "CALLS", Slots: 16, MaxAttempts: maxAttempts, Turns: true,
		MaxPending: streams.ManyPending}
	if err := streams.Dead.Consume(ctx, c.Bus, o, c.handle); err != nil {
		return fmt.Errorf("call expirer: %w", err)
	}
	return nil
}

// interrupted is the result of a call that was started and whose outcome is unknown.
func interrupted(c schemas.Call) schemas.Result {
	return lifecycle.InterruptedResult(c, lifecycle.TextInterrupted)
}

// expire gives an overdue call its result and reports whether it has one now. A call whose worker
// still lives is left to it, for as long as it can bring a result.
func (c *CallExpirer) expire(ctx context.Context, p callstore.Placed) (bool, error) {
	call := p.Call
	now := c.Bus.Certainty()
	state, err := c.Bus.States().Read(ctx, call)
	if err != nil {
		return false, err
	}
	if state.Result != nil {
		err := lifecycle.SettleNotStarted(ctx, c.Bus, call, state.Result.Text, lifecycle.AsRecorded)
		return err == nil, err
	}
	late := c.Bus.Now().Sub(p.Due)
	outcome := lifecycle.ExpiredResult
	if len(state.Started) > 0 {
		if late < longestEnd {
			living, err := c.mayLive(ctx, state.Started)
			if err != nil || living {
				return false, err
			}
		}
		if call.SideEffects() {
			outcome = interrupted
		}
	}
	if state.Forgotten && call.SideEffects() { // the proof of a start may be gone
		outcome = lifecycle.ForgottenResult
	}
	r := outcome(call)
	written, err := lifecycle.FinishUnheld(ctx, c.Bus, r, state, now)
	if err != nil || !written { // another process was first: the next sweep sees its result
		return false, err
	}
	c.Log.Info("overdue call finished without a worker", "call", call.ID, "status", r.Status)
	return true, nil
}

func (c *CallExpirer) handle(ctx context.Context, d streams.Delivery[schemas.DeadLetter]) error {
	letter := d.Value
	call, ok := callOf(letter)
	if !ok {
		c.Log.Warn("dead letter is not a call, nothing to finish", "letter", letter.ID, "reason", letter.Reason)
		return nil
	}
	now := c.Bus.Certainty()
	state, err := c.Bus.States().Read(ctx, call)
	if err != nil {
		return streams.RetryAfter(again, fmt.Errorf("look for the call on its conversation: %w", err))
	}
	if state.Result != nil {
		if err := lifecycle.SettleNotStarted(ctx, c.Bus, call, state.Result.Text, lifecycle.AsRecorded); err != nil {
			return streams.RetryAfter(again, err)
		}
		return nil
	}
	due, err := c.due(ctx, call)
	if err != nil {
		return streams.RetryAfter(again, fmt.Errorf("look for the call: %w", err))
	}
	started := len(state.Started) > 0
	if started && waitsForWorker(due, d.Published, c.Bus.Now()) {
		living, err := c.mayLive(ctx, state.Started)
		if err != nil {
			return streams.RetryAfter(again, err)
		}
		if living {
			return streams.RetryAfter(leases.TTL, schemas.OpErrorf(schemas.Unavailable, "closer",
				"the worker that started the call still lives: its result may come"))
		}
	}
	r := deadResult(call, letter, due, started)
	if state.Forgotten && call.SideEffects() {
		r = lifecycle.ForgottenResult(call)
	}
	written, err := lifecycle.FinishUnheld(ctx, c.Bus, r, state, now)
	if err == nil && !written {
		err = schemas.OpErrorf(schemas.Unavailable, "closer", "the call was started or ended just now: its state must be looked up")
	}
	if err != nil {
		return streams.RetryAfter(again, err)
	}
	return nil
}

// waitsForWorker reports whether the worker that started a call may still publish its result, though the call was dead-lettered: for as
// long as a run takes, and not long after the deadline.
func waitsForWorker(due, givenUp, now time.Time) bool {
	return now.Before(givenUp.Add(longestEnd)) && now.Before(due.Add(overdue))
}

// due is when a dead-lettered call is overdue: it mostly is on the log still.
func (c *CallExpirer) due(ctx context.Context, call schemas.Call) (time.Time, error) {
	p, err := c.Bus.Calls().FindPlaced(ctx, call.Account, call.ID)
	switch code := schemas.CodeOf(err); {
	case err == nil && p.Call.Accepted.Equal(call.Accepted):
		return p.Due, nil
	case code.Retryable() || ctx.Err() != nil:
		return time.Time{}, err
	}
	return call.Deadline, nil
}

// callOf reads the call in a dead letter, leniently: what made it one may be that it does not validate.
func callOf(l schemas.DeadLetter) (c schemas.Call, ok bool) {
	err := json.Unmarshal(l.Payload, &c)
	return c, err == nil && errors.Join(c.ID.Validate(), c.Account.Validate(), c.Conversation.Validate()) == nil
}

// mayLive reports whether one of the workers that started a call may still live.
func (c *CallExpirer) mayLive(ctx context.Context, starts []schemas.StartedData) (bool, error) {
	gone, err := c.lease.AllGone(ctx, starts)
	return !gone, err
}

// deadResult is the result of a dead-lettered call: what was started has an unknown outcome, the rest was not run. The letter's reason is
// for the operator and stays in the letter.
func deadResult(c schemas.Call, l schemas.DeadLetter, due time.Time, started bool) schemas.Result {
	if started && c.SideEffects() {
		return lifecycle.InterruptedResult(c, lifecycle.TextInterrupted)
	}
	if l.Time.After(due) {
		return lifecycle.ExpiredResult(c) // no worker would have run it any more
	}
	code := cmp.Or(l.Code, schemas.Internal)
	return lifecycle.FailedResult(c, schemas.Errorf(code,
		"the call failed after %d deliveries (%s): its dead letter %s says why", l.Deliveries, code, l.ID))
}
