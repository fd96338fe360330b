package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// ensureTopology makes what is missing and upgrades what differs. Every step may be taken by
// several processes at once and again.
func (b *Bus) ensureTopology(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 12*requestWithin)
	defer cancel()
	if err := b.checkServer(ctx); err != nil {
		return err
	}
	if b.options.Existing {
		return b.joinTopology(ctx)
	}
	var agreed shape
	if err := b.making(ctx, eventStream(0), func() (err error) { agreed, err = b.agree(ctx); return err }); err != nil {
		return err
	}
	b.take(agreed)
	for _, want := range streamRows(agreed.shards) {
		config := fill(want, agreed, b.storage())
		if err := b.making(ctx, want.Name, func() error {
			s, err := b.ensureStream(ctx, config)
			if err == nil {
				b.clock.stored(s.CachedInfo().State.LastTime)
			}
			return err
		}); err != nil {
			return err
		}
	}
	rows := bucketRows()
	if agreed.recorded && !b.options.RecreateRecords {
		if err := b.checkRecords(ctx, rows[Records].config.Bucket); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if err := b.making(ctx, string(name), func() error { return b.ensureBucket(ctx, rows[name]) }); err != nil {
			return err
		}
	}
	if !agreed.recorded {
		if err := b.noteRecords(ctx); err != nil {
			return err
		}
	}
	b.made.Store(agreed.made.UnixNano())
	return nil
}

// checkRecords returns an error if the bucket of records is missing that the log had. Recreated it would be empty, and everything on the
// log would belong to accounts that cannot be reached any more. Code: conflict.
func (b *Bus) checkRecords(ctx context.Context, bucket string) error {
	_, err := b.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return schemas.Wrap(schemas.Conflict, "open the log", "the bucket of the accounts' records (stream KV_"+bucket+") is missing, but the log had "+
			"it: restore it from a backup; to go on without the accounts, keys and sandboxes that it had, start once with --recreate-records", err)
	}
	return coded("read the bucket "+bucket, err)
}

// noteRecords notes in the log that its bucket of records was made, so that its loss is noticed.
func (b *Bus) noteRecords(ctx context.Context) error {
	s, err := b.js.Stream(ctx, eventStream(0)) // as it is now: others may have changed it
	if err != nil {
		return coded("read the stream "+eventStream(0), err)
	}
	next := s.CachedInfo().Config
	next.Metadata = maps.Clone(next.Metadata)
	next.Metadata[metaRecords] = recordsMade
	_, err = b.js.UpdateStream(ctx, next)
	return coded("note that the records were made", err)
}

// making calls f, which makes a stream, again while the server says that it could not: of three servers that have just found one
// another, the one that was chosen may not be able to yet, and the next time another is chosen. Where the server takes the failed
// attempt back before it has answered, the answer is that of the removal, which the client does not understand.
func (b *Bus) making(ctx context.Context, stream string, f func() error) error {
	const tries = 8
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for try := 1; ; try++ {
		err := f()
		if !hasCode(err, codeStreamNotMade) && !errors.Is(err, jetstream.ErrInvalidJetStreamResponse) || try == tries {
			return err
		}
		b.log.Warn("stream not made, retrying", "stream", stream, "error", err)
		if !again.Sleep(ctx, try) {
			return err
		}
	}
}

// joinTopology uses what is there and changes nothing. Code: not_found.
func (b *Bus) joinTopology(ctx context.Context) error {
	s, err := b.js.Stream(ctx, eventStream(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return schemas.Errorf(schemas.NotFound, "open the log", "there is none yet on this server")
	}
	if err != nil {
		return coded("open the log", err)
	}
	agreed, err := b.readShape(s.CachedInfo())
	if err == nil {
		b.clock.stored(s.CachedInfo().State.LastTime)
		b.take(agreed)
	}
	return err
}

// checkServer says in plain words why a server cannot be used.
func (b *Bus) checkServer(ctx context.Context) error {
	const op = "open the log"
	_, err := b.js.AccountInfo(ctx)
	switch {
	case err == nil:
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), hasCode(err, codeNotEnabled, codeNotEnabledForAccount):
		return schemas.Wrap(schemas.Unsupported, op, "the NATS server has no JetStream for this account: start it with JetStream on", err)
	default:
		return coded(op, err)
	}
	version := b.publish.ConnectedServerVersion()
	if !versionAtLeast(version, 2, 15) {
		return schemas.Errorf(schemas.Unsupported, op, "the NATS server is %s: at least 2.15 is needed", schemas.Quotable(version))
	}
	return nil
}

