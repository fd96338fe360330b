package streams

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

// Mirror is a copy in memory of what is to be known of the values of a bucket, by key. While Run runs it lists the current values and
// follows the changes. After a lost connection it continues where it was. If the stream was recreated it lists again, and forgets values
// that were not listed.
//
// A writer to the bucket may pass the result to the mirror by [Mirror.Take], and need not wait for the watch. A key never returns to an
// older revision: neither by an event that arrives after Take, nor by a Take that comes after the event. A mirror is safe for concurrent
// use; its methods do not block on the network.
type Mirror[T, V any] struct {
	// Source is what is mirrored.
	Source MirrorSource[T]
	// Keep picks what is kept of a value; false: nothing. It is not called for values that are deleted.
	Keep func(p BucketEntry[T]) (v V, keep bool)
	// Unreadable is called for a value that cannot be decoded. What is kept under its key stays. Nil: such values are
	// skipped in silence.
	Unreadable func(p BucketEntry[T], err error)
	// Changed is called for each value that was taken in, and with Deleted for each key that is gone, in the order in
	// which the mirror knows of them. It must not block, nor call Take. Nil: nothing is called.
	Changed func(p BucketEntry[T])

	order sync.Mutex // held while an entry is taken in, the calls of functions included

	mu       sync.RWMutex // guards what follows; never held while a function is called
	values   map[string]mirrored[V]
	own      map[string]ownWrite // from Take: what the source has not come to yet
	reported uint64              // the highest revision that the source has reported since it began to list
	listed   map[string]bool     // while everything is listed again: the keys that were reported since
}

// mirrored is what is kept of a value, and the latest revision that is known of its key.
type mirrored[V any] struct {
	value    V
	revision uint64
}

type ownWrite struct {
	revision uint64
	at       clock.Reading
}

// ownHolds is how long an own write holds back older events at most. Events take milliseconds; but a write that a log
// took which has lost its end since must not hold back for ever what the log has in its place.
const ownHolds = time.Minute

// MirrorSource reports values to a [Mirror]: a [Bucket], or a part of one.
type MirrorSource[T any] interface {
	// Mirrored yields all current values that are of interest, then each change, until ctx is done. If the stream was recreated it calls
	// listing and yields all current values again; it calls listed when a list is complete. Sources that yield removals themselves call
	// neither.
	Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[BucketEntry[T], error]
}

// Run mirrors until ctx ends, then returns nil. It may be called once.
func (m *Mirror[T, V]) Run(ctx context.Context) error {
	for p, err := range m.Source.Mirrored(ctx, m.listing, m.complete) {
		m.take(p, err, false)
	}
	return nil
}

// Fill takes in what was read before Run, for a Source that begins behind it. It may be called once, before anything
// else. Errors of single values go to Unreadable; an error without a key ends it and is returned.
func (m *Mirror[T, V]) Fill(all iter.Seq2[BucketEntry[T], error]) error {
	for p, err := range all {
		if err != nil && p.Key == "" {
			return err
		}
		m.take(p, err, false)
	}
	return nil
}

// Take takes in a value that this process has written or read itself, or with err the reason why what is there under
// the key cannot be read. It does nothing if the mirror knows a later revision. A key that was deleted has Deleted, and
// for want of its own revision the one after the value that was deleted.
func (m *Mirror[T, V]) Take(p BucketEntry[T], err error) {
	if p.Revision == 0 { // it was not read at all
		return
	}
	m.take(p, err, true)
}

// take takes in one value, or the error in its place, unless a later one is known.
func (m *Mirror[T, V]) take(p BucketEntry[T], err error, own bool) {
	m.order.Lock()
	defer m.order.Unlock()
	if !m.advance(p, own) {
		return
	}
	if err != nil {
		if m.Unreadable != nil {
			m.Unreadable(p, err)
		}
		return
	}
	keep := false
	v := mirrored[V]{revision: p.Revision}
	if !p.Deleted {
		v.value, keep = m.Keep(p)
	}
	m.set(p.Key, v, keep)
	if m.Changed != nil {
		m.Changed(p)
	}
}

