package records

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Store is the records of all accounts. Its methods may be called from many goroutines.
type Store struct {
	// Log takes notice of records that cannot be read. Set it before Run; nil: silent.
	Log *slog.Logger
	// KeysChanged is called for each account that has other keys than before or is gone, once the copy knows it.
	// It is called by many goroutines and should not take long. Set it right after Open; nil: nothing is called.
	KeysChanged func(schemas.AccountID)
	// Living knows what a provider's workers can do where they run. Set it right after Open; nil: it is not asked.
	Living Living
	// Operator is what no record may go beyond. Set it right after Open.
	Operator Operator
	// Quota is how much all records of an account may be together. Set it right after Open.
	Quota Quota

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

	manifests serial // those who apply a manifest to an account
}

// Open reads all records once; [Store.Run] then keeps up with changes that others make. The ring seals
// and opens their secrets: variables of sandboxes and keys of endpoints. Without the key that a record
// is sealed with, the record is unavailable and all others are as ever. The nil ring is for logs
// without secrets: a record with any is refused.
//
// Providers are those of this build: records may name these, the first is meant where none is named.
func Open(ctx context.Context, bus *streams.Bus, ring *seal.Ring, providers schemas.Catalog) (*Store, error) {
	s := &Store{
		providers: providers,
		bucket:    sealedBucket{streams.OpenBucket[stored](bus, streams.Records), ring},
		boxes:     streams.OpenBucket[schemas.Instance](bus, streams.Boxes),
		now:       bus.Now, index: newIndex(providers), locked: map[string]error{}, sizes: map[string]int{},
		kept: map[schemas.AccountID]schemas.Amount{}, coming: map[schemas.AccountID]int64{},
	}
	source, opened := &followed{store: s}, uint64(0)
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
func (s *Store) Run(ctx context.Context) error {
	for key, err := range s.lockedNow() {
		s.passedOver(key, err)
	}
	return s.mirror.Run(ctx)
}

// followed is the source of the store's mirror: what comes after what Open has read.
type followed struct {
	store *Store
	rest  streams.MirrorSource[stored]
}

// Mirrored is [streams.MirrorSource]. It reports what does not open, and calls KeysChanged behind each change.
func (f *followed) Mirrored(ctx context.Context, listing, listed func()) iter.Seq2[streams.BucketEntry[record], error] {
	s := f.store
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

// lockedNow copies what cannot be read.
func (s *Store) lockedNow() map[string]error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.locked)
}

func (s *Store) passedOver(key string, err error) {
	if s.Log != nil {
		s.Log.Error("record not readable, skipped", "key", key, "error", err)
	}
}

// apply takes a value into the copy unless a later one is there.
func (s *Store) apply(p streams.BucketEntry[record]) {
	s.mirror.Take(p, nil)
	s.notifyKeys()
}

