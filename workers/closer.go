package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Closer gives calls that ended in the dead letters the one result that every accepted call gets.
// One per deployment is enough, more do no harm.
type Closer struct {
	Bus *streams.Bus
	Log *slog.Logger
}

// Run writes results until ctx ends. It returns nil then, and an error when the log refuses its
// consumer for good.
func (c *Closer) Run(ctx context.Context) error {
	err := streams.Dead.Consume(ctx, c.Bus, streams.ConsumeOptions{Name: "closer", Filter: "CALLS", Slots: 16}, c.handle)
	if err != nil {
		return fmt.Errorf("closer: %w", err)
	}
	return nil
}

func (c *Closer) handle(ctx context.Context, d streams.Delivery[schemas.DeadLetter]) error {
	letter := d.Value
	call, ok := callOf(letter)
	if !ok {
		c.Log.Warn("a dead letter is no call: there is nobody to tell", "letter", letter.ID, "reason", letter.Reason)
		return nil
	}
	state, err := streams.ReadCallState(ctx, c.Bus, call)
	if err != nil {
		return streams.RetryAfter(again, fmt.Errorf("look for the call on its conversation: %w", err))
	}
	if state.Result != nil {
		return nil
	}
	started := len(state.Started) > 0
	if started {
		living, err := alive(ctx, c.leases(), state.Started, "")
		if err != nil {
			return streams.RetryAfter(again, err)
		}
		if living {
			return streams.RetryAfter(leaseTTL, schemas.Errorf(schemas.Unavailable, "closer", "the worker that started the call still lives: its result may come"))
		}
	}
	now := time.Now().UTC()
	r := deadResult(call, letter, started)
	r.Finished = now
	event := schemas.NewEvent(call, schemas.CallFinished, schemas.FinishedID(call.Account, call.ID), now, r)
	if err := streams.Events.Publish(ctx, c.Bus, event); err != nil {
		return streams.RetryAfter(again, fmt.Errorf("write the result: %w", err))
	}
	return nil
}

// callOf reads the call in a dead letter, leniently: what made it one may be that it does not validate.
func callOf(l schemas.DeadLetter) (c schemas.Call, ok bool) {
	err := json.Unmarshal(l.Payload, &c)
	return c, err == nil && errors.Join(c.ID.Validate(), c.Account.Validate(), c.Conversation.Validate()) == nil
}

func (c *Closer) leases() *streams.Bucket[sign] {
	return streams.OpenBucket[sign](c.Bus, streams.Leases)
}

// deadResult is the result of a call that was given up: what was started has an unknown outcome,
// the rest was not run. The letter's reason is for the operator and stays in the letter.
func deadResult(c schemas.Call, l schemas.DeadLetter, started bool) schemas.Result {
	if started && c.Tool.SideEffects() {
		return interruptedResult(c, textInterrupted)
	}
	code := cmp.Or(l.Code, schemas.Internal)
	return failedResult(c, schemas.Errorf(code, "", "the call was given up after %d deliveries (%s): its dead letter %s says why", l.Deliveries, code, l.ID))
}
