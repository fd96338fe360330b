package streams

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
)

// Watch yields all current values and then each change, until ctx ends. After a disconnection it continues where it stopped if the stream
// is the same, and otherwise yields all values again. A value that cannot be decoded is yielded as an error, and watching continues. An
// expired value is yielded as Deleted where the bucket keeps markers of it.
func (k *Bucket[T]) Watch(ctx context.Context) iter.Seq2[BucketEntry[T], error] {
	return k.WatchAfter(ctx, 0)
}

// WatchAfter is [Bucket.Watch] for a caller that has read everything up to a revision: it yields only later changes.
func (k *Bucket[T]) WatchAfter(ctx context.Context, revision uint64) iter.Seq2[BucketEntry[T], error] {
	return func(yield func(BucketEntry[T], error) bool) {
		k.Follow(ctx, yield, func() (uint64, error) {
			after := revision
			revision = 0 // another time it is another log
			return after, nil
		}, nil)
	}
}

// Follow passes changes to yield until ctx ends or yield returns false. begin returns the revision to start after. It is called at the
// start, and whenever the log may be another one or a deletion marker may have been missed; if it returns [ErrEnough] the watch ends.
// listed, if not nil, is called when all current values were yielded, and again after each lost connection.
func (k *Bucket[T]) Follow(ctx context.Context, yield func(BucketEntry[T], error) bool, begin func() (uint64, error), listed func()) {
	f := following[T]{bucket: k, begin: begin, yield: yield, listed: listed, proven: clock.Now()}
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

// following is one call of Follow.
//
// If the bucket's deletion markers expire, a watch that was disconnected for longer would miss a deletion and its reader would keep the
// value for ever. The watch therefore proves regularly, by the stream's last sequence, that it has read everything up to a known time.
// When the last proof is half as old as markers live, it starts over and reads everything.
type following[T any] struct {
	bucket   *Bucket[T]
	begin    func() (uint64, error)
	yield    func(BucketEntry[T], error) bool
	listed   func() // nil: no caller needs it
	reported reportedValues
	after    uint64 // what begin has said
	asked    bool   // it has, and nothing was begun with it yet

	proven clock.Reading // what was written before was reported, or is read by the listing that has begun since
	seen   uint64        // everything up to this revision was reported, if it was there still
}

// once follows over one connection. begun reports whether it started.
func (f *following[T]) once(ctx context.Context) (begun bool, err error) {
	lost := f.bucket.bus.drops.Next()
	after, err := f.from(ctx)
	if err != nil {
		return false, err
	}
	f.seen = max(f.seen, after)
	begun, err = f.watch(ctx, lost, after)
	if begun {
		f.asked = false
	}
	return begun, err
}

// from returns the revision after which to start.
func (f *following[T]) from(ctx context.Context) (after uint64, err error) {
	if f.missed() {
		f.reported, f.asked = reportedValues{}, false
	}
	if !f.asked || f.after == 0 { // what was there when begin was asked may have been another log's, and all of it is yielded anyway
		if after, err = f.bucket.lastReported(ctx, f.reported); after > 0 || err != nil {
			return after, err
		}
		f.reported = reportedValues{}
		now := clock.Now()
		if f.after, err = f.begin(); err != nil {
			return 0, err
		}
		f.asked = true
		if f.after == 0 {
			f.proven, f.seen = now, 0
		}
	}
	return f.after, f.bucket.mark(ctx, &f.reported, f.after)
}

// missed reports whether a deletion marker may have been created and expired while nothing was received.
func (f *following[T]) missed() bool {
	return f.bucket.row.marks > 0 && f.unproven() > f.bucket.row.marks/2
}

// unproven returns the age of the last proof.
func (f *following[T]) unproven() time.Duration { return clock.Since(f.proven) }

// proof is the stream's last sequence at a known time.
type proof struct {
	at   clock.Reading
	last uint64
	err  error
}

// look reads the stream's last sequence. In a bucket whose markers never expire nothing needs proof.
func (k *Bucket[T]) look(ctx context.Context) proof {
	if k.row.marks == 0 {
		return proof{}
	}
	p := proof{at: clock.Now()}
	info, err := k.bus.reader.Info(ctx, "KV_"+k.row.config.Bucket)
	if p.err = err; err == nil {
		p.last = info.State.LastSeq
	}
	return p
}

// proves accepts a proof once everything up to it was yielded. It rejects a proof taken so late that markers of deletions since the
// previous one may have expired.
func (f *following[T]) proves(p proof) {
	if f.bucket.row.marks > 0 && p.last <= f.seen && f.unproven() < f.bucket.row.marks-f.bucket.row.marks/10 {
		f.proven = p.at
	}
}

// reported identifies a value that was yielded, by revision and time.
type reported struct {
	revision uint64
	stored   time.Time
}

// reportedValues are the last values that a watch has yielded, the latest first.
type reportedValues [8]reported

func (p *reportedValues) add(t reported) {
	copy(p[1:], p[:])
	p[0] = t
}

// lastReported returns the revision of the latest yielded value that is still in the stream unchanged, 0 if none is. A log can lose only
// its end, so up to that revision it is the log that was read, and newer changes come after it.
func (k *Bucket[T]) lastReported(ctx context.Context, p reportedValues) (uint64, error) {
	for _, t := range p {
		if t.revision == 0 {
			return 0, nil
		}
		m, err := k.bus.reader.GetNewest(ctx, "KV_"+k.row.config.Bucket, direct.Request{Seq: t.revision})
		switch {
		case err == nil && m.Seq == t.revision && m.Time.Equal(t.stored):
			return t.revision, nil
		case err == nil && m.Seq == t.revision: // the log has lost its end and grown again: what was reported is not there
			return 0, nil
		case err != nil && !errors.Is(err, schemas.ErrNotFound):
			return 0, err
		}
	}
	return 0, nil
}

// mark adds the revision after which a watch starts to p, if its value still exists.
func (k *Bucket[T]) mark(ctx context.Context, p *reportedValues, revision uint64) error {
	if revision == 0 {
		return nil
	}
	m, err := k.bus.reader.GetNewest(ctx, "KV_"+k.row.config.Bucket, direct.Request{Seq: revision})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err == nil {
		p.add(reported{revision, m.Time})
	}
	return err
}

// watch follows changes after a revision until ctx ends, the connection is lost, or a marker may have been missed.
func (f *following[T]) watch(ctx context.Context, lost <-chan struct{}, after uint64) (begun bool, err error) {
	k := f.bucket
	kv, err := k.open(ctx)
	if err != nil {
		return false, err
	}
	first := k.look(ctx)
	if first.err != nil {
		return false, first.err
	}
	var opts []jetstream.WatchOpt
	if after > 0 {
		opts = []jetstream.WatchOpt{jetstream.ResumeFromRevision(after + 1)}
	}
	w, err := kv.WatchAll(ctx, opts...)
	if err != nil {
		return false, natserr.Coded(k.op("watch"), err)
	}
	defer w.Stop() //nolint:errcheck // nothing follows from it
	looks := looking[T]{bucket: k, answers: make(chan proof, 1)}
	defer looks.stop(ctx)()
	var tick <-chan time.Time // from when everything that was there has been reported
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-lost: // the watcher would recover by itself, but later
			return true, nil
		case <-tick:
			if f.missed() {
				return true, schemas.OpErrorf(schemas.Unavailable, k.op("watch"), "a mark of a deletion may have been missed")
			}
			looks.begin()
			continue
		case p := <-looks.answers:
			looks.answered(p)
		case e, ok := <-w.Updates():
			switch deaf := k.bus.faults.deaf; {
			case !ok:
				return true, nil
			case deaf != nil && deaf():
				continue
			case e == nil: // everything that was there has been reported
				if f.listed != nil {
					f.listed()
				}
				f.seen = max(f.seen, first.last)
				f.proves(first)
				if k.row.marks > 0 && tick == nil {
					t := time.NewTicker(k.row.marks / 10)
					defer t.Stop()
					tick = t.C
				}
				continue
			}
			p, err := k.entry(e)
			more := f.yield(p, err)
			f.reported.add(reported{p.Revision, p.Stored}) // when it is done with
			f.seen = max(f.seen, p.Revision)
			if !more {
				return true, ErrEnough
			}
		}
		if looks.found {
			f.proves(looks.latest)
		}
	}
}

// looking reads the stream's last sequence in the background of a watch.
type looking[T any] struct {
	bucket  *Bucket[T]
	answers chan proof
	ctx     context.Context //nolint:containedctx // of the watch, by stop
	asking  sync.WaitGroup
	busy    bool
	found   bool
	latest  proof
}

// stop returns a function that cancels the read in flight and waits for its end.
func (l *looking[T]) stop(ctx context.Context) func() {
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithCancel(ctx)
	return func() { cancel(); l.asking.Wait() }
}

// begin starts a read, unless one is in flight.
func (l *looking[T]) begin() {
	if l.busy {
		return
	}
	l.busy = true
	l.asking.Go(func() { l.answers <- l.bucket.look(l.ctx) })
}

func (l *looking[T]) answered(p proof) {
	l.busy = false
	if p.err == nil {
		l.found, l.latest = true, p
	}
}
