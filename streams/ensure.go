package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// topology makes the streams and buckets of a log, upgrades those of an older version, and knows the shape of the log. It decides nothing about
// what is stored in them. It is safe for concurrent use after open.
type topology struct {
	options  Options
	log      *slog.Logger
	conn     *nats.Conn          // of js
	js, bulk jetstream.JetStream // bulk for what may take long
	stored   func(time.Time)     // is called with times of the log that were seen

	shards, replicas atomic.Int32 // see shape
	made             atomic.Int64 // when the log was made, as it was last found complete; in nanoseconds of Unix time
	copied           atomic.Bool  // some stream has replicas, which may answer a read and be behind
}

// ensure makes what is missing and upgrades what differs. Every step may be taken by
// several processes at once and again.
func (t *topology) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 12*requestWithin)
	defer cancel()
	if err := t.checkServer(ctx); err != nil {
		return err
	}
	if t.options.Existing {
		return t.join(ctx)
	}
	var agreed shape
	if err := t.making(ctx, eventStream(0), func() (err error) { agreed, err = t.agree(ctx); return err }); err != nil {
		return err
	}
	t.adopt(agreed)
	for _, want := range streamRows(agreed.shards) {
		config := fill(want, agreed, t.storage())
		if err := t.making(ctx, want.Name, func() error {
			s, err := t.ensureStream(ctx, config)
			if err == nil {
				t.stored(s.CachedInfo().State.LastTime)
			}
			return err
		}); err != nil {
			return err
		}
	}
	rows := bucketRows()
	if agreed.recorded && !t.options.RecreateRecords {
		if err := t.checkRecords(ctx, rows[Records].config.Bucket); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if err := t.making(ctx, string(name), func() error { return t.ensureBucket(ctx, rows[name]) }); err != nil {
			return err
		}
	}
	if !agreed.recorded {
		if err := t.noteRecords(ctx); err != nil {
			return err
		}
	}
	t.made.Store(agreed.made.UnixNano())
	return nil
}

// checkRecords returns an error if the bucket of records is missing that the log had. Recreated it would be empty, and everything on the
// log would belong to accounts that cannot be reached any more. Code: conflict.
func (t *topology) checkRecords(ctx context.Context, bucket string) error {
	_, err := t.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return schemas.Wrap(schemas.Conflict, "open the log", "the bucket of the accounts' records (stream KV_"+bucket+") is missing, but the log had "+
			"it: restore it from a backup; to go on without the accounts, keys and sandboxes that it had, start once with --recreate-records", err)
	}
	return coded("read the bucket "+bucket, err)
}

// noteRecords notes in the log that its bucket of records was made, so that its loss is noticed.
func (t *topology) noteRecords(ctx context.Context) error {
	s, err := t.js.Stream(ctx, eventStream(0)) // as it is now: others may have changed it
	if err != nil {
		return coded("read the stream "+eventStream(0), err)
	}
	next := s.CachedInfo().Config
	next.Metadata = maps.Clone(next.Metadata)
	next.Metadata[metaRecords] = recordsMade
	_, err = t.js.UpdateStream(ctx, next)
	return coded("note that the records were made", err)
}

// making calls f, which makes a stream, again while the server says that it could not: of three servers that have just found one
// another, the one that was chosen may not be able to yet, and the next time another is chosen. Where the server takes the failed
// attempt back before it has answered, the answer is that of the removal, which the client does not understand.
func (t *topology) making(ctx context.Context, stream string, f func() error) error {
	const tries = 8
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for try := 1; ; try++ {
		err := f()
		if !hasCode(err, codeStreamNotMade) && !errors.Is(err, jetstream.ErrInvalidJetStreamResponse) || try == tries {
			return err
		}
		t.log.Warn("stream not made, retrying", "stream", stream, "error", err)
		if !again.Sleep(ctx, try) {
			return err
		}
	}
}

