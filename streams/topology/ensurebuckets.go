package topology

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// ensureBucket makes a bucket with as many copies as the log has, or brings an older one to what is wanted. As
// with streams, what an operator set besides is left alone, and so are copies and the work of a newer version.
func (t *Topology) ensureBucket(ctx context.Context, c jetstream.KeyValueConfig) error {
	_, err := t.o.JS.KeyValue(ctx, c.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		c.Storage, c.Replicas, c.Metadata = t.storage(), int(t.replicas.Load()), t.metadata()
		if _, err = t.o.JS.CreateKeyValue(ctx, c); err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			return nil
		}
	}
	if err != nil {
		return natserr.Coded("make the bucket "+c.Bucket, err)
	}
	return t.upgradeStore(ctx, "KV_"+c.Bucket, func(have jetstream.StreamConfig) jetstream.StreamConfig { return withBucket(have, c) })
}

// EnsureObjects makes an object store, as ensureBucket does.
func (t *Topology) EnsureObjects(ctx context.Context, name string, kept time.Duration) (jetstream.ObjectStore, error) {
	c := jetstream.ObjectStoreConfig{
		Bucket: name, Description: "Payloads that are larger than a message may be.", TTL: kept,
		Storage: t.storage(), Replicas: int(t.replicas.Load()), Metadata: t.metadata(),
	}
	s, err := t.o.Bulk.ObjectStore(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = t.o.Bulk.CreateObjectStore(ctx, c)
		if err == nil {
			return s, nil
		}
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			s, err = t.o.Bulk.ObjectStore(ctx, name)
		}
	}
	if err != nil {
		return nil, natserr.Coded("make the object store "+name, err)
	}
	return s, t.upgradeStore(ctx, "OBJ_"+name, func(have jetstream.StreamConfig) jetstream.StreamConfig {
		have.Description, have.MaxAge = c.Description, c.TTL
		return have
	})
}

func (t *Topology) metadata() map[string]string {
	return map[string]string{metaVersion: strconv.Itoa(t.o.Tables.Version)}
}

// withBucket is the configuration of a bucket's stream with what the topology says of it. It is pure.
func withBucket(have jetstream.StreamConfig, c jetstream.KeyValueConfig) jetstream.StreamConfig {
	have.Description, have.MaxMsgsPerSubject, have.MaxMsgSize = c.Description, int64(c.History), c.MaxValueSize
	if c.LimitMarkerTTL > 0 {
		have.AllowMsgTTL, have.SubjectDeleteMarkerTTL = true, c.LimitMarkerTTL
	}
	return have
}

// upgradeStore changes the stream of a bucket or object store where it differs from what change makes of it.
func (t *Topology) upgradeStore(ctx context.Context, stream string, change func(jetstream.StreamConfig) jetstream.StreamConfig) error {
	s, err := t.o.JS.Stream(ctx, stream)
	if err != nil {
		return natserr.Coded("read the stream "+stream, err)
	}
	have := s.CachedInfo().Config
	if have.Replicas > 1 {
		t.o.Copied.Store(true)
	}
	if want := int(t.replicas.Load()); have.Replicas != want {
		t.o.Log.Warn("bucket has another number of replicas than the log, set it by \"sandjet log replicas\"",
			"stream", stream, "copies", have.Replicas, "log", want)
	}
	next, differs := upgradedStore(have, change, t.o.Tables.Version)
	if !differs {
		return nil
	}
	if _, err := t.o.JS.UpdateStream(ctx, next); err != nil {
		return schemas.Wrap(schemas.Conflict, "upgrade the stream "+stream, "the server refuses the change", err)
	}
	t.o.Log.Info("bucket upgraded", "stream", stream)
	return nil
}

// upgradedStore works out the configuration that the stream of a bucket needs, unless a newer version made it.
// It is pure.
func upgradedStore(have jetstream.StreamConfig,
	change func(jetstream.StreamConfig) jetstream.StreamConfig, ours int) (next jetstream.StreamConfig, differs bool) {
	version, err := strconv.Atoi(have.Metadata[metaVersion])
	if err == nil && version > ours {
		return have, false
	}
	next = change(have)
	next.Metadata = maps.Clone(have.Metadata)
	if next.Metadata == nil {
		next.Metadata = map[string]string{}
	}
	next.Metadata[metaVersion] = strconv.Itoa(ours)
	return next, !maps.Equal(next.Metadata, have.Metadata) || next.Description != have.Description || next.MaxAge != have.MaxAge ||
		next.MaxMsgsPerSubject != have.MaxMsgsPerSubject || next.MaxMsgSize != have.MaxMsgSize ||
		next.AllowMsgTTL != have.AllowMsgTTL || next.SubjectDeleteMarkerTTL != have.SubjectDeleteMarkerTTL
}
