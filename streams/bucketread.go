package streams

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// mostSilence is how long a read of a bucket waits for the next value.
const mostSilence = 4 * requestWithin

// All yields every current value, in the order of the writes, by one ordered read. A value that cannot be decoded is yielded as an error
// with its key, and reading continues; an error without a key is the last item and means that values are missing. Code: unavailable.
func (k *Bucket[T]) All(ctx context.Context) iter.Seq2[BucketEntry[T], error] {
	return func(yield func(BucketEntry[T], error) bool) {
		if err := k.all(ctx, yield); err != nil {
			yield(BucketEntry[T]{}, err)
		}
	}
}

func (k *Bucket[T]) all(ctx context.Context, yield func(BucketEntry[T], error) bool) error {
	kv, err := k.open(ctx)
	if err != nil {
		return err
	}
	lost := k.bus.drops.Next()
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return natserr.Coded(k.op("read"), err)
	}
	defer w.Stop() //nolint:errcheck // nothing follows from it
	silence := time.NewTimer(mostSilence)
	defer silence.Stop()
	for {
		silence.Reset(mostSilence)
		select {
		case <-ctx.Done():
			return natserr.Coded(k.op("read"), ctx.Err())
		case <-lost:
			return schemas.OpErrorf(schemas.Unavailable, k.op("read"), "the connection was lost on the way: call again")
		case <-silence.C:
			return schemas.OpErrorf(schemas.Unavailable, k.op("read"), "nothing has come for %s: call again", mostSilence)
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return schemas.OpErrorf(schemas.Unavailable, k.op("read"), "the log was away: call again")
			case e == nil: // everything that was there has been reported
				return nil
			case !yield(k.entry(e)):
				return nil
			}
		}
	}
}

// Made returns the creation time of the bucket, by which a recreated bucket is recognised.
func (k *Bucket[T]) Made(ctx context.Context) (time.Time, error) {
	info, err := k.bus.reader.Info(ctx, "KV_"+k.row.config.Bucket)
	if err != nil {
		return time.Time{}, err
	}
	return info.Created, nil
}

// GetAll reads the values of keys, at most as many at a time as parallel says, and passes each to yield, in no order; a read that fails
// comes with its error. It ends with the first error of yield, when the reads that are on their way have ended, or with ctx.
func (k *Bucket[T]) GetAll(ctx context.Context, keys iter.Seq[string], parallel int,
	yield func(key string, p BucketEntry[T], err error) error) error {
	type answer struct {
		key  string
		pair BucketEntry[T]
		err  error
	}
	wanted, found := make(chan string), make(chan answer)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readers sync.WaitGroup
	for range parallel {
		readers.Go(func() {
			for key := range wanted {
				p, err := k.Get(reading, key)
				found <- answer{key, p, err}
			}
		})
	}
	go func() {
		defer close(found)
		defer readers.Wait()
		defer close(wanted)
		for key := range keys {
			select {
			case wanted <- key:
			case <-reading.Done():
				return
			}
		}
	}()
	var err error
	for a := range found { // to its end: so every goroutine is joined
		if err == nil {
			err = yield(a.key, a.pair, a.err)
		}
		if err != nil {
			stop()
		}
	}
	return err
}

// PutAsync sends a value that expires after ttl, at least a second, and does not wait for its confirmation.
func (k *Bucket[T]) PutAsync(key string, v T, ttl time.Duration) error {
	data, err := encodeJSON(v)
	if err != nil {
		return err
	}
	m := nats.NewMsg("$KV." + k.row.config.Bucket + "." + key)
	m.Data = data
	if _, err := k.bus.js.PublishMsgAsync(m, jetstream.WithMsgTTL(ttl)); err != nil {
		k.bus.log.Debug("value not written to a bucket", "bucket", k.row.config.Bucket, "key", key, "error", err)
		return natserr.Coded(k.op("put "+schemas.Quotable(key)), err)
	}
	return nil
}
