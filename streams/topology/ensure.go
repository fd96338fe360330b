// Package topology makes the streams and buckets of a log from tables, upgrades those of an older version, and knows the shape of the log:
// how many shards and copies it has. What the tables say is package streams' affair.
package topology

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
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Keys of a stream's metadata.
const (
	metaVersion = "sandjet.topology"
	metaShards  = "sandjet.shards"

	metaReplicas = "sandjet.replicas"

	metaRecords = "sandjet.records" // of the log's first shard: recordsMade once the bucket of records was made
	recordsMade = "made"
)

// MaxShards bounds the shards of the events.
const MaxShards = 64

// Tables say what a log has.
type Tables struct {
	// Version grows with each change of the tables that an older process would undo.
	Version int
	// Streams are those of a log with so many shards of the events, which are the last.
	Streams func(shards int) []jetstream.StreamConfig
	Buckets []jetstream.KeyValueConfig
	// Records is the bucket whose loss is not repaired silently.
	Records string
	// Objects names the object store for large payloads of a stream.
	Objects func(stream string) string
}

// Options configure a [Topology].
type Options struct {
	Tables Tables
	Conn   *nats.Conn // of JS
	JS     jetstream.JetStream
	Bulk   jetstream.JetStream // for what may take long
	Log    *slog.Logger

	// Shards and Replicas are how many a log gets that is made; 0: as usual, or one.
	Shards, Replicas int
	Embedded         bool // the server is this process's own
	Existing         bool // the log is used as it is
	MemoryStorage    bool
	RecreateRecords  bool
	// Stored is called with times of the log that were seen.
	Stored func(time.Time)
	// Info reads the state of a stream.
	Info func(ctx context.Context, stream string) (*jetstream.StreamInfo, error)
	// Copied is set when some stream has replicas, which may answer a read and be behind.
	Copied *atomic.Bool
}

// Topology makes the streams and buckets of a log, upgrades those of an older version, and knows the shape of the log. It decides nothing about
// what is stored in them. It is safe for concurrent use after ensure.
type Topology struct {
	o Options

	shards, replicas atomic.Int32 // see shape
	made             atomic.Int64 // when the log was made, as it was last found complete; in nanoseconds of Unix time
}

// New returns a topology. It makes no request.
func New(o Options) *Topology { return &Topology{o: o} }

// ShardCount is the number of shards of the events.
func (t *Topology) ShardCount() int { return int(t.shards.Load()) }

// ReplicaCount is how many copies of everything the log has.
func (t *Topology) ReplicaCount() int { return int(t.replicas.Load()) }

