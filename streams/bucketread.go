package streams

import (
	"context"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

// mostSilence is how long a read of a bucket waits for the next value.
const mostSilence = 4 * requestWithin

// All tells every value that is there, in the order of the writes, and ends: one ordered read, however many
// there are. A value that cannot be decoded is an error beside its key and does not end it; an error without
// a key is the last one, and says that there is more. Codes: unavailable.
func (k *Bucket[T]) All(ctx context.Context) iter.Seq2[Pair[T], error] {
	return func(yield func(Pair[T], error) bool) {
		if err := k.all(ctx, yield); err != nil {
			yield(Pair[T]{}, err)
		}
	}
}

func (k *Bucket[T]) all(ctx context.Context, yield func(Pair[T], error) bool) error {
	kv, err := k.open(ctx)
	if err != nil {
		return err
	}
	lost := k.bus.drops.next()
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return coded(k.op("read"), err)
	}
	defer w.Stop() //nolint:errcheck // nothing follows from it
	silence := time.NewTimer(mostSilence)
	defer silence.Stop()
	for {
		silence.Reset(mostSilence)
		select {
		case <-ctx.Done():
			return coded(k.op("read"), ctx.Err())
		case <-lost:
			return schemas.Errorf(schemas.Unavailable, k.op("read"), "the connection was lost on the way: call again")
		case <-silence.C:
			return schemas.Errorf(schemas.Unavailable, k.op("read"), "nothing has come for %s: call again", mostSilence)
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return schemas.Errorf(schemas.Unavailable, k.op("read"), "the log was away: call again")
			case e == nil: // everything that was there has been told
				return nil
			case !yield(k.pair(e)):
				return nil
			}
		}
	}
}
