package streams

import (
	"strings"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/usage"
)

// accountBuckets are the buckets whose values count towards an account's quota: their keys begin with the account. Records have their own
// quota; leases, marks of open jobs and instances are small and few.
func accountBuckets() map[BucketName]usage.Class {
	return map[BucketName]usage.Class{
		JobRecords: usage.Events, GroupRecords: usage.Events, ApprovalRecords: usage.Events, ApprovalGrants: usage.Events,
		Chats: usage.Events, ReceivedMessages: usage.Events, TurnHolds: usage.Events, SentParts: usage.Events, DurableRecords: usage.Durable,
	}
}

const prefixBucket = "$KV."

// usageOfValue returns the account and class that a value of a bucket counts for; no account if it does not count. It is pure.
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

// found records the size of a value that was read, since the next write may replace it.
func (k *Bucket[T]) found(key string, revision uint64, data []byte) {
	if k.counts() {
		k.bus.capacity.sizes.Note(k.row.config.Bucket, revision, sizeOfMessage(k.subject(key), data))
	}
}

// wrote adds a written value to the account's usage, less the one that it replaced at revision earlier; 0: none. If the size of the
// replaced value is unknown, the next count corrects it.
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

// removed subtracts a removed value from the account's usage, if its size is known.
func (k *Bucket[T]) removed(key string, revision uint64) {
	if was, known := k.bus.capacity.sizes.Size(k.row.config.Bucket, revision); known && k.counts() {
		k.bus.capacity.changed(k.subject(key), schemas.Amount{Bytes: -was, Messages: -1})
	}
}