// versionAtLeast reads "2.15.2" and "v2.16.0-beta.1".
func versionAtLeast(s string, major, minor int) bool {
	var a, b int
	if n, err := fmt.Sscanf(trimV(s), "%d.%d", &a, &b); err != nil || n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

func trimV(s string) string {
	if len(s) > 0 && s[0] == 'v' {
		return s[1:]
	}
	return s
}

// shape is what was decided when the log was made, and is kept in the metadata of its first shard.
type shape struct {
	shards   int // conversations are spread by it for ever
	replicas int // copies of everything, until [SetReplicas] changes it

	made     time.Time // when the log was made
	recorded bool      // its bucket of records was made
}

func (b *Bus) take(s shape) {
	b.shards.Store(int32(s.shards))     // at most 99
	b.replicas.Store(int32(s.replicas)) // at most 5
	if s.replicas > 1 {
		b.copied.Store(true)
	}
}

// agree finds the shape of the log. The first process decides; for all others it is as it is.
func (b *Bus) agree(ctx context.Context) (shape, error) {
	const common = 16 // more streams than a server of one process is worth
	want := shape{shards: b.options.Shards, replicas: max(b.options.Replicas, 1)}
	switch {
	case want.shards > 0:
	case b.options.Server != nil:
		want.shards = 1
	default:
		want.shards = common
	}
	for range 3 {
		s, err := b.js.Stream(ctx, eventStream(0))
		if err == nil {
			return b.readShape(s.CachedInfo())
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return shape{}, coded("open the log", err)
		}
		rows := streamRows(want.shards)
		config := fill(rows[len(rows)-want.shards], want, b.storage())
		if s, err = b.js.CreateStream(ctx, config); err == nil {
			want.made = s.CachedInfo().Created
			return want, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return shape{}, coded("make the stream "+config.Name, err)
		}
	}
	return shape{}, schemas.Errorf(schemas.Unavailable, "open the log",
		"several processes make its streams in different ways: start them with the same number of shards")
}

func (b *Bus) readShape(info *jetstream.StreamInfo) (shape, error) {
	n, err := strconv.Atoi(info.Config.Metadata[metaShards])
	if err != nil || n < 1 || n > maxShards {
		return shape{}, schemas.Errorf(schemas.Conflict, "open the log",
			"stream %s is there but was not made by Sandjet: use another NATS account", info.Config.Name)
	}
	if b.options.Shards > 0 && b.options.Shards != n {
		b.log.Warn("log has another number of shards, using it", "shards", n, "asked", b.options.Shards)
	}
	if info.Config.Replicas > 1 {
		b.copied.Store(true)
	}
	replicas, err := strconv.Atoi(info.Config.Metadata[metaReplicas])
	if err != nil || replicas < 1 || replicas > maxReplicas { // made by a version that did not write it down
		replicas = max(info.Config.Replicas, 1)
	}
	return shape{shards: n, replicas: replicas, made: info.Created, recorded: info.Config.Metadata[metaRecords] == recordsMade}, nil
}

// lookAtShape learns what was changed since the log was opened.
func (b *Bus) lookAtShape(ctx context.Context) error {
	info, err := b.streamInfo(ctx, eventStream(0))
	if err != nil {
		return err
	}
	s, err := b.readShape(info)
	if err == nil {
		b.take(s)
	}
	return err
}

// fill adds to a row what depends on the log.
func fill(c jetstream.StreamConfig, s shape, storage jetstream.StorageType) jetstream.StreamConfig {
	c.Replicas, c.Storage, c.Compression = s.replicas, storage, compression(s.replicas)
	c.Metadata = map[string]string{metaVersion: strconv.Itoa(topologyVersion)}
	if c.Name == eventStream(0) {
		c.Metadata[metaShards], c.Metadata[metaReplicas] = strconv.Itoa(s.shards), strconv.Itoa(s.replicas)
	}
	return c
}

// compression is that of streams with so many copies.
func compression(replicas int) jetstream.StoreCompression {
	if replicas > 1 {
		return jetstream.NoCompression
	}
	return jetstream.S2Compression
}

func (b *Bus) storage() jetstream.StorageType {
	if b.options.MemoryStorage {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// ensureStream creates the stream, or brings an older one to what is wanted. What an operator set
// besides (placement, bytes, more metadata) is left alone, and so is the work of a newer version.
func (b *Bus) ensureStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := b.js.CreateStream(ctx, want)
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		if hasCode(err, codeSubjectOverlap) {
			return nil, schemas.Wrap(schemas.Conflict, "make the stream "+want.Name,
				"another stream of this NATS account has its subjects: use another account", err)
		}
		return nil, coded("make the stream "+want.Name, err)
	}
	if s, err = b.js.Stream(ctx, want.Name); err != nil {
		return nil, coded("read the stream "+want.Name, err)
	}
	have := s.CachedInfo().Config
	if have.Replicas > 1 {
		b.copied.Store(true)
	}
	if have.Replicas != want.Replicas {
		b.log.Warn("stream has another number of replicas than the log, set it by \"sandjet log replicas\"",
			"stream", want.Name, "copies", have.Replicas, "log", want.Replicas)
	}
	next, change, err := upgraded(have, want)
	if err != nil || !change {
		return s, err
	}
	if s, err = b.js.UpdateStream(ctx, next); err != nil {
		return nil, schemas.Wrap(schemas.Conflict, "upgrade the stream "+want.Name, "the server refuses the change", err)
	}
	b.log.Info("stream upgraded", "stream", want.Name)
	if next.Compression != have.Compression {
		b.log.Warn("stream with replicas was compressed, restart its servers one after the other",
			"stream", want.Name)
	}
	return s, nil
}

// upgraded works out the configuration that a stream needs. The number of replicas is not changed by opening the log. It is pure.
func upgraded(have, want jetstream.StreamConfig) (next jetstream.StreamConfig, change bool, err error) {
	const op = "upgrade the stream"
	version, err := strconv.Atoi(have.Metadata[metaVersion])
	switch {
	case err != nil:
		return have, false, schemas.Errorf(schemas.Conflict, op,
			"stream %s is there but was not made by Sandjet: use another NATS account", have.Name)
	case version > topologyVersion:
		return have, false, nil
	case have.Storage != want.Storage:
		return have, false, schemas.Errorf(schemas.Conflict, op,
			"stream %s is kept in %s storage and that cannot be changed: use another data directory or account", have.Name, have.Storage)
	case have.Retention != want.Retention:
		return have, false, schemas.Errorf(schemas.Conflict, op,
			"stream %s has %s retention and that cannot be changed: drain it and remove it first", have.Name, have.Retention)
	}
	next = have
	next.Metadata = maps.Clone(have.Metadata)
	next.Metadata[metaVersion] = want.Metadata[metaVersion]
	next.Description, next.Subjects, next.MaxAge, next.Duplicates = want.Description, want.Subjects, want.MaxAge, want.Duplicates
	next.Discard, next.DiscardNewPerSubject, next.MaxMsgsPerSubject = want.Discard, want.DiscardNewPerSubject, want.MaxMsgsPerSubject
	next.MaxConsumers, next.AllowDirect, next.AllowAtomicPublish, next.RePublish = want.MaxConsumers, want.AllowDirect,
		want.AllowAtomicPublish, want.RePublish
	next.AllowMsgSchedules = have.AllowMsgSchedules || want.AllowMsgSchedules // the server takes no way back
	for _, key := range []string{metaShards, metaReplicas} {
		if v, ok := want.Metadata[key]; ok && next.Metadata[key] == "" {
			next.Metadata[key] = v
		}
	}
	if have.Replicas > 1 {
		next.Compression = jetstream.NoCompression
	}
	change = !maps.Equal(next.Metadata, have.Metadata) || next.Description != have.Description ||
		!slices.Equal(next.Subjects, have.Subjects) || next.MaxAge != have.MaxAge || next.Duplicates != have.Duplicates ||
		next.Discard != have.Discard || next.DiscardNewPerSubject != have.DiscardNewPerSubject ||
		next.MaxMsgsPerSubject != have.MaxMsgsPerSubject ||
		next.MaxConsumers != have.MaxConsumers || next.AllowDirect != have.AllowDirect || next.AllowAtomicPublish != have.AllowAtomicPublish ||
		next.AllowMsgSchedules != have.AllowMsgSchedules ||
		next.Compression != have.Compression || !sameRePublish(next.RePublish, have.RePublish)
	return next, change, nil
}

func sameRePublish(a, b *jetstream.RePublish) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
