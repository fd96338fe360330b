package records

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// sealedBucket is the bucket of the records. Their secrets are sealed on the way in and opened on the way
// out; whatever else is in a record stays readable to operators.
//
// A record whose secrets do not open is never written over: where one is read, there is an error in
// place of its value, and every change begins with reading.
type sealedBucket struct {
	bucket *streams.Bucket[stored]
	ring   *seal.Ring
}

// stored is a record as the bucket has it.
type stored struct {
	record

	Sealed map[string]seal.Sealed `json:"sealed,omitzero"` // by field
}

// The fields that are sealed, as JSON. Their names are part of what binds an envelope to its place.
const (
	fieldEnvVars = "env_vars"
	fieldSecrets = "secrets"
	fieldValue   = "value"
)

// takeSecrets takes the secrets out of r, which is changed for that but not what it points to: each is a
// pointer to the value, by its field.
func takeSecrets(r *record) map[string]any {
	switch {
	case r.Sandbox != nil && len(r.Sandbox.EnvVars) > 0:
		s := *r.Sandbox
		taken := s.EnvVars
		s.EnvVars = nil
		r.Sandbox = &s
		return map[string]any{fieldEnvVars: &taken}
	case r.Variable != nil && r.Variable.Value != "":
		v := *r.Variable
		taken := v.Value
		v.Value = ""
		r.Variable = &v
		return map[string]any{fieldValue: &taken}
	case r.Endpoint != nil && len(r.Endpoint.Secrets) > 0:
		e := *r.Endpoint
		taken := e.Secrets
		e.Secrets = nil
		r.Endpoint = &e
		return map[string]any{fieldSecrets: &taken}
	case r.Channel != nil && len(r.Channel.Secrets) > 0:
		c := *r.Channel
		taken := c.Secrets
		c.Secrets = nil
		r.Channel = &c
		return map[string]any{fieldSecrets: &taken}
	}
	return nil
}

// secretIn finds where the value of a sealed field belongs, nil where this version knows of none.
func secretIn(r *record, field string) any {
	switch {
	case r.Sandbox != nil && field == fieldEnvVars:
		return &r.Sandbox.EnvVars
	case r.Variable != nil && field == fieldValue:
		return &r.Variable.Value
	case r.Endpoint != nil && field == fieldSecrets:
		return &r.Endpoint.Secrets
	case r.Channel != nil && field == fieldSecrets:
		return &r.Channel.Secrets
	}
	return nil
}

// where is the place of a field of the record under a key.
func where(key, field string) seal.Context {
	kind, a, id, _ := splitKey(key)
	return seal.Context{Account: a, Type: kind, ID: id, Field: field}
}

// seal makes what the bucket keeps of r. Code: unsupported (it has secrets and there is no key).
func (v sealedBucket) seal(key string, r record) (stored, error) {
	taken := takeSecrets(&r)
	s := stored{record: r}
	for field, value := range taken {
		plain, err := schemas.EncodeJSON(value)
		if err != nil {
			return stored{}, fmt.Errorf("encrypt %s: %w", field, err)
		}
		envelope, err := v.ring.Seal(plain, where(key, field))
		if err != nil {
			return stored{}, fmt.Errorf("%s: %w", field, err)
		}
		if s.Sealed == nil {
			s.Sealed = map[string]seal.Sealed{}
		}
		s.Sealed[field] = envelope
	}
	return s, nil
}

// open makes the record of what the bucket keeps. One that was written before there were seals opens as
// it is. Codes: unavailable (a key is missing, or a newer version wrote it), internal (it was changed).
func (v sealedBucket) open(key string, s stored) (record, error) {
	r := s.record
	for field, envelope := range s.Sealed {
		place := secretIn(&r, field)
		if place == nil {
			return record{}, schemas.Errorf(schemas.Unavailable, "the record %s has an encrypted field %q, which this version does not know",
				key, schemas.Quotable(field))
		}
		plain, err := v.ring.Open(envelope, where(key, field))
		if err != nil {
			return record{}, fmt.Errorf("%s of the record %s: %w", field, key, err)
		}
		if json.Unmarshal(plain, place) != nil { // its error could show what it stands at
			return record{}, schemas.Errorf(schemas.Internal, "%s of the record %s opens to something else", field, key)
		}
	}
	return r, nil
}

// opened turns a pair of the bucket into one of records. With an error it has no value, but the rest.
func (v sealedBucket) opened(p streams.BucketEntry[stored], err error) (streams.BucketEntry[record], error) {
	out := streams.BucketEntry[record]{Key: p.Key, Revision: p.Revision, Stored: p.Stored, Deleted: p.Deleted, Size: p.Size}
	if err != nil || p.Deleted {
		return out, err
	}
	out.Value, err = v.open(p.Key, p.Value)
	return out, err
}

// Get is [streams.Bucket.Get]. A record that does not open has its key and revision beside the error.
func (v sealedBucket) Get(ctx context.Context, key string) (streams.BucketEntry[record], error) {
	return v.opened(v.bucket.Get(ctx, key))
}

// size is how many bytes r has in the bucket.
func (v sealedBucket) size(r record) (int, error) {
	s, err := v.seal(r.key(), r)
	if err != nil {
		return 0, err
	}
	return streams.SizeOf(s)
}

// Create is [streams.Bucket.Create].
func (v sealedBucket) Create(ctx context.Context, key string, r record, ttl time.Duration) (uint64, error) {
	s, err := v.seal(key, r)
	if err != nil {
		return 0, err
	}
	return v.bucket.Create(ctx, key, s, ttl)
}

// Update is [streams.Bucket.Update].
func (v sealedBucket) Update(ctx context.Context, key string, r record, revision uint64) (uint64, error) {
	s, err := v.seal(key, r)
	if err != nil {
		return 0, err
	}
	return v.bucket.Update(ctx, key, s, revision)
}

// DeleteFor is [streams.Bucket.DeleteFor].
func (v sealedBucket) DeleteFor(ctx context.Context, key string, revision uint64, marked time.Duration) error {
	return v.bucket.DeleteFor(ctx, key, revision, marked)
}

// Keys is [streams.Bucket.Keys].
func (v sealedBucket) Keys(ctx context.Context, filters ...string) ([]string, error) {
	return v.bucket.Keys(ctx, filters...)
}

// All is [streams.Bucket.All]. A record that does not open has its key and revision beside the error.
func (v sealedBucket) All(ctx context.Context) iter.Seq2[streams.BucketEntry[record], error] {
	return v.each(v.bucket.All(ctx))
}

func (v sealedBucket) each(all iter.Seq2[streams.BucketEntry[stored], error]) iter.Seq2[streams.BucketEntry[record], error] {
	return func(yield func(streams.BucketEntry[record], error) bool) {
		for p, err := range all {
			if !yield(v.opened(p, err)) {
				return
			}
		}
	}
}

// plain reports whether s holds secrets that are not sealed.
func (s stored) plain() bool { return len(takeSecrets(&s.record)) > 0 }

// keys lists the ids of the keys that seal s, sorted, each once.
func (s stored) keys() []string {
	var ids []string
	for _, e := range s.Sealed {
		ids = append(ids, e.Key)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
