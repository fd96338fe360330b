package lifecycle

import (
	"context"
	"errors"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
)

// Forgotten reports whether a call has ended and its result is no longer on its conversation: retention has removed its events, which it
// does only after the call's worker has acknowledged it. If state is out of date it is read again.
func Forgotten(ctx context.Context, b *streams.Bus, state *callstate.State) (bool, error) {
	if !state.Forgotten {
		return false, nil
	}
	c := state.Call
	over, parked, err := b.Calls().Acknowledged(ctx, c.Account, c.ID)
	if parked && err == nil { // no worker acknowledges it: what follows from the answer is done, or not
		p, ferr := FindApproval(ctx, b, c.Account, c.Approval)
		if over = ferr == nil && p.Value.Done; ferr != nil && !errors.Is(ferr, schemas.ErrNotFound) {
			err = ferr
		}
	}
	if err != nil || !over {
		return false, err
	}
	again, err := b.States().Read(ctx, c) // it may have been run since state was read
	if err != nil {
		return false, err
	}
	*state = again
	return again.Forgotten, nil
}
