package lifecycle

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// JobLeftFor is for how long a [JobWatch] reports a settled job with a sandbox of its own: the worker that should release the sandbox may
// be gone.
const JobLeftFor = time.Hour

const (
	openJobsRead  = 16                                       // records that are read at a time when a watch begins
	settledFor    = time.Minute                              // the life of the mark of a settled job without a sandbox of its own
	recordlessFor = schemas.MaxJobLifetime + 10*24*time.Hour // how old the mark of a job must be for a missing record to say that it is over
	keyCovered    = "covered"                                // among the marks; those of jobs have keys of two parts
)

// jobMark marks a job as not settled, by the job's key, so that a watch need not read the records of settled jobs. A mark may outlive its
// job, but no open job whose record is older than the revision in the mark keyCovered is without a mark.
type jobMark struct {
	Provider  string `json:"provider,omitzero"`
	Settled   bool   `json:"settled,omitzero"` // it ends soon
	Dedicated bool   `json:"own,omitzero"`     // the job had a sandbox of its own

	Revision uint64    `json:"revision,omitzero"` // of the bucket of jobs
	Made     time.Time `json:"made,omitzero"`     // when that bucket was made
}

func openMarks(b *streams.Bus) *streams.Bucket[jobMark] {
	return streams.OpenBucket[jobMark](b, streams.OpenJobMarks)
}

// markOpen marks a job as open. It must be called before the job's record is made.
func markOpen(ctx context.Context, b *streams.Bus, j schemas.Job) error {
	return createMark(ctx, b, j.Key(), j.Provider)
}

func createMark(ctx context.Context, b *streams.Bus, key, provider string) error {
	_, err := openMarks(b).Create(ctx, key, jobMark{Provider: provider}, 0)
	if errors.Is(err, schemas.ErrConflict) { // it has one
		return nil
	}
	return err
}

// MarkSettled marks a job as settled, whose record must say so. It does not wait for the write: if that is lost, the next watch that
// begins repeats it.
func MarkSettled(b *streams.Bus, j schemas.Job) { markSettled(b, j.Key(), j) }

func markSettled(b *streams.Bus, key string, j schemas.Job) {
	mark := jobMark{Provider: j.Provider, Settled: true, Dedicated: j.DedicatedSandbox}
	kept := settledFor
	if j.DedicatedSandbox {
		kept = JobLeftFor
	}
	_ = openMarks(b).PutAsync(key, mark, kept) // a mark that is left is found
}

// JobWatch reports jobs that have not settled. When it begins it reads the records of those, and all changes since any process last called
// Cover: settled jobs cost nothing. It can be watched once.
type JobWatch struct {
	bus      *streams.Bus
	provider string

	mu       sync.Mutex
	open     map[string]openJob // that were reported as open, by key
	made     time.Time          // when the bucket was made
	reported uint64             // every change of a record up to here was reported
	synced   uint64             // up to here Cover has done its work
}

type openJob struct {
	provider string
	marked   bool
}

// WatchJobs returns a watch of the jobs of a provider; "" means all.
func WatchJobs(b *streams.Bus, provider string) *JobWatch {
	return &JobWatch{bus: b, provider: provider, open: map[string]openJob{}}
}

// Watch yields the record of every job that has not settled and then every change of any, until ctx is done. After a disconnection it may
// yield records again, and yields those that have settled since or were removed. A watch of one provider also yields jobs with a sandbox
// of their own that have settled within [JobLeftFor].
func (w *JobWatch) Watch(ctx context.Context) iter.Seq2[streams.BucketEntry[schemas.Job], error] {
	return func(yield func(streams.BucketEntry[schemas.Job], error) bool) {
		live := func(p streams.BucketEntry[schemas.Job], err error) bool {
			more := yield(p, err)
			w.note(p, err, true)
			return more
		}
		OpenJobs(w.bus).Follow(ctx, live, func() (uint64, error) { return w.begin(ctx, yield) }, nil)
	}
}

// Mirrored is [JobWatch.Watch] for a [streams.Mirror]. It ignores the callbacks, since Watch itself reports removed jobs.
func (w *JobWatch) Mirrored(ctx context.Context, _, _ func()) iter.Seq2[streams.BucketEntry[schemas.Job], error] {
	return w.Watch(ctx)
}

// note records what was yielded of a job. Live says that it was a change, yielded in order.
func (w *JobWatch) note(p streams.BucketEntry[schemas.Job], err error, live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
	case p.Deleted || p.Value.State.Final():
		delete(w.open, p.Key)
	case w.provider == "" || p.Value.Provider == w.provider:
		w.open[p.Key] = openJob{provider: p.Value.Provider, marked: w.open[p.Key].marked || !live}
	}
	if live {
		w.reported = p.Revision
	}
}

