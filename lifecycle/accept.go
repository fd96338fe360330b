package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Accept puts a call on the log under its id: for the workers, or parked where no worker finds it when it needs an approval. From its
// return on the call is safe and its id is taken. Since is when the request for it was made; zero: now. Codes: conflict (the id is that of
// a call, by a request that was not made a day later), exhausted, invalid, unavailable. After unavailable or timeout it is unknown whether
// the call is stored: accept it again.
func Accept(ctx context.Context, b *streams.Bus, c schemas.Call, since time.Time) error {
	err := topicOf(c).Publish(ctx, b, c)
	if errors.Is(err, schemas.ErrConflict) {
		return renew(ctx, b, c, since)
	}
	return err
}

// topicOf is where a call goes that was not on the log before.
func topicOf(c schemas.Call) streams.Topic[schemas.Call] {
	if c.Approval != "" {
		return streams.Parked
	}
	return streams.Calls
}

// renew stores a call under an id that was another's a day ago and more, in its place: for the workers, or parked
// if it needs an approval. Code: conflict when the other is younger or has no end yet, or was stored after
// since, which is when the request for this one was made: then it is this one.
func renew(ctx context.Context, b *streams.Bus, c schemas.Call, since time.Time) error {
	seq := uint64(0)
	m, err := streams.Calls.Last(ctx, b, c)
	switch {
	case errors.Is(err, schemas.ErrNotFound): // forgotten just now
	case err != nil:
		return err
	default:
		taken := schemas.Errorf(schemas.Conflict, "the id %q is that of a call", schemas.Quotable(string(c.ID)))
		if b.Now().Sub(m.Stored()) < streams.CallsKept || !since.IsZero() && m.Stored().After(since.Add(-streams.ClocksApart)) {
			return taken
		}
		other, err := streams.Calls.Read(ctx, b, m)
		if err != nil {
			return taken
		}
		state, err := streams.ReadCallState(ctx, b, other)
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

// AsksForJob reports whether a call that is not on the log yet starts a job: it needs an id for it before it is, so that a call
// that is handed out twice starts one job. One that is there has it: [StartsJob]. A command of a group that a model has written wrongly
// has one too: it ends unstarted, and its group does not wait for it.
func AsksForJob(c schemas.Call) bool {
	switch {
	case c.Tool != schemas.ToolBash, c.Refused != "":
		return false
	case c.Misuse != nil:
		return c.Group != nil
	}
	return c.Background()
}
