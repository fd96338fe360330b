package streams

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
)

// Bucket keeps values of one type by key, as JSON. It is safe for concurrent use. Keys are made of
// A-Z a-z 0-9 _ - = / and dots between them.
type Bucket[T any] struct {
	bus *Bus
	row bucketRow
}

// BucketEntry is a value with its key.
type BucketEntry[T any] struct {
	Key      string
	Value    T      // zero when Deleted
	Revision uint64 // grows with every write of the bucket
	Stored   time.Time
	Deleted  bool // in a Watch: the key was deleted or its life has ended
	Size     int  // bytes of the value as the log has it
}

// SizeOf returns how many bytes a value takes in a bucket.
func SizeOf[T any](v T) (int, error) {
	data, err := encodeJSON(v)
	return len(data), err
}

// OpenBucket returns a bucket of the topology. It does not touch the log.
func OpenBucket[T any](b *Bus, name BucketName) *Bucket[T] {
	return &Bucket[T]{bus: b, row: bucketRows()[name]}
}

func (k *Bucket[T]) op(verb string) string { return verb + " in the bucket " + k.row.config.Bucket }

// open opens the bucket by the client library, which reads its stream.
func (k *Bucket[T]) open(ctx context.Context) (jetstream.KeyValue, error) {
	name := k.row.config.Bucket
	if v, ok := k.bus.buckets.Load(name); ok {
		if kv, ok := v.(jetstream.KeyValue); ok {
			return kv, nil
		}
	}
	kv, err := k.bus.js.KeyValue(ctx, name)
	if err != nil {
		return nil, natserr.Coded("open the bucket "+name, err)
	}
	k.bus.buckets.Store(name, kv)
	return kv, nil
}

// ErrDeleted is the cause of a not_found where the log still says that the value was deleted. Without it the value may
// also never have been there, have expired, or have been lost with its bucket: no reason to delete what depends on it.
var ErrDeleted = errors.New("the value was deleted")

// Get returns the value of a key from the bucket's leader: a caller that changes a value reads it first, and with a value from a lagging
// copy its update would be refused again and again. Code: not_found, with [ErrDeleted] as its cause while the deletion marker exists.
func (k *Bucket[T]) Get(ctx context.Context, key string) (BucketEntry[T], error) {
	op := k.op("look up " + schemas.Quotable(key))
	if !jetstreamKey(key) {
		return BucketEntry[T]{}, natserr.Coded(op, jetstream.ErrInvalidKey)
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	m, err := k.bus.reader.GetNewest(ctx, "KV_"+k.row.config.Bucket, direct.Request{Last: k.subject(key)})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return BucketEntry[T]{}, natserr.Coded(op, jetstream.ErrKeyNotFound)
	case err != nil:
		return BucketEntry[T]{}, err
	case m.Headers.Get("KV-Operation") != "":
		return BucketEntry[T]{}, schemas.Wrap(schemas.NotFound, op, "there is no such thing", ErrDeleted)
	case m.Headers.Get(jetstream.MarkerReasonHeader) != "", k.outlived(m): // its life has ended
		return BucketEntry[T]{}, natserr.Coded(op, jetstream.ErrKeyNotFound)
	}
	k.found(key, m.Seq, m.Data)
	p := BucketEntry[T]{Key: key, Revision: m.Seq, Stored: m.Time, Size: len(m.Data)}
	err = k.decode(m.Data, &p)
	return p, err
}

func (k *Bucket[T]) decode(data []byte, p *BucketEntry[T]) error {
	if err := json.Unmarshal(data, &p.Value); err != nil {
		return schemas.Wrap(schemas.Internal, k.op("read "+schemas.Quotable(p.Key)), "what is kept there is not what belongs there", err)
	}
	return nil
}

func (k *Bucket[T]) entry(e jetstream.KeyValueEntry) (BucketEntry[T], error) {
	p := BucketEntry[T]{Key: e.Key(), Revision: e.Revision(), Stored: e.Created(), Deleted: e.Operation() != jetstream.KeyValuePut}
	if p.Deleted {
		return p, nil
	}
	p.Size = len(e.Value())
	err := k.decode(e.Value(), &p)
	return p, err
}

