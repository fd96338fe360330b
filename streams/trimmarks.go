package streams

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// trimMark says up to when, by the log's clock, events may have been removed by [Retention]: from a shard for their age, by its name, or
// from a conversation for their number, by "<account>.<conversation as base64url>"; or how far that clock had come when it was set back,
// by [clockMark]. It is written before they are. So who does not find
// an event knows whether it was never there. Of the conversations of an account that is gone there are no marks.
type trimMark struct {
	Through time.Time `json:"through"`
}

// trimmings are the marks of a log.
type trimmings struct{ bucket *Bucket[trimMark] }

// note notes that what was stored up to a time may be removed from here on. Code: conflict (another process has noted something).
func (t trimmings) note(ctx context.Context, key string, through time.Time) error {
	next := trimMark{through}
	have, err := t.bucket.Get(ctx, key)
	switch {
	case errors.Is(err, schemas.ErrNotFound) || err == nil && have.Deleted:
		_, err = t.bucket.Create(ctx, key, next, 0)
	case err == nil && have.Value.Through.Before(through):
		_, err = t.bucket.Update(ctx, key, next, have.Revision)
	}
	return err
}

// through is the time of a mark; zero: there is none.
func (t trimmings) through(ctx context.Context, key string) (time.Time, error) {
	have, err := t.bucket.Get(ctx, key)
	if errors.Is(err, schemas.ErrNotFound) || err == nil && have.Deleted {
		return time.Time{}, nil
	}
	return have.Value.Through, err
}
