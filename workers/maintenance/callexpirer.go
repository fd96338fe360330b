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

// CallExpirer stores results for calls that no worker will finish: calls that were dead-lettered, calls whose deadline passed while no
// worker had a slot for them, calls that were cancelled while no worker served their provider, and calls that are left after an outage of
// the whole deployment of a day or more. It also removes calls from the stream that are no longer needed. One CallExpirer per deployment
// is enough; more do no harm.
type CallExpirer struct {
	Bus *streams.Bus
	Log *slog.Logger
	// Providers are checked each minute, in addition to all providers that were ever served.
	Providers []string

	// lease is the CallExpirer's own lease: it must be held for some time before the absence of a worker's lease proves that the worker
	// has ended.
	lease *leases.Lease
}

const (
	sweepEvery = time.Minute
	// overdue is how long after its deadline a call is left to a worker, which then ends it itself.
	overdue = time.Minute
	// longestEnd is how long the worker that started a call may still publish its result after the call was dead-lettered or its deadline
	// has passed: the time of a run, its grace, and the publishing.
	longestEnd = schemas.MaxTimeout + 5*time.Minute
)

// Run stores results until ctx is done. It returns nil then, and an error if the stream permanently refuses its consumer.
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

// interrupted returns the result of a call that was started and whose outcome is unknown.
func interrupted(c schemas.Call) schemas.Result {
	return lifecycle.InterruptedResult(c, lifecycle.TextInterrupted)
}

// expire stores a result for an overdue call, and reports whether the call has a result now. A call whose worker may still be alive is
// left to that worker for as long as it may publish a result.
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
	if state.Forgotten && call.SideEffects() { // its start event may have expired
		outcome = lifecycle.ForgottenResult
	}
	r := outcome(call)
	written, err := lifecycle.FinishUnheld(ctx, c.Bus, r, state, now)
	if err != nil || !written { // another process was first; the next round reads its result
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

// waitsForWorker reports whether the worker that started a dead-lettered call may still publish its result: until longestEnd after the
// dead letter, but no later than overdue after the deadline.
func waitsForWorker(due, givenUp, now time.Time) bool {
	return now.Before(givenUp.Add(longestEnd)) && now.Before(due.Add(overdue))
}

// due returns the due time of a dead-lettered call from the stream of calls; if the call is no longer there, its deadline.
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

// callOf decodes the call in a dead letter. It checks only the ids, because the call may have been dead-lettered for being invalid.
func callOf(l schemas.DeadLetter) (c schemas.Call, ok bool) {
	err := json.Unmarshal(l.Payload, &c)
	return c, err == nil && errors.Join(c.ID.Validate(), c.Account.Validate(), c.Conversation.Validate()) == nil
}

// mayLive reports whether one of the workers that started a call may still be alive.
func (c *CallExpirer) mayLive(ctx context.Context, starts []schemas.StartedData) (bool, error) {
	gone, err := c.lease.AllGone(ctx, starts)
	return !gone, err
}

// deadResult returns the result of a dead-lettered call. If the call was started, its outcome is unknown; otherwise it was not run. The
// result does not contain the dead letter's reason, which is for the operator.
func deadResult(c schemas.Call, l schemas.DeadLetter, due time.Time, started bool) schemas.Result {
	if started && c.SideEffects() {
		return lifecycle.InterruptedResult(c, lifecycle.TextInterrupted)
	}
	if l.Time.After(due) {
		return lifecycle.ExpiredResult(c) // no worker would have run it after its deadline
	}
	code := cmp.Or(l.Code, schemas.Internal)
	return lifecycle.FailedResult(c, schemas.Errorf(code,
		"the call failed after %d deliveries (%s): its dead letter %s says why", l.Deliveries, code, l.ID))
}