// Create stores a value under a key that has none, and returns its revision. It lives for ttl (at
// least a second), or as the bucket says when ttl is 0. Code: conflict when the key has a value.
func (k *Bucket[T]) Create(ctx context.Context, key string, v T, ttl time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	op := k.op("create " + schemas.Quotable(key))
	if !jetstreamKey(key) {
		return 0, natserr.Coded(op, jetstream.ErrInvalidKey)
	}
	if _, err := k.open(ctx); err != nil {
		return 0, err
	}
	data, err := encodeJSON(v)
	if err != nil {
		return 0, err
	}
	var life []jetstream.PublishOpt
	if ttl = orDefault(ttl, k.row.ttl); ttl > 0 {
		life = append(life, jetstream.WithMsgTTL(ttl))
	}
	create := func(last uint64) (uint64, error) {
		m := nats.NewMsg(k.subject(key))
		m.Data = data
		ack, err := acks.PublishDecided(ctx, k.bus.js, m, append(life, jetstream.WithExpectLastSequencePerSubject(last))...)
		if err != nil {
			return 0, natserr.Coded(op, err)
		}
		k.wrote(key, data, ack.Sequence, 0)
		return ack.Sequence, nil
	}
	rev, refused := create(0)
	if !errors.Is(refused, schemas.ErrConflict) {
		return rev, refused
	}
	// The key has a value, or the mark of one that is gone. The library's Create takes "in process" for a value.
	m, err := k.bus.reader.GetFromLeader(ctx, "KV_"+k.row.config.Bucket, direct.Request{Last: k.subject(key)})
	switch {
	case errors.Is(err, schemas.ErrNotFound): // its life has ended since
		return create(0)
	case err != nil:
		return 0, err
	case isMark(m.Headers), k.outlived(m):
		return create(m.Seq)
	}
	return 0, refused
}

// subject is that of a key in the bucket's stream.
func (k *Bucket[T]) subject(key string) string { return "$KV." + k.row.config.Bucket + "." + key }

