package records

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DefaultQuota is how many bytes all records of an account may be together: twice the largest manifest.
const DefaultQuota = 2 * schemas.MaxManifest

// Quota limits the bytes of all records of an account, as stored on the log.
type Quota struct {
	Bytes int64 // 0: [DefaultQuota]; less: any number
	// Exempt is the account of the operator, which has no quota.
	Exempt schemas.AccountID
}

// of returns the quota of an account; 0: none. It is pure.
func (q Quota) of(a schemas.AccountID) int64 {
	switch {
	case a == q.Exempt, q.Bytes < 0:
		return 0
	case q.Bytes == 0:
		return DefaultQuota
	}
	return q.Bytes
}

// RecordUsage returns the number and bytes of an account's records, and how many bytes they may have; 0: any number. It costs no round
// trip.
func (s *cache) RecordUsage(a schemas.AccountID) (kept schemas.Amount, quota int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.kept[a], s.Quota.of(a)
}

// write stores r in place of what was read under its key, of the zero entry where there is none, and has it in the copy. Bounded says that
// the account must have room for it. Codes: those of [streams.Bucket.Create] and [streams.Bucket.Update], exhausted.
func (s *cache) write(ctx context.Context, was streams.BucketEntry[record], r record, bounded bool) (uint64, error) {
	key := r.key()
	sealed, err := s.bucket.seal(key, r)
	if err != nil {
		return 0, err
	}
	size, err := streams.SizeOf(sealed)
	if err != nil {
		return 0, err
	}
	if bounded {
		release, err := s.reserve(was, r, size)
		if err != nil {
			return 0, err
		}
		defer release() // once it is in the copy
	}
	var revision uint64
	if was.Revision == 0 {
		revision, err = s.bucket.bucket.Create(ctx, key, sealed, 0)
	} else {
		revision, err = s.bucket.bucket.Update(ctx, key, sealed, was.Revision)
	}
	if err == nil {
		s.apply(streams.BucketEntry[record]{Key: key, Value: r, Revision: revision, Size: size})
	}
	return revision, err
}

// reserve takes room for a record of an account until it is in the copy: so those that are written at the same time share what is left.
// Other processes may take the same room at the same moment. What makes a record smaller needs none. Code: exhausted.
func (s *cache) reserve(was streams.BucketEntry[record], r record, size int) (release func(), err error) {
	kind, a, _, _ := splitKey(r.key())
	if kind == kindAccount || kind == kindSessions { // both are small by themselves, and a new key must always be possible
		return func() {}, nil
	}
	more := int64(size - was.Size)
	release, used, ok := s.take(a, more)
	if ok {
		return release, nil
	}
	if was.Revision != 0 && !grows(was.Value, r) { // but for its times
		release, _, _ = s.take(a, 0)
		return release, nil
	}
	field := map[string]string{
		kindSandbox: "config", kindWorkspace: "config", kindAgent: "config", kindModel: "config", kindVariable: "value",
	}[kind]
	return nil, tooLarge(field, used, more, s.Quota.of(a))
}

// take takes room for some bytes of an account's records, if there is any.
func (s *cache) take(a schemas.AccountID, n int64) (release func(), used int64, ok bool) {
	quota := s.Quota.of(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	used = s.kept[a].Bytes + s.coming[a]
	if n <= 0 || quota == 0 {
		return func() {}, used, true
	}
	if used+n > quota {
		return nil, used, false
	}
	s.coming[a] += n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.coming[a] -= n; s.coming[a] == 0 {
			delete(s.coming, a)
		}
	}, used, true
}

// tooLarge is the error for a record, or a manifest's records, beyond the quota.
func tooLarge(field string, used, more, quota int64) error {
	return &schemas.Error{Code: schemas.Exhausted, Field: field, Message: fmt.Sprintf(
		"%d more bytes of records are needed, and the account has %d of the %d that it may have: make this smaller, remove records, "+
			"or ask the operator for a larger --account-records", more, used, quota)}
}

// grows reports whether a record becomes larger, not counting its timestamps.
func grows(was, r record) bool {
	before, errBefore := streams.SizeOf(was.untimed())
	after, errAfter := streams.SizeOf(r.untimed())
	return errBefore != nil || errAfter != nil || after > before
}

// untimed is a copy of a record without the times of its creation and last change, of which the latter grows with the first change.
func (r record) untimed() record {
	var zero time.Time
	switch {
	case r.Sandbox != nil:
		v := *r.Sandbox
		v.Created, v.Updated = zero, zero
		return record{Sandbox: &v}
	case r.Workspace != nil:
		v := *r.Workspace
		v.Created, v.Updated = zero, zero
		return record{Workspace: &v}
	case r.Agent != nil:
		v := *r.Agent
		v.Created, v.Updated = zero, zero
		return record{Agent: &v}
	case r.Model != nil:
		v := *r.Model
		v.Created, v.Updated = zero, zero
		return record{Model: &v}
	case r.Variable != nil:
		v := *r.Variable
		v.Created, v.Updated = zero, zero
		return record{Variable: &v}
	case r.Endpoint != nil:
		v := *r.Endpoint
		v.Created, v.Updated = zero, zero
		return record{Endpoint: &v}
	case r.Channel != nil:
		v := *r.Channel
		v.Created, v.Updated = zero, zero
		return record{Channel: &v}
	case r.Skill != nil:
		v := *r.Skill
		v.Created, v.Updated = zero, zero
		return record{Skill: &v}
	}
	return r
}

// serial admits one caller at a time for each account. Its zero value is ready.
type serial struct {
	mu sync.Mutex
	of map[schemas.AccountID]*entrance // of those with a manifest that is in progress or waits
}

type entrance struct {
	free  chan struct{} // has one element while no caller is in
	wants int           // who is in or waits
}

// enter waits until no other caller of the account is admitted, or for ctx.
func (t *serial) enter(ctx context.Context, a schemas.AccountID) (leave func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[schemas.AccountID]*entrance{}
	}
	own := t.of[a]
	if own == nil {
		own = &entrance{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.of[a] = own
	}
	own.wants++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.wants--; own.wants == 0 {
			delete(t.of, a)
		}
	}
	select {
	case <-own.free:
		return func() { own.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, fmt.Errorf("wait for another manifest of the account: %w", ctx.Err())
	}
}