// advance notes that p was reported, and reports whether it is newer than what is known of its key.
//
// The source reports in the order of revisions. So what it has passed it has reported, and only two things can be out
// of order: an event that is older than an own write, and an own write that is older than an event. The first is seen by
// the own write's revision, which is kept until the source has come so far. The second is seen by the revision of the
// value that is kept or, where none is kept because the key was deleted meanwhile, by how far the source has come.
func (m *Mirror[T, V]) advance(p BucketEntry[T], own bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, kept := m.values[p.Key]
	wrote, unconfirmed := m.own[p.Key]
	if own {
		known := m.reported
		if kept || unconfirmed {
			known = max(v.revision, wrote.revision)
		}
		if p.Revision <= known {
			return false
		}
		if m.own == nil {
			m.own = map[string]ownWrite{}
		}
		m.own[p.Key] = ownWrite{p.Revision, clock.Now()}
		return true
	}
	m.reported = max(m.reported, p.Revision)
	if m.listed != nil {
		m.listed[p.Key] = true
	}
	if unconfirmed && p.Revision > 0 && p.Revision < wrote.revision && clock.Since(wrote.at) < ownHolds {
		return false
	}
	delete(m.own, p.Key)
	return true
}

// set keeps v under a key, or nothing.
func (m *Mirror[T, V]) set(key string, v mirrored[V], keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !keep:
		delete(m.values, key)
	case m.values == nil:
		m.values = map[string]mirrored[V]{key: v}
	default:
		m.values[key] = v
	}
}

// listing begins to note what is still there. Revisions of another log say nothing about this one.
func (m *Mirror[T, V]) listing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed, m.reported, m.own = map[string]bool{}, 0, nil
	for key, v := range m.values {
		v.revision = 0
		m.values[key] = v
	}
}

// complete forgets what was not reported since everything was listed again.
func (m *Mirror[T, V]) complete() {
	m.order.Lock()
	defer m.order.Unlock()
	for _, key := range m.forget() {
		if m.Changed != nil {
			m.Changed(BucketEntry[T]{Key: key, Deleted: true})
		}
	}
}

// forget drops what was not listed and returns its keys.
func (m *Mirror[T, V]) forget() (gone []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listed != nil {
		for key := range m.values {
			if _, since := m.own[key]; !m.listed[key] && !since { // an own write since then is newer than the list
				gone = append(gone, key)
				delete(m.values, key)
			}
		}
	}
	m.listed = nil
	return gone
}

// Get returns what is kept under a key.
func (m *Mirror[T, V]) Get(key string) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.values[key]
	return v.value, ok
}

// All returns a copy of the mirror's values, by key.
func (m *Mirror[T, V]) All() map[string]V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string]V, len(m.values))
	for key, v := range m.values {
		all[key] = v.value
	}
	return all
}

// Mirrored is the bucket as the source of a [Mirror].
func (k *Bucket[T]) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[BucketEntry[T], error] {
	return k.MirroredAfter(0).Mirrored(ctx, listing, listed)
}

// MirroredAfter is the bucket as the source of a [Mirror] that was just filled with everything up to a revision.
func (k *Bucket[T]) MirroredAfter(revision uint64) MirrorSource[T] {
	return mirroredAfter[T]{k, revision, clock.Now()}
}

type mirroredAfter[T any] struct {
	bucket   *Bucket[T]
	revision uint64
	read     clock.Reading
}

func (s mirroredAfter[T]) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[BucketEntry[T], error] {
	return func(yield func(BucketEntry[T], error) bool) {
		const late = 4 // a part of the time that marks stay: the rest is for the watch to begin
		if marks := s.bucket.row.marks; marks > 0 && clock.Since(s.read) > marks/late {
			s.revision = 0
		}
		s.bucket.Follow(ctx, yield, func() (uint64, error) {
			after := s.revision
			s.revision = 0 // another time it is another log
			if after == 0 {
				listing()
			}
			return after, nil
		}, listed)
	}
}
