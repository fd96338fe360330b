package streams

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

// ensureBucket makes a bucket with as many copies as the log has, or brings an older one to what is wanted. As
// with streams, what an operator set besides is left alone, and so are copies and the work of a newer version.
func (t *topology) ensureBucket(ctx context.Context, row bucketRow) error {
	c := row.config
	_, err := t.js.KeyValue(ctx, c.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		c.Storage, c.Replicas, c.Metadata = t.storage(), int(t.replicas.Load()), ofThisTopology()
		if _, err = t.js.CreateKeyValue(ctx, c); err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			return nil
		}
	}
	if err != nil {
		return coded("make the bucket "+c.Bucket, err)
	}
	return t.upgradeStore(ctx, "KV_"+c.Bucket, func(have jetstream.StreamConfig) jetstream.StreamConfig { return withBucket(have, c) })
}

// ensureObjects makes an object store, as ensureBucket does.
func (t *topology) ensureObjects(ctx context.Context, name string, kept time.Duration) (jetstream.ObjectStore, error) {
	c := jetstream.ObjectStoreConfig{
		Bucket: name, Description: "Payloads that are larger than a message may be.", TTL: kept,
		Storage: t.storage(), Replicas: int(t.replicas.Load()), Metadata: ofThisTopology(),
	}
	s, err := t.bulk.ObjectStore(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = t.bulk.CreateObjectStore(ctx, c)
		if err == nil {
			return s, nil
		}
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			s, err = t.bulk.ObjectStore(ctx, name)
		}
	}
	if err != nil {
		return nil, coded("make the object store "+name, err)
	}
	return s, t.upgradeStore(ctx, "OBJ_"+name, func(have jetstream.StreamConfig) jetstream.StreamConfig {
		have.Description, have.MaxAge = c.Description, c.TTL
		return have
	})
}

func ofThisTopology() map[string]string {
	return map[string]string{metaVersion: strconv.Itoa(topologyVersion)}
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
func (t *topology) upgradeStore(ctx context.Context, stream string, change func(jetstream.StreamConfig) jetstream.StreamConfig) error {
	s, err := t.js.Stream(ctx, stream)
	if err != nil {
		return coded("read the stream "+stream, err)
	}
	have := s.CachedInfo().Config
	if have.Replicas > 1 {
		t.copied.Store(true)
	}
	if want := int(t.replicas.Load()); have.Replicas != want {
		t.log.Warn("bucket has another number of replicas than the log, set it by \"sandjet log replicas\"",
			"stream", stream, "copies", have.Replicas, "log", want)
	}
	next, differs := upgradedStore(have, change)
	if !differs {
		return nil
	}
	if _, err := t.js.UpdateStream(ctx, next); err != nil {
		return schemas.Wrap(schemas.Conflict, "upgrade the stream "+stream, "the server refuses the change", err)
	}
	t.log.Info("bucket upgraded", "stream", stream)
	return nil
}

// upgradedStore works out the configuration that the stream of a bucket needs, unless a newer version made it.
// It is pure.
func upgradedStore(have jetstream.StreamConfig,
	change func(jetstream.StreamConfig) jetstream.StreamConfig) (next jetstream.StreamConfig, differs bool) {
	version, err := strconv.Atoi(have.Metadata[metaVersion])
	if err == nil && version > topologyVersion {
		return have, false
	}
	next = change(have)
	next.Metadata = maps.Clone(have.Metadata)
	if next.Metadata == nil {
		next.Metadata = map[string]string{}
	}
	next.Metadata[metaVersion] = strconv.Itoa(topologyVersion)
	return next, !maps.Equal(next.Metadata, have.Metadata) || next.Description != have.Description || next.MaxAge != have.MaxAge ||
		next.MaxMsgsPerSubject != have.MaxMsgsPerSubject || next.MaxMsgSize != have.MaxMsgSize ||
		next.AllowMsgTTL != have.AllowMsgTTL || next.SubjectDeleteMarkerTTL != have.SubjectDeleteMarkerTTL
}
