package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstore"
)

// Accept stores a call on the log under its id: for the workers, or, if it needs an approval, parked where no worker finds it. When it
// returns without an error the log has confirmed the call. Since is when the request was made; zero means now. Codes: conflict (the id is
// that of a call which is less than a day old or has no result), exhausted, invalid, unavailable. After unavailable or timeout it is
// unknown whether the call is stored: accept it again.
func Accept(ctx context.Context, b *streams.Bus, c schemas.Call, since time.Time) error {
	err := topicOf(c).Publish(ctx, b, c)
	if errors.Is(err, schemas.ErrConflict) {
		return renew(ctx, b, c, since)
	}
	return err
}

// topicOf returns the topic for a new call.
func topicOf(c schemas.Call) streams.Topic[schemas.Call] {
	if c.Approval != "" {
		return streams.Parked
	}
	return streams.Calls
}

// renew stores a call under the id of a call from more than a day ago, in its place: for the workers, or parked if it needs an approval.
// Code conflict: the other call is less than a day old, has no result, or was stored after since, the time of the request for this one;
// then it is this one.
func renew(ctx context.Context, b *streams.Bus, c schemas.Call, since time.Time) error {
	seq := uint64(0)
	m, err := streams.Calls.Last(ctx, b, c)
	switch {
	case errors.Is(err, schemas.ErrNotFound): // forgotten just now
	case err != nil:
		return err
	default:
		taken := schemas.Errorf(schemas.Conflict, "the id %q is that of a call", schemas.Quotable(string(c.ID)))
		if b.Now().Sub(m.Stored()) < callstore.Kept || !since.IsZero() && m.Stored().After(since.Add(-streams.ClocksApart)) {
			return taken
		}
		other, err := streams.Calls.Read(ctx, b, m)
		if err != nil {
			return taken
		}
		state, err := b.States().Read(ctx, other)
		switch {
		case err != nil:
			return err
		case state.Result == nil: // also where it is forgotten whether there was one: the id is free when the call is removed
			return taken
		}
		seq = m.Seq()
	}
	return topicOf(c).Replace(ctx, b, c, seq)
}

// AsksForJob reports whether a new call starts a job. It then needs a job id before it is stored, so that a redelivered call starts only
// one job. For a call on the log, use [StartsJob]. A command of a group whose input is invalid gets a job too: the job ends unstarted, and
// its group does not wait for it.
func AsksForJob(c schemas.Call) bool {
	switch {
	case c.Tool != schemas.ToolBash, c.Refused != "":
		return false
	case c.Misuse != nil:
		return c.Group != nil
	}
	return c.Background()
}
