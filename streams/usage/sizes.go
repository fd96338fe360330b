package usage

import "sync"

// sizesKnown is how many values of buckets a process knows the sizes of.
const sizesKnown = 4096

// Sizes knows how large values of buckets are that this process has read or written lately, by revision: one that takes the place
// of another counts by the difference. It is safe for concurrent use.
type Sizes struct {
	mu   sync.Mutex
	of   map[valueAt]int64
	ring []valueAt // the oldest goes
	next int
}

// valueAt is a revision of a bucket.
type valueAt struct {
	bucket   string
	revision uint64
}

// Note remembers the size of a value.
func (s *Sizes) Note(bucket string, revision uint64, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[valueAt]int64{}
	}
	at := valueAt{bucket, revision}
	if _, known := s.of[at]; known {
		return
	}
	if len(s.ring) < sizesKnown {
		s.ring = append(s.ring, at)
	} else {
		delete(s.of, s.ring[s.next])
		s.ring[s.next] = at
		s.next = (s.next + 1) % sizesKnown
	}
	s.of[at] = size
}

// Size returns the size of a value, if it is known.
func (s *Sizes) Size(bucket string, revision uint64) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.of[valueAt{bucket, revision}]
	return n, ok
}