// Ensure makes what is missing and upgrades what differs. Every step may be taken by
// several processes at once and again.
func (t *Topology) Ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 12*direct.RequestTime)
	defer cancel()
	if err := t.checkServer(ctx); err != nil {
		return err
	}
	if t.o.Existing {
		return t.join(ctx)
	}
	var agreed shape
	if err := t.making(ctx, subjects.EventStream(0), func() (err error) { agreed, err = t.agree(ctx); return err }); err != nil {
		return err
	}
	t.adopt(agreed)
	for _, want := range t.o.Tables.Streams(agreed.shards) {
		config := t.fill(want, agreed, t.storage())
		if err := t.making(ctx, want.Name, func() error {
			s, err := t.ensureStream(ctx, config)
			if err == nil {
				t.o.Stored(s.CachedInfo().State.LastTime)
			}
			return err
		}); err != nil {
			return err
		}
	}
	if agreed.recorded && !t.o.RecreateRecords {
		if err := t.checkRecords(ctx, t.o.Tables.Records); err != nil {
			return err
		}
	}
	for _, bucket := range t.o.Tables.Buckets {
		if err := t.making(ctx, bucket.Bucket, func() error { return t.ensureBucket(ctx, bucket) }); err != nil {
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
func (t *Topology) checkRecords(ctx context.Context, bucket string) error {
	_, err := t.o.JS.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return schemas.Wrap(schemas.Conflict, "open the log", "the bucket of the accounts' records (stream KV_"+bucket+") is missing, but the log had "+
			"it: restore it from a backup; to go on without the accounts, keys and sandboxes that it had, start once with --recreate-records", err)
	}
	return natserr.Coded("read the bucket "+bucket, err)
}

// noteRecords notes in the log that its bucket of records was made, so that its loss is noticed.
func (t *Topology) noteRecords(ctx context.Context) error {
	s, err := t.o.JS.Stream(ctx, subjects.EventStream(0)) // as it is now: others may have changed it
	if err != nil {
		return natserr.Coded("read the stream "+subjects.EventStream(0), err)
	}
	next := s.CachedInfo().Config
	next.Metadata = maps.Clone(next.Metadata)
	next.Metadata[metaRecords] = recordsMade
	_, err = t.o.JS.UpdateStream(ctx, next)
	return natserr.Coded("note that the records were made", err)
}

// making calls f, which makes a stream, again while the server says that it could not: of three servers that have just found one
// another, the one that was chosen may not be able to yet, and the next time another is chosen. Where the server takes the failed
// attempt back before it has answered, the answer is that of the removal, which the client does not understand.
func (t *Topology) making(ctx context.Context, stream string, f func() error) error {
	const tries = 8
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for try := 1; ; try++ {
		err := f()
		if !natserr.Is(err, natserr.StreamNotMade) && !errors.Is(err, jetstream.ErrInvalidJetStreamResponse) || try == tries {
			return err
		}
		t.o.Log.Warn("stream not made, retrying", "stream", stream, "error", err)
		if !again.Sleep(ctx, try) {
			return err
		}
	}
}

// join uses what is there and changes nothing. Code: not_found.
func (t *Topology) join(ctx context.Context) error {
	s, err := t.o.JS.Stream(ctx, subjects.EventStream(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return schemas.OpErrorf(schemas.NotFound, "open the log", "there is none yet on this server")
	}
	if err != nil {
		return natserr.Coded("open the log", err)
	}
	agreed, err := t.readShape(s.CachedInfo())
	if err == nil {
		t.o.Stored(s.CachedInfo().State.LastTime)
		t.adopt(agreed)
	}
	return err
}

// checkServer says in plain words why a server cannot be used.
func (t *Topology) checkServer(ctx context.Context) error {
	const op = "open the log"
	_, err := t.o.JS.AccountInfo(ctx)
	switch {
	case err == nil:
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), natserr.Is(err, natserr.NotEnabled, natserr.NotEnabledForAccount):
		return schemas.Wrap(schemas.Unsupported, op, "the NATS server has no JetStream for this account: start it with JetStream on", err)
	default:
		return natserr.Coded(op, err)
	}
	version := t.o.Conn.ConnectedServerVersion()
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

func (t *Topology) adopt(s shape) {
	t.shards.Store(int32(s.shards))     // at most 99
	t.replicas.Store(int32(s.replicas)) // at most 5
	if s.replicas > 1 {
		t.o.Copied.Store(true)
	}
}

// agree finds the shape of the log. The first process decides; for all others it is as it is.
func (t *Topology) agree(ctx context.Context) (shape, error) {
	const common = 16 // more streams than a server of one process is worth
	want := shape{shards: t.o.Shards, replicas: max(t.o.Replicas, 1)}
	switch {
	case want.shards > 0:
	case t.o.Embedded:
		want.shards = 1
	default:
		want.shards = common
	}
	for range 3 {
		s, err := t.o.JS.Stream(ctx, subjects.EventStream(0))
		if err == nil {
			return t.readShape(s.CachedInfo())
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return shape{}, natserr.Coded("open the log", err)
		}
		rows := t.o.Tables.Streams(want.shards)
		config := t.fill(rows[len(rows)-want.shards], want, t.storage())
		if s, err = t.o.JS.CreateStream(ctx, config); err == nil {
			want.made = s.CachedInfo().Created
			return want, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return shape{}, natserr.Coded("make the stream "+config.Name, err)
		}
	}
	return shape{}, schemas.OpErrorf(schemas.Unavailable, "open the log",
		"several processes make its streams in different ways: start them with the same number of shards")
}

func (t *Topology) readShape(info *jetstream.StreamInfo) (shape, error) {
	n, err := strconv.Atoi(info.Config.Metadata[metaShards])
	if err != nil || n < 1 || n > MaxShards {
		return shape{}, schemas.OpErrorf(schemas.Conflict, "open the log",
			"stream %s is there but was not made by Sandjet: use another NATS account", info.Config.Name)
	}
	if t.o.Shards > 0 && t.o.Shards != n {
		t.o.Log.Warn("log has another number of shards, using it", "shards", n, "asked", t.o.Shards)
	}
	if info.Config.Replicas > 1 {
		t.o.Copied.Store(true)
	}
	replicas, err := strconv.Atoi(info.Config.Metadata[metaReplicas])
	if err != nil || replicas < 1 || replicas > maxReplicas { // made by a version that did not write it down
		replicas = max(info.Config.Replicas, 1)
	}
	return shape{shards: n, replicas: replicas, made: info.Created, recorded: info.Config.Metadata[metaRecords] == recordsMade}, nil
}

// EventsOf is where the events of a conversation are kept.
func (t *Topology) EventsOf(a schemas.AccountID, c schemas.ConversationID) (stream, subject string) {
	shard := subjects.ShardOf(c, int(t.shards.Load()))
	return subjects.EventStream(shard), subjects.Event(shard, a, c)
}

// Refresh learns what was changed since the log was opened.
func (t *Topology) Refresh(ctx context.Context) error {
	info, err := t.o.Info(ctx, subjects.EventStream(0))
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
func (t *Topology) intact(ctx context.Context) (bool, error) {
	if t.o.Existing {
		return false, nil
	}
	info, err := t.o.Info(ctx, subjects.EventStream(0))
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
	ctx, cancel := context.WithTimeout(ctx, direct.RequestTime)
	defer cancel()
	there, list := map[string]bool{}, t.o.Bulk.StreamNames(ctx)
	for name := range list.Name() {
		there[name] = true
	}
	if err := list.Err(); err != nil {
		return false, natserr.Coded("list the streams", err)
	}
	for _, row := range t.o.Tables.Streams(s.shards) {
		if !there[row.Name] {
			return false, nil
		}
	}
	for _, row := range t.o.Tables.Buckets {
		if !there["KV_"+row.Bucket] {
			return false, nil
		}
	}
	return true, nil
}

// fill adds to a row what depends on the log.
func (t *Topology) fill(c jetstream.StreamConfig, s shape, storage jetstream.StorageType) jetstream.StreamConfig {
	c.Replicas, c.Storage, c.Compression = s.replicas, storage, compression(s.replicas)
	c.Metadata = map[string]string{metaVersion: strconv.Itoa(t.o.Tables.Version)}
	if c.Name == subjects.EventStream(0) {
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

func (t *Topology) storage() jetstream.StorageType {
	if t.o.MemoryStorage {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// ensureStream creates the stream, or brings an older one to what is wanted. What an operator set
// besides (placement, bytes, more metadata) is left alone, and so is the work of a newer version.
func (t *Topology) ensureStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := t.o.JS.CreateStream(ctx, want)
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		if natserr.Is(err, natserr.SubjectOverlap) {
			return nil, schemas.Wrap(schemas.Conflict, "make the stream "+want.Name,
				"another stream of this NATS account has its subjects: use another account", err)
		}
		return nil, natserr.Coded("make the stream "+want.Name, err)
	}
	if s, err = t.o.JS.Stream(ctx, want.Name); err != nil {
		return nil, natserr.Coded("read the stream "+want.Name, err)
	}
	have := s.CachedInfo().Config
	if have.Replicas > 1 {
		t.o.Copied.Store(true)
	}
	if have.Replicas != want.Replicas {
		t.o.Log.Warn("stream has another number of replicas than the log, set it by \"sandjet log replicas\"",
			"stream", want.Name, "copies", have.Replicas, "log", want.Replicas)
	}
	next, change, err := upgraded(have, want, t.o.Tables.Version)
	if err != nil || !change {
		return s, err
	}
	if s, err = t.o.JS.UpdateStream(ctx, next); err != nil {
		return nil, schemas.Wrap(schemas.Conflict, "upgrade the stream "+want.Name, "the server refuses the change", err)
	}
	t.o.Log.Info("stream upgraded", "stream", want.Name)
	if next.Compression != have.Compression {
		t.o.Log.Warn("stream with replicas was compressed, restart its servers one after the other",
			"stream", want.Name)
	}
	return s, nil
}

// upgraded works out the configuration that a stream needs. The number of replicas is not changed by opening the log. It is pure.
func upgraded(have, want jetstream.StreamConfig, ours int) (next jetstream.StreamConfig, change bool, err error) {
	const op = "upgrade the stream"
	version, err := strconv.Atoi(have.Metadata[metaVersion])
	switch {
	case err != nil:
		return have, false, schemas.OpErrorf(schemas.Conflict, op,
			"stream %s is there but was not made by Sandjet: use another NATS account", have.Name)
	case version > ours:
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

// Restore makes the topology again if something of it is missing, which two requests show.
func (t *Topology) Restore(ctx context.Context) error {
	whole, err := t.intact(ctx)
	if err != nil || whole {
		return err
	}
	return t.Ensure(ctx)
}