// join uses what is there and changes nothing. Code: not_found.
func (t *topology) join(ctx context.Context) error {
	s, err := t.js.Stream(ctx, eventStream(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return schemas.OpErrorf(schemas.NotFound, "open the log", "there is none yet on this server")
	}
	if err != nil {
		return coded("open the log", err)
	}
	agreed, err := t.readShape(s.CachedInfo())
	if err == nil {
		t.stored(s.CachedInfo().State.LastTime)
		t.adopt(agreed)
	}
	return err
}

// checkServer says in plain words why a server cannot be used.
func (t *topology) checkServer(ctx context.Context) error {
	const op = "open the log"
	_, err := t.js.AccountInfo(ctx)
	switch {
	case err == nil:
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), hasCode(err, codeNotEnabled, codeNotEnabledForAccount):
		return schemas.Wrap(schemas.Unsupported, op, "the NATS server has no JetStream for this account: start it with JetStream on", err)
	default:
		return coded(op, err)
	}
	version := t.conn.ConnectedServerVersion()
	if !versionAtLeast(version, 2, 15) {
		return schemas.OpErrorf(schemas.Unsupported, op, "the NATS server is %s: at least 2.15 is needed", schemas.Quotable(version))
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

func (t *topology) adopt(s shape) {
	t.shards.Store(int32(s.shards))     // at most 99
	t.replicas.Store(int32(s.replicas)) // at most 5
	if s.replicas > 1 {
		t.copied.Store(true)
	}
}

// agree finds the shape of the log. The first process decides; for all others it is as it is.
func (t *topology) agree(ctx context.Context) (shape, error) {
	const common = 16 // more streams than a server of one process is worth
	want := shape{shards: t.options.Shards, replicas: max(t.options.Replicas, 1)}
	switch {
	case want.shards > 0:
	case t.options.Server != nil:
		want.shards = 1
	default:
		want.shards = common
	}
	for range 3 {
		s, err := t.js.Stream(ctx, eventStream(0))
		if err == nil {
			return t.readShape(s.CachedInfo())
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return shape{}, coded("open the log", err)
		}
		rows := streamRows(want.shards)
		config := fill(rows[len(rows)-want.shards], want, t.storage())
		if s, err = t.js.CreateStream(ctx, config); err == nil {
			want.made = s.CachedInfo().Created
			return want, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return shape{}, coded("make the stream "+config.Name, err)
		}
	}
	return shape{}, schemas.OpErrorf(schemas.Unavailable, "open the log",
		"several processes make its streams in different ways: start them with the same number of shards")
}

func (t *topology) readShape(info *jetstream.StreamInfo) (shape, error) {
	n, err := strconv.Atoi(info.Config.Metadata[metaShards])
	if err != nil || n < 1 || n > maxShards {
		return shape{}, schemas.OpErrorf(schemas.Conflict, "open the log",
			"stream %s is there but was not made by Sandjet: use another NATS account", info.Config.Name)
	}
	if t.options.Shards > 0 && t.options.Shards != n {
		t.log.Warn("log has another number of shards, using it", "shards", n, "asked", t.options.Shards)
	}
	if info.Config.Replicas > 1 {
		t.copied.Store(true)
	}
	replicas, err := strconv.Atoi(info.Config.Metadata[metaReplicas])
	if err != nil || replicas < 1 || replicas > maxReplicas { // made by a version that did not write it down
		replicas = max(info.Config.Replicas, 1)
	}
	return shape{shards: n, replicas: replicas, made: info.Created, recorded: info.Config.Metadata[metaRecords] == recordsMade}, nil
}

// info reads the state of a stream.
func (t *topology) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := t.bulk.Stream(ctx, stream)
	if err != nil {
		return nil, coded("look at the stream "+stream, err)
	}
	return s.CachedInfo(), nil
}

// eventsOf is where the events of a conversation are kept.
func (t *topology) eventsOf(a schemas.AccountID, c schemas.ConversationID) (stream, subject string) {
	shard := shardOf(c, int(t.shards.Load()))
	return eventStream(shard), eventSubject(shard, a, c)
}

// refresh learns what was changed since the log was opened.
func (t *topology) refresh(ctx context.Context) error {
	info, err := t.info(ctx, eventStream(0))
	if err != nil {
		return err
	}
	s, err := t.readShape(info)
	if err == nil {
		t.adopt(s)
	}
	return err
}

// intact reports whether the log is the one that was checked, and has every stream and bucket. What a newer version
// has made of them meanwhile is not this process's to judge.
func (t *topology) intact(ctx context.Context) (bool, error) {
	if t.options.Existing {
		return false, nil
	}
	info, err := t.info(ctx, eventStream(0))
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s, err := t.readShape(info)
	if err != nil {
		return false, err
	}
	t.adopt(s)
	if info.Created.UnixNano() != t.made.Load() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	there, list := map[string]bool{}, t.bulk.StreamNames(ctx)
	for name := range list.Name() {
		there[name] = true
	}
	if err := list.Err(); err != nil {
		return false, coded("list the streams", err)
	}
	for _, row := range streamRows(s.shards) {
		if !there[row.Name] {
			return false, nil
		}
	}
	for _, row := range bucketRows() {
		if !there["KV_"+row.config.Bucket] {
			return false, nil
		}
	}
	return true, nil
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

func (t *topology) storage() jetstream.StorageType {
	if t.options.MemoryStorage {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// ensureStream creates the stream, or brings an older one to what is wanted. What an operator set
// besides (placement, bytes, more metadata) is left alone, and so is the work of a newer version.
func (t *topology) ensureStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := t.js.CreateStream(ctx, want)
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
	if s, err = t.js.Stream(ctx, want.Name); err != nil {
		return nil, coded("read the stream "+want.Name, err)
	}
	have := s.CachedInfo().Config
	if have.Replicas > 1 {
		t.copied.Store(true)
	}
	if have.Replicas != want.Replicas {
		t.log.Warn("stream has another number of replicas than the log, set it by \"sandjet log replicas\"",
			"stream", want.Name, "copies", have.Replicas, "log", want.Replicas)
	}
	next, change, err := upgraded(have, want)
	if err != nil || !change {
		return s, err
	}
	if s, err = t.js.UpdateStream(ctx, next); err != nil {
		return nil, schemas.Wrap(schemas.Conflict, "upgrade the stream "+want.Name, "the server refuses the change", err)
	}
	t.log.Info("stream upgraded", "stream", want.Name)
	if next.Compression != have.Compression {
		t.log.Warn("stream with replicas was compressed, restart its servers one after the other",
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
		return have, false, schemas.OpErrorf(schemas.Conflict, op,
			"stream %s is there but was not made by Sandjet: use another NATS account", have.Name)
	case version > topologyVersion:
		return have, false, nil
	case have.Storage != want.Storage:
		return have, false, schemas.OpErrorf(schemas.Conflict, op,
			"stream %s is kept in %s storage and that cannot be changed: use another data directory or account", have.Name, have.Storage)
	case have.Retention != want.Retention:
		return have, false, schemas.OpErrorf(schemas.Conflict, op,
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

// restore makes the topology again if something of it is missing, which two requests show.
func (t *topology) restore(ctx context.Context) error {
	whole, err := t.intact(ctx)
	if err != nil || whole {
		return err
	}
	return t.ensure(ctx)
}
