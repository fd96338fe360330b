package streams

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Watch yields every value that is there and then every change, until ctx ends. After the log was
// away it goes on where it was if that is the same log still, and yields everything again if not. A value
// that cannot be decoded is an error in the sequence and does not end it. A value whose life has ended
// comes as Deleted where the bucket keeps marks of it.
func (k *Bucket[T]) Watch(ctx context.Context) iter.Seq2[BucketEntry[T], error] {
	return k.WatchAfter(ctx, 0)
}

// WatchAfter is [Bucket.Watch] for who has read everything up to a revision: it begins with what came after.
func (k *Bucket[T]) WatchAfter(ctx context.Context, revision uint64) iter.Seq2[BucketEntry[T], error] {
	return func(yield func(BucketEntry[T], error) bool) {
		k.Follow(ctx, yield, func() (uint64, error) {
			after := revision
			revision = 0 // another time it is another log
			return after, nil
		}, nil)
	}
}

// Follow passes changes to yield until ctx ends or yield wants no more. Begin is asked after which revision to begin: at
// first, and whenever it cannot be proven that the log is the one that was read. When it returns [ErrEnough] the watch ends. Listed,
// if it is not nil, is called when everything that was there was yielded, and again after each lost connection.
func (k *Bucket[T]) Follow(ctx context.Context, yield func(BucketEntry[T], error) bool, begin func() (uint64, error), listed func()) {
	f := following[T]{bucket: k, begin: begin, yield: yield, listed: listed}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for failed := 1; ctx.Err() == nil; failed++ {
		begun, err := f.once(ctx)
		if errors.Is(err, ErrEnough) || ctx.Err() != nil {
			return
		}
		if begun {
			failed = 1
			k.bus.spread(ctx)
		}
		k.bus.log.Debug("watching a bucket again", "bucket", k.row.config.Bucket, "error", err)
		again.Sleep(ctx, failed)
	}
}

// following is one follow of a bucket.
type following[T any] struct {
	bucket *Bucket[T]
	begin  func() (uint64, error)
	yield  func(BucketEntry[T], error) bool
	listed func() // nil: nobody wants to know
	told   toldValues
	after  uint64 // what begin has said
	asked  bool   // it has, and nothing was begun with it yet
}

// once follows over one connection. Begun says that it has begun.
func (f *following[T]) once(ctx context.Context) (begun bool, err error) {
	lost := f.bucket.bus.drops.next()
	after, err := f.from(ctx)
	if err != nil {
		return false, err
	}
	begun, err = f.bucket.watch(ctx, lost, after, func(p BucketEntry[T], err error) bool {
		more := f.yield(p, err)
		f.told.add(told{p.Revision, p.Stored}) // when it is done with
		return more
	}, f.listed)
	if begun {
		f.asked = false
	}
	return begun, err
}

// from is the revision after which to begin.
func (f *following[T]) from(ctx context.Context) (after uint64, err error) {
	if !f.asked || f.after == 0 { // what was there when begin was asked may have been another log's, and all of it is yielded anyway
		if after, err = f.bucket.lastTold(ctx, f.told); after > 0 || err != nil {
			return after, err
		}
		f.told = toldValues{}
		if f.after, err = f.begin(); err != nil {
			return 0, err
		}
		f.asked = true
	}
	return f.after, f.bucket.mark(ctx, &f.told, f.after)
}

// told is a value that was reported: no other has both.
type told struct {
	revision uint64
	stored   time.Time
}

// toldValues is how far a watch has come: the last values that it has reported, the latest first.
type toldValues [8]told

func (p *toldValues) add(t told) {
	copy(p[1:], p[:])
	p[0] = t
}

// lastTold finds the last value that was reported and is still there as it was. A log loses nothing but its end, so
// up to there it is the log that was read, and what has come since is behind it. It is 0 if there is no such value.
func (k *Bucket[T]) lastTold(ctx context.Context, p toldValues) (uint64, error) {
	for _, t := range p {
		if t.revision == 0 {
			return 0, nil
		}
		m, err := k.bus.getNewest(ctx, "KV_"+k.row.config.Bucket, getRequest{Seq: t.revision})
		switch {
		case err == nil && m.seq == t.revision && m.time.Equal(t.stored):
			return t.revision, nil
		case err == nil && m.seq == t.revision: // the log has lost its end and grown again: what was reported is not there
			return 0, nil
		case err != nil && !errors.Is(err, schemas.ErrNotFound):
			return 0, err
		}
	}
	return 0, nil
}

// mark notes the revision after which a watch begins, if its value is still there.
func (k *Bucket[T]) mark(ctx context.Context, p *toldValues, revision uint64) error {
	if revision == 0 {
		return nil
	}
	m, err := k.bus.getNewest(ctx, "KV_"+k.row.config.Bucket, getRequest{Seq: revision})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err == nil {
		p.add(told{revision, m.time})
	}
	return err
}

func (k *Bucket[T]) watch(ctx context.Context, lost <-chan struct{}, after uint64, yield func(BucketEntry[T], error) bool,
	listed func()) (begun bool, err error) {
	kv, err := k.open(ctx)
	if err != nil {
		return false, err
	}
	var opts []jetstream.WatchOpt
	if after > 0 {
		opts = []jetstream.WatchOpt{jetstream.ResumeFromRevision(after + 1)}
	}
	w, err := kv.WatchAll(ctx, opts...)
	if err != nil {
		return false, coded(k.op("watch"), err)
	}
	defer w.Stop() //nolint:errcheck // nothing follows from it
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-lost: // the watcher would recover by itself, but later
			return true, nil
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return true, nil
			case e == nil: // everything that was there has been reported
				if listed != nil {
					listed()
				}
				continue
			}
			if !yield(k.entry(e)) {
				return true, ErrEnough
			}
		}
	}
}