// takeIn takes a value that the mirror has found to be newer into the index.
func (s *Store) takeIn(p streams.BucketEntry[record]) {
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

// notifyKeys calls KeysChanged for the accounts whose keys have changed. No lock is held meanwhile: who is called may
// ask the store.
func (s *Store) notifyKeys() {
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

// sameKeys reports whether b, which may be nil, is opened by the keys of a, each for as long.
func sameKeys(a, b *schemas.Account) bool {
	return b != nil && a.KeyHash == b.KeyHash && slices.EqualFunc(a.Former, b.Former, func(x, y schemas.FormerKey) bool {
		return x.KeyHash == y.KeyHash && x.Expires.Equal(y.Expires)
	})
}

// lock takes note of a record that is there and does not open. An earlier value of it is no longer true.
func (s *Store) lock(p streams.BucketEntry[record], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked[p.Key] = err
	s.weigh(p.Key, p.Size)
	s.index.remove(p.Key)
}

// unlock forgets records that did not open before everything was listed again, and are not there any more.
func (s *Store) unlock(before map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, err := range before {
		if s.locked[key] == err { //nolint:errorlint // the very same: it was not reported again
			delete(s.locked, key)
			s.weigh(key, 0)
		}
	}
}

func (s *Store) isLocked(key string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.locked[key] != nil
}

// lockedOf returns why a record of the account and one of the kinds cannot be read, nil if all can.
// Code: unavailable.
func (s *Store) lockedOf(a schemas.AccountID, kinds ...string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, err := range s.locked {
		if kind, of, _, _ := splitKey(key); of == a && slices.Contains(kinds, kind) {
			return schemas.Errorf(schemas.Unavailable, "", "a record of the account cannot be read: %s", schemas.Public(err).Message)
		}
	}
	return nil
}

// fetch reads one record into the copy.
func (s *Store) fetch(ctx context.Context, key string) error {
	p, err := s.bucket.Get(ctx, key)
	s.mirror.Take(p, err)
	s.notifyKeys()
	if err != nil {
		return fmt.Errorf("read the record %s: %w", key, err)
	}
	return nil
}

// Authenticate finds the account of a bearer key. It costs no round trip. Codes: denied.
func (s *Store) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	a, ok := s.authenticate(key, s.now())
	if !ok {
		return "", schemas.Errorf(schemas.Denied, "", "invalid API key")
	}
	return a, nil
}

func (s *Store) authenticate(key string, now time.Time) (schemas.AccountID, bool) {
	hash := HashKey(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.authenticate(hash, now)
}

// Resolve turns a valid request into a call of the account: it finds the workspace, the sandbox and
// its provider, sets the timeout and the deadline, and makes the ids that the request lacks. It
// costs no round trip.
//
// A call that a person must allow gets the id of its approval. Codes: not_found (the account, or a
// workspace or sandbox by that name or id), invalid (the deadline; or the sandbox names a variable that the
// account does not have, which only this case asks the log for), denied (the sandbox has more than the operator allows), unsupported
// (its provider is not in this build, or cannot keep what the record says).
func (s *Store) Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c, sandbox, lacking, err := s.resolve(a, r)
	if err == nil && s.Living != nil && sandbox.ID != "" {
		workspace := s.workspaceNow(a, c.Workspace)
		err = s.Living.Keeps(ctx, c.Provider, func(p schemas.Profile) error {
			if err := p.Keeps(sandbox); err != nil {
				return err
			}
			return p.Reaches(workspace, sandbox)
		})
	}
	if err != nil {
		return schemas.Call{}, err
	}
	if !lacking {
		return c, nil
	}
	// It may have been set elsewhere just now. What cannot be read here is the worker's to try again.
	if _, err := s.withVariables(ctx, sandbox); errors.Is(err, schemas.ErrInvalid) {
		return schemas.Call{}, err
	}
	return c, nil
}

// workspaceNow is a workspace of the copy; the zero one where there is none.
func (s *Store) workspaceNow(a schemas.AccountID, id schemas.WorkspaceID) schemas.Workspace {
	if t := s.tenantOf(a); t != nil {
		return t.workspaces.byID[id]
	}
	return schemas.Workspace{}
}

// tenantOf returns what the copy has of an account, as it is now; nil where there is nothing. It is not changed any more: a slow reader
// blocks no other caller.
func (s *Store) tenantOf(a schemas.AccountID) *tenant {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.handOut(a)
}

// Value returns the value of a variable of an account, as env:NAME names it. Codes: invalid (it is not written so, or the account has no
// such variable), unavailable.
func (s *Store) Value(ctx context.Context, a schemas.AccountID, ref string) (string, error) {
	name, ok := schemas.VariableRef(ref)
	if !ok {
		return "", schemas.Errorf(schemas.Invalid, "variable", "%q names no variable", schemas.Quotable(ref))
	}
	v, err := s.variable(ctx, a, name)
	if errors.Is(err, schemas.ErrNotFound) {
		return "", schemas.Errorf(schemas.Invalid, "variable",
			"the account has no variable %s: sandjet variables set %s", name, name)
	}
	return v.Value, err
}

// Living reports what can be kept now.
type Living interface {
	// Keeps asks the profiles of a provider's living workers, and returns nil where one of them keeps what is asked, or
	// where nothing is known of any; else what one of them said.
	Keeps(ctx context.Context, provider string, ask func(schemas.Profile) error) error
}

// resolve is Resolve by the copy alone. Sandbox is the call's, the zero one where it has none; lacking says that the
// copy lacks one of its variables.
func (s *Store) resolve(a schemas.AccountID, r schemas.Request) (c schemas.Call, sandbox schemas.Sandbox, lacking bool, err error) {
	t := s.tenantOf(a)
	if t == nil || t.account == nil {
		return c, sandbox, false, &schemas.Error{
			Code: schemas.NotFound, Field: "account", Message: "there is no account " + schemas.Quotable(string(a)),
		}
	}
	c, err = resolve(t, a, r, s.now())
	if errors.Is(err, schemas.ErrNotFound) {
		if locked := s.lockedOf(a, kindSandbox); locked != nil { // it may be that one
			err = locked
		}
	}
	if err == nil {
		sandbox = t.sandboxes.byID[c.Sandbox]
		err = s.keeps(c, sandbox)
	}
	return c, sandbox, err == nil && c.Unfit() == nil && t.lacks(c.Sandbox), err
}

// keeps reports what of a call its provider or the operator does not allow: its record may be older than this
// build, or than the operator's word. The zero sandbox is that of a call without one.
func (s *Store) keeps(c schemas.Call, sandbox schemas.Sandbox) error {
	able, ok := s.providers.Find(c.Provider)
	if !ok {
		return &schemas.Error{Code: schemas.Unsupported, Field: "sandbox", Message: fmt.Sprintf(
			"%q is of the provider %q, which this build does not have: it has %s. Give the sandbox another with config.provider, or name another "+
				"sandbox",
			schemas.Quotable(sandbox.Name), schemas.Quotable(c.Provider), list(s.providers.Names()))}
	}
	if sandbox.ID == "" {
		return nil
	}
	if err := s.Operator.check(s.providers, sandbox); err != nil {
		return err
	}
	return able.Keeps(sandbox)
}

// Sandbox returns a sandbox by its id, as calls run in it: a variable that names one of the account's has
// its value. One that the copy does not have yet is read from the log. Codes: not_found, unavailable, invalid
// (it names a variable that the account does not have).
func (s *Store) Sandbox(ctx context.Context, a schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error) {
	v, err := find(ctx, s, sandboxKey(a, id), func(t *tenant) (schemas.Sandbox, bool) {
		v, ok := t.sandboxes.byID[id]
		return v, ok
	})
	if err != nil {
		return v, err
	}
	return s.withVariables(ctx, v)
}

// Workspace returns a workspace by its id. One that the copy does not have yet is read from the
// log. Codes: not_found, unavailable.
func (s *Store) Workspace(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	return find(ctx, s, workspaceKey(a, id), func(t *tenant) (schemas.Workspace, bool) {
		v, ok := t.workspaces.byID[id]
		return v, ok
	})
}

// WorkspaceFiles finds the files of a workspace: those that its own sandbox has, and where it names none, those of the default provider.
// Code: not_found.
func (s *Store) WorkspaceFiles(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.WorkspaceFiles, error) {
	return find(ctx, s, workspaceKey(a, id), func(t *tenant) (schemas.WorkspaceFiles, bool) {
		v, ok := t.workspaces.byID[id]
		return t.filesOf(v), ok
	})
}

func (t *tenant) filesOf(w schemas.Workspace) schemas.WorkspaceFiles {
	return schemas.WorkspaceFiles{Workspace: w, Provider: t.holderOf(w)}
}

// find looks into the copy of the account that a key is of, then into the log.
func find[T any](ctx context.Context, s *Store, key string, look func(*tenant) (T, bool)) (v T, err error) {
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
		return v, schemas.Errorf(schemas.NotFound, "", "there is no record %s", key)
	}
	return v, nil
}

// weigh notes how many bytes a record has; 0: it is gone. The store is locked.
func (s *Store) weigh(key string, size int) {
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
