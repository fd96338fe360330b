package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Seals is how the secrets of all records are sealed.
type Seals struct {
	Keys      map[string]int `json:"keys"`      // records by the id of the key that seals them
	Plain     int            `json:"plain"`     // records whose secrets are not sealed: they are older than seals
	NoSecrets int            `json:"nosecrets"` // records without secrets
}

// CountSeals reads all records and says how they are sealed. It needs no key.
func CountSeals(ctx context.Context, bus *streams.Bus) (Seals, error) {
	count := Seals{Keys: map[string]int{}}
	v := sealedBucket{bucket: streams.OpenBucket[stored](bus, streams.Records)}
	keys, err := v.Keys(ctx)
	if err != nil {
		return count, fmt.Errorf("list the records: %w", err)
	}
	for _, key := range keys {
		p, err := v.bucket.Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) { // deleted since
			continue
		}
		if err != nil {
			return count, fmt.Errorf("read the record %s: %w", key, err)
		}
		count.add(p.Value)
	}
	return count, nil
}

func (c *Seals) add(s stored) {
	for _, id := range s.keys() {
		c.Keys[id]++
	}
	switch {
	case s.plain():
		c.Plain++
	case len(s.Sealed) == 0:
		c.NoSecrets++
	}
}

// Rotation is how far a rotation has come.
type Rotation struct {
	Records int `json:"records"` // of all
	Seen    int `json:"seen"`
	Sealed  int `json:"sealed"` // with the current key, by this rotation
	Locked  int `json:"locked"` // left as they are: they do not open with the keys of the ring
}

// Rotate seals every record that is not sealed with the current key of the ring with it, and then drops all earlier values of records,
// which may be plain or sealed with a key that is to go. Others may change records at the same time. It may be called again after it ended
// half way, and continues there. Progress is notified after each record; it must not block.
func Rotate(ctx context.Context, bus *streams.Bus, ring *seal.Ring, progress func(Rotation)) (Rotation, error) {
	var r Rotation
	v := sealedBucket{streams.OpenBucket[stored](bus, streams.Records), ring}
	keys, err := v.Keys(ctx)
	if err != nil {
		return r, fmt.Errorf("list the records: %w", err)
	}
	r.Records = len(keys)
	for _, key := range keys {
		if err := v.reseal(ctx, key, &r); err != nil {
			return r, fmt.Errorf("encrypt the record %s: %w", key, err)
		}
		r.Seen++
		progress(r)
	}
	if err := v.bucket.DropHistory(ctx); err != nil {
		return r, fmt.Errorf("drop earlier values of the records: %w", err)
	}
	return r, nil
}

// reseal seals one record with the current key, unless it is.
func (v sealedBucket) reseal(ctx context.Context, key string, r *Rotation) error {
	var contest streams.Contest
	for {
		p, err := v.bucket.Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) {
			return nil // deleted since
		}
		if err != nil {
			return err
		}
		if !p.Value.stale(v.ring.Current()) {
			return nil
		}
		value, err := v.open(key, p.Value)
		if err != nil {
			r.Locked++
			return nil //nolint:nilerr // it is counted, and the others continue
		}
		_, err = v.Update(ctx, key, value, p.Revision)
		if err == nil {
			r.Sealed++
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}

// stale reports whether s holds secrets that are not sealed with the key.
func (s stored) stale(key string) bool {
	if s.plain() {
		return true
	}
	for _, e := range s.Sealed {
		if e.Key != key {
			return true
		}
	}
	return false
}