// isMark reports whether a message of a bucket is a marker of a deleted or expired key.
func isMark(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// Put stores a value, whatever is there, and returns its revision. In a bucket whose values end, its
// life begins again.
func (k *Bucket[T]) Put(ctx context.Context, key string, v T) (uint64, error) {
	return k.write(ctx, "put", key, v, 0)
}

// Update stores a value if the key's revision is rev still, and returns the new one. In a bucket
// whose values end, its life begins again. Code: conflict when it is not.
func (k *Bucket[T]) Update(ctx context.Context, key string, v T, rev uint64) (uint64, error) {
	return k.write(ctx, "update", key, v, rev, jetstream.WithExpectLastSequencePerSubject(rev))
}

// UpdateFor is Update of a value that ends after ttl, at least a second.
func (k *Bucket[T]) UpdateFor(ctx context.Context, key string, v T, rev uint64, ttl time.Duration) (uint64, error) {
	return k.write(ctx, "update", key, v, rev, jetstream.WithExpectLastSequencePerSubject(rev), jetstream.WithMsgTTL(ttl))
}

// write publishes to the bucket's stream directly, since the client library's writes cannot set a TTL. earlier is the revision that is
// replaced, 0 if unknown.
func (k *Bucket[T]) write(ctx context.Context, verb, key string, v T, earlier uint64, o ...jetstream.PublishOpt) (uint64, error) {
	if !jetstreamKey(key) {
		return 0, schemas.Invalidf("key", "%q cannot be one", schemas.Quotable(key))
	}
	data, err := encodeJSON(v)
	if err != nil {
		return 0, err
	}
	if k.row.ttl > 0 {
		o = append([]jetstream.PublishOpt{jetstream.WithMsgTTL(k.row.ttl)}, o...) // a life of its own counts
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	m := nats.NewMsg(k.subject(key))
	m.Data = data
	ack, err := acks.PublishDecided(ctx, k.bus.js, m, o...)
	if err != nil {
		return 0, natserr.Coded(k.op(verb+" "+schemas.Quotable(key)), err)
	}
	k.wrote(key, data, ack.Sequence, earlier)
	return ack.Sequence, nil
}

// Delete removes a key's value. A key without one is no error.
func (k *Bucket[T]) Delete(ctx context.Context, key string) error {
	return k.remove(ctx, key, k.row.marks)
}

// DeleteRevision removes a key's value if its revision is rev still. Code: conflict when it is not.
func (k *Bucket[T]) DeleteRevision(ctx context.Context, key string, rev uint64) error {
	return k.DeleteFor(ctx, key, rev, k.row.marks)
}

// DeleteFor is DeleteRevision with a lifetime for the deletion marker, at least a second; 0: until the key has a value again. Mirrors see
// the deletion in any case, but [Bucket.Get] knows only by the marker that there was a value.
func (k *Bucket[T]) DeleteFor(ctx context.Context, key string, rev uint64, marked time.Duration) error {
	if rev == 0 {
		return k.remove(ctx, key, marked)
	}
	if err := k.remove(ctx, key, marked, jetstream.WithExpectLastSequencePerSubject(rev)); err != nil {
		return err
	}
	k.removed(key, rev)
	return nil
}

// remove replaces all values of a key by a deletion marker.
func (k *Bucket[T]) remove(ctx context.Context, key string, marked time.Duration, o ...jetstream.PublishOpt) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	op := k.op("delete " + schemas.Quotable(key))
	if !jetstreamKey(key) {
		return natserr.Coded(op, jetstream.ErrInvalidKey)
	}
	if _, err := k.open(ctx); err != nil {
		return err
	}
	mark := func(o ...jetstream.PublishOpt) error {
		m := nats.NewMsg(k.subject(key))
		// As the client library writes it where a key is purged. The server leaves no mark of its own when such a mark ends.
		m.Header.Set("KV-Operation", "PURGE")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		_, err := acks.PublishDecided(ctx, k.bus.js, m, o...)
		return err
	}
	if marked == 0 {
		return natserr.Coded(op, mark(o...))
	}
	err := mark(append(o, jetstream.WithMsgTTL(marked))...)
	if natserr.Is(err, natserr.NoMessageTTL) { // this process joined a log that an older version made: there all marks stay
		err = mark(o...)
	}
	return natserr.Coded(op, err)
}

// DropHistory removes all values but the latest of each key, and values of deleted keys, from a bucket that an older version or an
// operator created with more history. It may be repeated. Use it when an old value must not stay readable; the bytes on the server's disk
// go when the server next compacts the file.
func (k *Bucket[T]) DropHistory(ctx context.Context) error {
	kv, err := k.open(ctx)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx, jetstream.MetaOnly())
	if err != nil {
		return natserr.Coded(k.op("list keys"), err)
	}
	defer w.Stop() //nolint:errcheck // nothing follows from it
	s, err := k.bus.js.Stream(ctx, "KV_"+k.row.config.Bucket)
	if err != nil {
		return natserr.Coded(k.op("find the stream"), err)
	}
	for {
		select {
		case <-ctx.Done():
			return natserr.Coded(k.op("drop older values"), ctx.Err())
		case e, ok := <-w.Updates():
			if !ok {
				return schemas.OpErrorf(schemas.Unavailable, k.op("list keys"), "the log was away: call again")
			}
			if e == nil { // everything that was there has been reported
				return nil
			}
			subject := "$KV." + k.row.config.Bucket + "." + e.Key()
			if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(1)); err != nil {
				return natserr.Coded(k.op("drop older values of "+schemas.Quotable(e.Key())), err)
			}
		}
	}
}

// Keys lists the keys that have a value, unsorted: all, or those that one of the filters names, such
// as "acct_1.*".
func (k *Bucket[T]) Keys(ctx context.Context, filters ...string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*requestWithin)
	defer cancel()
	kv, err := k.open(ctx)
	if err != nil {
		return nil, err
	}
	list := func() (jetstream.KeyLister, error) { return kv.ListKeys(ctx) }
	if len(filters) > 0 {
		list = func() (jetstream.KeyLister, error) { return kv.ListKeysFiltered(ctx, filters...) }
	}
	l, err := list()
	if err != nil {
		return nil, natserr.Coded(k.op("list keys"), err)
	}
	defer l.Stop() //nolint:errcheck // nothing follows from it
	var keys []string
	for key := range l.Keys() {
		keys = append(keys, key)
	}
	return keys, natserr.Coded(k.op("list keys"), ctx.Err())
}

func jetstreamKey(s string) bool {
	if s == "" || s[0] == '.' || s[len(s)-1] == '.' {
		return false
	}
	for i, r := range s {
		ok := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '_' || r == '-' || r == '=' ||
			r == '/' || r == '.' && s[i-1] != '.'
		if !ok {
			return false
		}
	}
	return true
}
