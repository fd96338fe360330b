package streams

import (
	"strings"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// accountBuckets are the buckets whose values count as what accounts keep: their keys begin with the account. Records have a quota of
// their own; signs of life, marks of open jobs and instances are small and few.
func accountBuckets() map[BucketName]usageClass {
	return map[BucketName]usageClass{
		JobRecords: usageEvents, GroupRecords: usageEvents, ApprovalRecords: usageEvents, ApprovalGrants: usageEvents,
		Chats: usageEvents, ReceivedMessages: usageEvents, TurnHolds: usageEvents, SentParts: usageEvents, DurableRecords: usageDurable,
	}
}

const prefixBucket = "$KV."

// usageOfValue finds whose a value of a bucket is, and for what; no account: it does not count. It is pure.
func usageOfValue(subject string) (schemas.AccountID, usageClass) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(subject, prefixBucket), ".")
	class, counts := accountBuckets()[BucketName(bucket)]
	account, _, inParts := strings.Cut(key, ".")
	if !counts || !inParts {
		return "", usageEvents
	}
	return schemas.AccountID(account), class
}

// valuesKnown is how many values of buckets a process knows the sizes of.
const valuesKnown = 4096

// valueSizes knows how large values of buckets are that this process has read or written lately, by revision: one that takes the place
// of another counts by the difference. It is safe for concurrent use.
type valueSizes struct {
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

// note remembers the size of a value.
func (s *valueSizes) note(bucket string, revision uint64, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[valueAt]int64{}
	}
	at := valueAt{bucket, revision}
	if _, known := s.of[at]; known {
		return
	}
	if len(s.ring) < valuesKnown {
		s.ring = append(s.ring, at)
	} else {
		delete(s.of, s.ring[s.next])
		s.ring[s.next] = at
		s.next = (s.next + 1) % valuesKnown
	}
	s.of[at] = size
}

// size returns the size of a value, if it is known.
func (s *valueSizes) size(bucket string, revision uint64) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.of[valueAt{bucket, revision}]
	return n, ok
}

// counts reports whether the values of the bucket count as what accounts keep.
func (k *Bucket[T]) counts() bool {
	_, ok := accountBuckets()[BucketName(k.row.config.Bucket)]
	return ok
}

// found notes the size of a value that was read: it may be replaced next.
func (k *Bucket[T]) found(key string, revision uint64, data []byte) {
	if k.counts() {
		k.bus.values.note(k.row.config.Bucket, revision, sizeOfMessage(k.subject(key), data))
	}
}

// wrote counts a value that was written at a revision in the place of an earlier one; 0: there was none. What is not known of that shows at
// the next count.
func (k *Bucket[T]) wrote(key string, data []byte, revision, earlier uint64) {
	if !k.counts() {
		return
	}
	n := sizeOfMessage(k.subject(key), data)
	k.bus.values.note(k.row.config.Bucket, revision, n)
	was, known := k.bus.values.size(k.row.config.Bucket, earlier)
	if earlier > 0 && known {
		k.bus.meter.changed(k.subject(key), schemas.Amount{Bytes: n - was})
		return
	}
	k.bus.meter.changed(k.subject(key), schemas.Amount{Bytes: n, Messages: 1})
}

// removed counts that a value of a revision is gone, if its size is known.
func (k *Bucket[T]) removed(key string, revision uint64) {
	if was, known := k.bus.values.size(k.row.config.Bucket, revision); known && k.counts() {
		k.bus.meter.changed(k.subject(key), schemas.Amount{Bytes: -was, Messages: -1})
	}
}
