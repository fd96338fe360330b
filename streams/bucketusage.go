package streams

import (
	"strings"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/usage"
)

// accountBuckets are the buckets whose values count as what accounts keep: their keys begin with the account. Records have a quota of
// their own; signs of life, marks of open jobs and instances are small and few.
func accountBuckets() map[BucketName]usage.Class {
	return map[BucketName]usage.Class{
		JobRecords: usage.Events, GroupRecords: usage.Events, ApprovalRecords: usage.Events, ApprovalGrants: usage.Events,
		Chats: usage.Events, ReceivedMessages: usage.Events, TurnHolds: usage.Events, SentParts: usage.Events, DurableRecords: usage.Durable,
	}
}

const prefixBucket = "$KV."

// usageOfValue finds which account keeps a value of a bucket, and for what; no account: it does not count. It is pure.
func usageOfValue(subject string) (schemas.AccountID, usage.Class) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(subject, prefixBucket), ".")
	class, counts := accountBuckets()[BucketName(bucket)]
	account, _, inParts := strings.Cut(key, ".")
	if !counts || !inParts {
		return "", usage.Events
	}
	return schemas.AccountID(account), class
}

// counts reports whether the values of the bucket count as what accounts keep.
func (k *Bucket[T]) counts() bool {
	_, ok := accountBuckets()[BucketName(k.row.config.Bucket)]
	return ok
}

// found notes the size of a value that was read: it may be replaced next.
func (k *Bucket[T]) found(key string, revision uint64, data []byte) {
	if k.counts() {
		k.bus.capacity.sizes.Note(k.row.config.Bucket, revision, sizeOfMessage(k.subject(key), data))
	}
}

// wrote counts a value that was written at a revision in the place of an earlier one; 0: there was none. What is not known of that shows at
// the next count.
func (k *Bucket[T]) wrote(key string, data []byte, revision, earlier uint64) {
	if !k.counts() {
		return
	}
	n := sizeOfMessage(k.subject(key), data)
	k.bus.capacity.sizes.Note(k.row.config.Bucket, revision, n)
	was, known := k.bus.capacity.sizes.Size(k.row.config.Bucket, earlier)
	if earlier > 0 && known {
		k.bus.capacity.changed(k.subject(key), schemas.Amount{Bytes: n - was})
		return
	}
	k.bus.capacity.changed(k.subject(key), schemas.Amount{Bytes: n, Messages: 1})
}

// removed counts that a value of a revision is gone, if its size is known.
func (k *Bucket[T]) removed(key string, revision uint64) {
	if was, known := k.bus.capacity.sizes.Size(k.row.config.Bucket, revision); known && k.counts() {
		k.bus.capacity.changed(k.subject(key), schemas.Amount{Bytes: -was, Messages: -1})
	}
}