// begin yields the open jobs that the marks name, and returns the revision up to which the marks are complete.
func (w *JobWatch) begin(ctx context.Context, yield func(streams.BucketEntry[schemas.Job], error) bool) (after uint64, err error) {
	made, err := OpenJobs(w.bus).Made(ctx)
	if err != nil {
		return 0, err
	}
	covered, err := openMarks(w.bus).Get(ctx, keyCovered) // before the marks: they are complete up to here
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return 0, err
	}
	if covered.Value.Made.Equal(made) {
		after = covered.Value.Revision
	}
	looked, err := w.marked(ctx, covered.Revision)
	if err != nil {
		return 0, err
	}
	err = OpenJobs(w.bus).GetAll(ctx, maps.Keys(looked), openJobsRead, func(key string, p streams.BucketEntry[schemas.Job], err error) error {
		return w.reportFound(key, p, err, looked[key], yield)
	})
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	w.made, w.reported, w.synced = made, after, after
	w.mu.Unlock()
	return after, ctx.Err()
}

// marked returns the marks of the jobs to read, by key: those that may be open, those whose sandbox may remain, and those that were
// yielded as open before and may have settled since. Code unavailable: the replica that was read has not reached the revision until,
// before which all marks that count were made.
func (w *JobWatch) marked(ctx context.Context, until uint64) (map[string]streams.BucketEntry[jobMark], error) {
	marks := map[string]streams.BucketEntry[jobMark]{}
	last := uint64(0)
	for p, err := range openMarks(w.bus).All(ctx) {
		last = max(last, p.Revision)
		switch m := p.Value; {
		case err != nil && p.Key == "":
			return nil, err
		case p.Key == keyCovered, m.Settled && (w.provider == "" || !m.Dedicated), w.provider != "" && m.Provider != w.provider && err == nil:
		default:
			marks[p.Key] = p
		}
	}
	if last < until {
		return nil, schemas.OpErrorf(schemas.Unavailable, "read the marks of open jobs", "the copy that was read is behind: try again")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.open {
		if _, ok := marks[key]; !ok {
			marks[key] = streams.BucketEntry[jobMark]{Key: key, Value: jobMark{Settled: true}}
		}
	}
	return marks, nil
}

// reportFound yields one job with a mark, and marks it as settled if it is.
func (w *JobWatch) reportFound(key string, p streams.BucketEntry[schemas.Job], err error, mark streams.BucketEntry[jobMark],
	yield func(streams.BucketEntry[schemas.Job], error) bool) error {
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		p, err = streams.BucketEntry[schemas.Job]{Key: key, Deleted: true}, nil
		if !mark.Value.Settled && w.bus.Now().Sub(mark.Stored) > recordlessFor {
			markSettled(w.bus, key, schemas.Job{Provider: mark.Value.Provider})
		}
	case err != nil && p.Key == "": // it could not be read; what cannot be decoded has its key
		return err
	case err == nil && p.Value.State.Final() && !mark.Value.Settled:
		MarkSettled(w.bus, p.Value)
	}
	w.note(p, err, false)
	if !yield(p, err) {
		return streams.ErrEnough
	}
	return nil
}

// Cover reduces what later watches must read: it marks open jobs without a mark, which only older versions make, and records up to which
// revision no mark is missing. One process in a deployment needs to call it; more are harmless.
func (w *JobWatch) Cover(ctx context.Context) error {
	w.mu.Lock()
	covered, open := jobMark{Revision: w.reported, Made: w.made}, maps.Clone(w.open)
	done := w.reported == w.synced
	w.mu.Unlock()
	if done || w.provider != "" {
		return nil
	}
	for key, j := range open {
		if j.marked {
			continue
		}
		if err := createMark(ctx, w.bus, key, j.provider); err != nil {
			return err
		}
		j.marked = true
		w.mu.Lock()
		if _, ok := w.open[key]; ok {
			w.open[key] = j
		}
		w.mu.Unlock()
	}
	if err := w.writeCovered(ctx, covered); err != nil {
		return err
	}
	w.mu.Lock()
	w.synced = covered.Revision
	w.mu.Unlock()
	return nil
}

// writeCovered records the revision up to which no mark is missing, unless another process has recorded a later one.
func (w *JobWatch) writeCovered(ctx context.Context, c jobMark) error {
	marks := openMarks(w.bus)
	have, err := marks.Get(ctx, keyCovered)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		_, err = marks.Create(ctx, keyCovered, c, 0)
	case err == nil && (!have.Value.Made.Equal(c.Made) || have.Value.Revision < c.Revision):
		_, err = marks.Update(ctx, keyCovered, c, have.Revision)
	}
	if errors.Is(err, schemas.ErrConflict) { // another one has
		return nil
	}
	return err
}
