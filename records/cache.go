package records

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// cache holds all records in memory, follows the changes of their bucket, and writes to it. Its methods may be called from many goroutines.
type cache struct {
	Settings

	providers schemas.Catalog // of this build

	bucket sealedBucket
	boxes  *streams.Bucket[schemas.Instance]
	now    func() time.Time                  // the log's
	mirror *streams.Mirror[record, struct{}] // judges what is newer; the index has the values

	mu     sync.RWMutex // held for a lookup or one change, never while something is checked or encoded
	index  *index
	locked map[string]error                     // why a record that is there cannot be read
	sizes  map[string]int                       // bytes on the log of what is in the index or locked, by key
	kept   map[schemas.AccountID]schemas.Amount // their sums
	coming map[schemas.AccountID]int64          // bytes of records that are being written
	keys   []schemas.AccountID                  // whose keys have changed, until KeysChanged is called
}

// openCache reads all records.
func openCache(ctx context.Context, bus *streams.Bus, ring *seal.Ring, providers schemas.Catalog) (*cache, error) {
	s := &cache{
		providers: providers,
		bucket:    sealedBucket{streams.OpenBucket[stored](bus, streams.Records), ring},
		boxes:     streams.OpenBucket[schemas.Instance](bus, streams.Boxes),
		now:       bus.Now, index: newIndex(providers), locked: map[string]error{}, sizes: map[string]int{},
		kept: map[schemas.AccountID]schemas.Amount{}, coming: map[schemas.AccountID]int64{},
	}
	source, opened := &followed{cache: s}, uint64(0)
	s.mirror = &streams.Mirror[record, struct{}]{
		Source:  source,
		Keep:    func(streams.BucketEntry[record]) (struct{}, bool) { return struct{}{}, true },
		Changed: s.takeIn, Unreadable: s.lock,
	}
	err := s.mirror.Fill(func(yield func(streams.BucketEntry[record], error) bool) {
		for p, err := range s.bucket.All(ctx) {
			opened = max(opened, p.Revision)
			if !yield(p, err) {
				return
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the records: %w", err)
	}
	source.rest = s.bucket.bucket.MirroredAfter(opened)
	return s, nil
}

// Run follows the changes of all processes until ctx ends, then returns nil. While the log is unavailable the copy stays as it is. It may
// be called once.
func (s *cache) Run(ctx context.Context) error {
	for key, err := range s.lockedNow() {
		s.passedOver(key, err)
	}
	return s.mirror.Run(ctx)
}

// followed is the source of the store's mirror: the changes after what openCache has read.
type followed struct {
	cache *cache
	rest  streams.MirrorSource[stored]
}

// Mirrored is [streams.MirrorSource]. It reports what does not open, and calls KeysChanged behind each change.
func (f *followed) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[streams.BucketEntry[record], error] {
	s := f.cache
	var before map[string]error // what was locked when everything was listed again
	begin := func() { listing(); before = s.lockedNow() }
	end := func() {
		listed()
		s.unlock(before)
		before = nil
		s.notifyKeys()
	}
	return func(yield func(streams.BucketEntry[record], error) bool) {
		for p, err := range s.bucket.each(f.rest.Mirrored(ctx, begin, end)) {
			if err != nil && ctx.Err() == nil {
				s.passedOver(p.Key, err)
			}
			if !yield(p, err) {
				return
			}
			s.notifyKeys()
		}
	}
}

// lockedNow returns a copy of the errors of records that cannot be decrypted.
func (s *cache) lockedNow() map[string]error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.locked)
}

func (s *cache) passedOver(key string, err error) {
	if s.Log != nil {
		s.Log.Error("record not readable, skipped", "key", key, "error", err)
	}
}

// apply puts a value into the copy, unless a later one is there.
func (s *cache) apply(p streams.BucketEntry[record]) {
	s.mirror.Take(p, nil)
	s.notifyKeys()
}

// takeIn puts a value that the mirror knows to be newer into the index.
func (s *cache) takeIn(p streams.BucketEntry[record]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, a, _, _ := splitKey(p.Key)
	if kind != kindAccount {
		a = "" // of no account
	}
	former := s.index.account(a)
	delete(s.locked, p.Key)
	s.weigh(p.Key, p.Size) // also what is of a kind or form that this version does not know
	switch {
	case p.Deleted:
		s.index.remove(p.Key)
	case p.Value.key() == p.Key:
		s.index.put(p.Value, stand{p.Revision, p.Size})
	}
	if former != nil && !sameKeys(former, s.index.account(a)) {
		s.keys = append(s.keys, former.ID)
	}
}

// notifyKeys calls KeysChanged for the accounts whose keys have changed. No lock is held meanwhile, so the callee may call the store.
func (s *cache) notifyKeys() {
	s.mu.Lock()
	keys := s.keys
	s.keys = nil
	s.mu.Unlock()
	for _, a := range keys {
		if s.KeysChanged != nil {
			s.KeysChanged(a)
		}
	}
}

// sameKeys reports whether b, which may be nil, has the same keys as a with the same expiries.
func sameKeys(a, b *schemas.Account) bool {
	return b != nil && a.KeyHash == b.KeyHash && slices.EqualFunc(a.Former, b.Former, func(x, y schemas.FormerKey) bool {
		return x.KeyHash == y.KeyHash && x.Expires.Equal(y.Expires)
	})
}

// lock records that a record exists but cannot be decrypted. Its earlier value is dropped.
func (s *cache) lock(p streams.BucketEntry[record], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked[p.Key] = err
	s.weigh(p.Key, p.Size)
	s.index.remove(p.Key)
}

// unlock forgets records that could not be decrypted before everything was listed again, and that no longer exist.
func (s *cache) unlock(before map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, err := range before {
		if s.locked[key] == err { //nolint:errorlint // the very same: it was not reported again
			delete(s.locked, key)
			s.weigh(key, 0)
		}
	}
}

func (s *cache) isLocked(key string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.locked[key] != nil
}

// lockedOf returns why a record of the account and one of the kinds cannot be read, nil if all can.
// Code: unavailable.
func (s *cache) lockedOf(a schemas.AccountID, kinds ...string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, err := range s.locked {
		if kind, of, _, _ := splitKey(key); of == a && slices.Contains(kinds, kind) {
			return schemas.Errorf(schemas.Unavailable, "a record of the account cannot be read: %s", schemas.Public(err).Message)
		}
	}
	return nil
}

// fetch reads one record into the copy.
func (s *cache) fetch(ctx context.Context, key string) error {
	p, err := s.bucket.Get(ctx, key)
	s.mirror.Take(p, err)
	s.notifyKeys()
	if err != nil {
		return fmt.Errorf("read the record %s: %w", key, err)
	}
	return nil
}

func (s *cache) authenticate(key string, now time.Time) (schemas.AccountID, bool) {
	hash := HashKey(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.authenticate(hash, now)
}

// tenantOf returns the present records of an account; nil if there are none. The value does not change any more, so a slow reader blocks
// no other caller.
func (s *cache) tenantOf(a schemas.AccountID) *tenant {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.handOut(a)
}

// find searches the copy of the key's account, then the log.
func find[T any](ctx context.Context, s *cache, key string, look func(*tenant) (T, bool)) (v T, err error) {
	_, a, _, _ := splitKey(key)
	there := func() bool {
		t, ok := s.tenantOf(a), false
		if t != nil {
			v, ok = look(t)
		}
		return ok
	}
	if there() {
		return v, nil
	}
	if err := s.fetch(ctx, key); err != nil {
		return *new(T), err
	}
	if !there() {
		return v, schemas.Errorf(schemas.NotFound, "there is no record %s", key)
	}
	return v, nil
}

// weigh records the size of a record in bytes; 0: it is gone. The caller holds the store's lock.
func (s *cache) weigh(key string, size int) {
	part := strings.SplitN(key, ".", 3)
	if len(part) < 2 {
		return
	}
	a := schemas.AccountID(part[1])
	sum := s.kept[a]
	if was, there := s.sizes[key]; there {
		sum.Bytes, sum.Messages = sum.Bytes-int64(was), sum.Messages-1
	}
	if delete(s.sizes, key); size > 0 {
		s.sizes[key] = size
		sum.Bytes, sum.Messages = sum.Bytes+int64(size), sum.Messages+1
	}
	if s.kept[a] = sum; sum.Messages == 0 {
		delete(s.kept, a)
	}
}
