package streams

import (
	"context"
	"iter"
	"maps"
	"sync"
)

// Mirror keeps in memory what is to be known of the values of a bucket, by key, for as long as Run runs: it lists what is there,
// follows the changes, goes on where it was after a lost connection, and lists again where the log is another one; then what was
// not listed is forgotten. It remembers V for each T that is of interest, and nothing else. It is safe for concurrent use.
type Mirror[T, V any] struct {
	// Source is what is mirrored.
	Source MirrorSource[T]
	// Keep picks what is remembered of a value; false: nothing. It is not asked about values that are deleted.
	Keep func(p Pair[T]) (v V, keep bool)
	// Unreadable is told of a value that cannot be decoded; what was known under its key stays. Nil: nobody is told.
	Unreadable func(key string, err error)

	mu     sync.RWMutex
	values map[string]V
	listed map[string]bool // while the log is listed again: what was told since
}

// MirrorSource tells a [Mirror] of values: a [Bucket], or a part of one.
type MirrorSource[T any] interface {
	// Mirrored tells every value that is there, or that is of interest, and then every change, until ctx ends. It calls listing before
	// it tells everything again because the log is another one, and listed when all that is there was told; sources that tell of what
	// is gone by themselves call neither.
	Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[Pair[T], error]
}

// Run mirrors until ctx ends, then returns nil. It may be called once.
func (m *Mirror[T, V]) Run(ctx context.Context) error {
	for p, err := range m.Source.Mirrored(ctx, m.listing, m.complete) {
		m.take(p, err)
	}
	return nil
}

// take takes in one value, or the error that came in its place.
func (m *Mirror[T, V]) take(p Pair[T], err error) {
	if err != nil {
		if m.Unreadable != nil {
			m.Unreadable(p.Key, err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.note(p.Key)
		return
	}
	var v V
	keep := false
	if !p.Deleted {
		v, keep = m.Keep(p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(p.Key)
	switch {
	case !keep:
		delete(m.values, p.Key)
	case m.values == nil:
		m.values = map[string]V{p.Key: v}
	default:
		m.values[p.Key] = v
	}
}

func (m *Mirror[T, V]) note(key string) {
	if m.listed != nil {
		m.listed[key] = true
	}
}

// listing begins to listen for what is still there.
func (m *Mirror[T, V]) listing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed = map[string]bool{}
}

// complete forgets what a list that was begun anew did not tell.
func (m *Mirror[T, V]) complete() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listed != nil {
		maps.DeleteFunc(m.values, func(key string, _ V) bool { return !m.listed[key] })
	}
	m.listed = nil
}

// Get returns what is remembered under a key.
func (m *Mirror[T, V]) Get(key string) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.values[key]
	return v, ok
}

// All is a copy of what is remembered, by key.
func (m *Mirror[T, V]) All() map[string]V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.values)
}

// Mirrored tells a [Mirror] of every value of the bucket.
func (k *Bucket[T]) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[Pair[T], error] {
	return func(yield func(Pair[T], error) bool) {
		k.Follow(ctx, yield, func() (uint64, error) {
			listing()
			return 0, nil
		}, listed)
	}
}
