// Package sandboxes manages the persistent sandbox instances of one provider for one worker: it reserves them for calls, runs their
// lifecycle scripts, determines which worker owns which, and pauses or ends those that are idle, old or deleted.
//
// # Instances without a record
//
// A deployment has an id (streams.Deployment), which is created once on the condition that there is none. Persistent containers and pods
// carry it as a label. A provider that can list its persistent instances is a providers.Lister: it lists every instance of one deployment,
// with its key, account, age and state. Every ten minutes, one worker of each provider, the holder of a streams.Duty, compares the list with
// the records. An instance without a record that is older than 15 minutes is adopted: it gets a record, on the condition that there is none,
// with the creation time that the provider reports, and now as its last use. From then on the ordinary rules apply: a call finds it, it ends
// when it is idle or too old or its sandbox or workspace is deleted, and its release is retried until the provider confirms it. onCreate
// counts as not having run. A record whose instance is not listed is removed, on the condition that it was not written since; records are
// read before the instances are listed. An instance whose key this version cannot parse is left alone and reported. The command sandjet
// sandboxes instances sweep requests a worker to do the same at once, or only to report what it would do.
//
// Instances are shown at /v1/instances/{id}. The id consists of provider, sandbox and workspace: it stays the same when the instance is
// recreated, and is the key of the record. Reads never write. A request for a pause, a resume or a removal writes the requested state into
// the record, and a worker carries it out. It is refused while a call or a job uses the instance, so that no work is lost by mistake; a
// forced removal first cancels the calls, as any cancel request does. A command in an instance is a call like any other: there is no
// second way to run one.
package sandboxes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// Records returns the records of the sandbox and the workspace of an instance. Codes: not_found, unavailable.
type Records interface {
	Sandbox(ctx context.Context, account schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error)
	Workspace(ctx context.Context, account schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error)
}

// Options are the options of [New]. All must be set except AccountMost, Log, Known and Ended.
type Options struct {
	Bus      *streams.Bus
	Provider providers.Provider
	Name     string // the provider's name in subjects and records
	Records  Records
	Lease    *leases.Lease // the worker's own
	// Every is the time between two checks of each instance.
	Every time.Duration
	// AccountMost is the maximal number of live instances of this provider per account, see claimRoom. 0: no limit.
	AccountMost int
	// WithJobs returns the instances in which there are background jobs, according to their records.
	WithJobs func() map[schemas.Ref]bool
	// Spec returns the specification of a sandbox's instance for a workspace. It is needed to resume a paused instance without a call.
	Spec  func(schemas.Sandbox, schemas.Workspace) providers.Spec
	Log   *slog.Logger
	Known func(n int)      // reports the number of known instances, at each check
	Ended func(why string) // called when an instance was released
}

// Instances are the persistent instances that this worker knows: those of all workers of its provider, whose records are in a bucket
// (schemas.Instance). If instances end with their worker, each has one owner, see owners.go.
//
// It needs little memory per instance. It is safe for concurrent use, and does no I/O while the mutex is held.
type Instances struct {
	*table

	owners  *owners
	reaper  *reaper
	scripts *scripts
}

// table is the part of [Instances] that holds what this worker knows of instances, and accesses their rows, the records in the bucket.
type table struct {
	Options

	reserver providers.Reserver // nil: the provider has no persistent instances
	rows     *streams.Bucket[schemas.Instance]
	tied     bool          // instances end with their worker, so each has one owner
	wished   chan struct{} // capacity 1; receives a value when a state was requested for an instance

	mu   sync.Mutex
	held map[string]*instance // by Key
	lost []schemas.Ref        // instances of this worker that others have taken over, to be released
	of   string               // the deployment's id; empty: not read yet
	read bool                 // all rows were read once
}

// instance is one instance in this worker's memory.
type instance struct {
	row    schemas.Instance
	rev    uint64        // revision of row
	seen   clock.Reading // when this worker last read or wrote the row itself
	used   time.Time     // last use by a call or a job of this worker; the row's value is older, see usedFresh
	claims int           // calls of this worker that are about to enter
	calls  int           // calls of this worker in the instance
	script chan struct{} // capacity 1; held by the call that runs scripts in it
}

// errGone is the error for an instance that has ended since it was reserved.
var errGone = errors.New("the instance is gone")

// usedFresh is the time between writes of an instance's last use to its row, while it is in use.
const usedFresh = 30 * time.Second

// New returns the instances of one provider. It does not block. [Instances.Run] keeps them up to date.
func New(o Options) *Instances {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Known == nil {
		o.Known = func(int) {}
	}
	if o.Ended == nil {
		o.Ended = func(string) {}
	}
	t := &table{
		Options: o, held: map[string]*instance{}, rows: lifecycle.OpenInstances(o.Bus),
		tied: providers.ProfileOf(o.Provider).JobsEndWithWorker, wished: make(chan struct{}, 1),
	}
	t.reserver, _ = providers.As[providers.Reserver](o.Provider)
	b := &Instances{table: t, owners: &owners{t}}
	b.reaper = &reaper{table: t, owners: b.owners}
	b.scripts = &scripts{t, b.reaper}
	if providers.ProfileOf(o.Provider).Pause != "" {
		b.reaper.pauser, _ = providers.As[providers.Pauser](o.Provider)
	}
	return b
}

// Run follows the changes of other workers, and pauses, resumes and ends instances, until ctx is done.
func (b *Instances) Run(ctx context.Context) {
	if b.reserver == nil {
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { b.mirror(ctx) })
	parts.Go(func() { b.reaper.refresh(ctx) })
	if !b.tied {
		parts.Go(func() { b.reaper.sweep(ctx) })
	}
}

// Kept reports whether the provider supports persistent instances.
func (b *Instances) Kept() bool { return b.reserver != nil }

// Key returns the key of the persistent instance for a call's sandbox and workspace.
func Key(c schemas.Call) string {
	return schemas.BoxKey(c.Account, c.Sandbox, c.Workspace)
}

func (b *table) me() string { return b.Lease.Worker() }

func (b *table) rowKey(key string) string { return b.Name + "." + key }

// shared returns how old this worker's knowledge of an instance's last use may be; 0 if no other worker uses the instance.
func (b *table) shared() time.Duration {
	if b.tied {
		return 0
	}
	return usedFresh + 2*b.Every
}

// Request describes the instance that a call needs.
type Request struct {
	Call    schemas.Call
	Sandbox schemas.Sandbox
	// Command is the call's command. A new instance is created with its Spec; lifecycle scripts run with its network and variables.
	Command providers.Command
	// ScriptTimeout is the time limit of each lifecycle script.
	ScriptTimeout time.Duration
	// Interruptible returns a context that is also done when the call is cancelled, and a function that releases it.
	Interruptible func(context.Context) (context.Context, func())
	// Hooked is called after onCreate has run and before that is recorded. An error from it stops the preparation there: tests simulate
	// crashes by it.
	Hooked func() error
}

// Stay is a call's use of an instance, which is not paused or ended meanwhile. A nil Stay uses none.
type Stay struct {
	in   *table
	at   *instance
	ref  schemas.Ref
	once sync.Once

	sandbox schemas.SandboxID
}

// Ref returns the reference of the instance.
func (s *Stay) Ref() schemas.Ref { return s.ref }

// Deadline returns the time at which the instance ends at the latest.
func (s *Stay) Deadline() time.Time { return s.in.deadline(s.at) }

// Leave ends the stay. It may be called more than once.
func (s *Stay) Leave() {
	if s != nil {
		s.once.Do(func() { s.in.leave(s.at) })
	}
}

// Acquire returns the instance for a call, ready for use: it is reserved, not past its deadline, and its scripts have run. The call uses
// it until Leave. It blocks until the scripts have run or ctx is done. Codes: those of Reserve; unavailable (the instance is being ended
// or prepared elsewhere, retry; with [ErrElsewhere], another worker has it), exhausted (also: the account has the maximal number of
// instances), invalid (a script has failed).
func (b *Instances) Acquire(ctx context.Context, q Request) (*Stay, error) {
	const tries = 3
	key := Key(q.Call)
	of, err := b.deployment(ctx)
	if err != nil {
		return nil, err
	}
	q.Command.Spec.Deployment = of
	h, err := b.claimRoom(key, q.Call.Account)
	if err != nil {
		return nil, err
	}
	defer func() { b.unclaim(h) }()
	for range tries {
		if err := b.owners.own(ctx, q.Call); err != nil {
			return nil, err
		}
		known := b.revision(h)
		ref, err := b.reserver.Reserve(ctx, key, q.Command.Spec)
		if err != nil {
			return nil, fmt.Errorf("reserve the sandbox: %w", err)
		}
		q.Command.Sandbox = ref
		b.unclaim(h)
		h = b.claimed(key) // a new entry, if this worker has lost the instance meanwhile
		err = b.admit(ctx, h, known, q, ref)
		if err == nil {
			s := &Stay{in: b.table, at: h, ref: ref, sandbox: q.Call.Sandbox}
			if err = b.scripts.prime(ctx, h, q); err == nil {
				return s, nil
			}
			s.Leave()
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
	return nil, schemas.OpErrorf(schemas.Unavailable, "reserve",
		"the sandbox's instance ends again and again: the call waits for one that stays")
}

// deployment returns the id of the deployment, with which instances are labelled. It is read once. Code: unavailable.
func (b *table) deployment(ctx context.Context) (string, error) {
	b.mu.Lock()
	of := b.of
	b.mu.Unlock()
	if of != "" {
		return of, nil
	}
	of, err := streams.Deployment(ctx, b.Bus)
	if err != nil {
		return "", schemas.Wrap(schemas.Unavailable, "reserve", "of which deployment the box is cannot be read", err)
	}
	b.mu.Lock()
	b.of = of
	b.mu.Unlock()
	return of, nil
}

// claimed returns the entry of a key, which is not removed until unclaim.
func (b *table) claimed(key string) *instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.at(key)
	h.claims++
	return h
}

func (b *table) unclaim(h *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.claims--
}

// at returns the entry of a key, and creates it if there is none. The caller holds the mutex.
func (b *table) at(key string) *instance {
	h := b.held[key]
	if h == nil {
		h = &instance{script: make(chan struct{}, 1)}
		b.held[key] = h
	}
	return h
}

// leave records that a call has left an instance.
func (b *table) leave(h *instance) {
	now := b.Bus.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	h.calls--
	h.used = now
	if h.calls == 0 && h.row.Wanted.State != "" {
		b.wish()
	}
}

// revision returns the known revision of an instance's row.
func (b *table) revision(h *instance) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.rev
}

// admit lets a call enter the instance that was reserved for it, and counts the call. An owner writes nothing if the instance is in use
// already. Known is the revision of the row before the reservation: a change since then may have paused or released this very instance, so
// the row must say that it is ready. Codes: unavailable (the instance is about to end, or NATS is unavailable); errGone: another goroutine
// or worker was faster, and the instance must be reserved again.
func (b *Instances) admit(ctx context.Context, h *instance, known uint64, q Request, ref schemas.Ref) error {
	c, s, now := q.Call, q.Sandbox, b.Bus.Now()
	key := Key(c)
	if !b.tied {
		if err := b.reload(ctx, key, h, b.revision(h)); err != nil {
			return err
		}
	}
	counted := false
	err := b.change(ctx, key, h, func(row *schemas.Instance) error {
		other := row.State == "" || row.State == schemas.InstancePaused || row.State == schemas.InstanceReady && row.Ref != ref
		stale := h.rev != known && other
		if stale || b.tied && row.Worker != b.me() {
			return errGone
		}
		row.Account, row.Sandbox, row.Workspace, row.Provider = c.Account, c.Sandbox, c.Workspace, b.Name
		if err := lifecycle.ReadyInstance(row, ref, now, maxLifetime(s), len(s.OnCreate) > 0); err != nil {
			return err
		}
		if !b.tied && now.Sub(row.Used) >= min(usedFresh, idleTimeout(s)/4) { // otherwise the row shows recent use already
			row.Used = now
		}
		if !counted {
			h.calls++ // from here on this worker does not end it
			h.used = now
			counted = true
		}
		return nil
	})
	if err != nil && counted {
		b.mu.Lock()
		h.calls--
		b.mu.Unlock()
	}
	return err
}

// storedRow is a row with its revision.
type storedRow struct {
	row schemas.Instance
	rev uint64 // 0: there is no row
}

// change changes the row of an instance by compare-and-set, against other workers and other goroutines of this one. After a conflict, how
// is called again with the current row. How runs under the mutex; its error leaves the row unchanged. Codes: unavailable; errGone: h is no
// longer the entry of the key.
func (b *table) change(ctx context.Context, key string, h *instance, how func(*schemas.Instance) error) error {
	var contest streams.Contest
	for {
		rev, row, err := b.decide(key, h, how)
		if err != nil || row == nil {
			return err
		}
		seen := clock.Now()
		written := storedRow{row: *row}
		if rev == 0 {
			written.rev, err = b.rows.Create(ctx, b.rowKey(key), *row, 0)
		} else {
			written.rev, err = b.rows.Update(ctx, b.rowKey(key), *row, rev)
		}
		switch {
		case err == nil:
			b.merge(key, written, seen)
			return nil
		case !errors.Is(err, schemas.ErrConflict):
			return schemas.Wrap(schemas.Unavailable, "reserve", "what is known of the box cannot be written", err)
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
		if err := b.reload(ctx, key, h, rev); err != nil {
			return err
		}
	}
}

// decide returns the changed row of an instance and the revision that it replaces; a nil row if there is nothing to write.
func (b *table) decide(key string, h *instance, how func(*schemas.Instance) error) (rev uint64, changed *schemas.Instance, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == nil || b.held[key] != h {
		return 0, nil, errGone
	}
	row := h.row
	if err := how(&row); err != nil {
		return 0, nil, err
	}
	if row == h.row {
		return 0, nil, nil
	}
	return h.rev, &row, nil
}

// reload reads the row from the bucket and stores it in the entry, unless the entry has changed since its revision was known. The row is
// also stored if its revision is lower: then the stream was recreated or has lost its end, and the known revision would never be reached.
func (b *table) reload(ctx context.Context, key string, h *instance, known uint64) error {
	seen := clock.Now()
	p, err := b.rows.Get(ctx, b.rowKey(key))
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return schemas.Wrap(schemas.Unavailable, "reserve", "what is known of the box cannot be read", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.held[key] != h || h.rev != known:
	case err != nil && b.tied && h.row.Worker == b.me():
		h.rev = 0 // the instance exists here, so its row is written again
	case err != nil:
		b.adopt(key, storedRow{}, seen)
	default:
		b.adopt(key, storedRow{p.Value, p.Revision}, seen)
	}
	return nil
}

// merge stores a row that this worker has written itself in its entry, unless a later one is known. Seen is a time before the write.
func (b *table) merge(key string, have storedRow, seen clock.Reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h == nil || have.rev >= h.rev {
		b.adopt(key, have, seen)
	}
}

// follow stores a row that the bucket's watch reports in its entry, unless a later one is known. An owner ignores a row with its own name
// for an instance that it does not have: this is its own last write about an instance that has ended.
func (b *table) follow(key string, have storedRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	echo := b.tied && have.row.Worker == b.me() && (h == nil || h.row.Worker != b.me())
	if !echo && (h == nil || have.rev > h.rev) {
		b.adopt(key, have, clock.Reading{})
	}
}

// adopt stores a row in its entry unconditionally. The caller holds the mutex.
func (b *table) adopt(key string, have storedRow, seen clock.Reading) {
	h := b.at(key)
	if b.tied && h.row.Worker == b.me() && have.row.Worker != b.me() {
		// This worker was taken for dead. The rest of the instance here must be released; its calls remain counted in the removed entry.
		if !h.row.Ref.IsZero() {
			b.lost = append(b.lost, h.row.Ref)
		}
		delete(b.held, key)
		h = b.at(key)
	}
	was, now := h.row.Wanted, have.row.Wanted
	if now.State != "" && (now.State != was.State || now.Cancelled != was.Cancelled || !now.At.Equal(was.At)) &&
		(!b.tied || have.row.Worker == b.me()) {
		b.wish() // only for a new request: one that could not be fulfilled is retried at the next check
	}
	h.row, h.rev = have.row, have.rev
	if seen.After(h.seen) {
		h.seen = seen
	}
}

// deadline returns the time at which an instance ends at the latest.
func (b *table) deadline(h *instance) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.row.Deadline
}

// idleTimeout returns how long a sandbox's persistent instance may be unused before it is paused or ended.
func idleTimeout(s schemas.Sandbox) time.Duration {
	if s.IdleTimeout <= 0 {
		return schemas.DefaultIdleTimeout
	}
	return min(time.Duration(s.IdleTimeout), schemas.MaxIdleTimeout)
}

// maxLifetime returns the maximal lifetime of a sandbox's persistent instance.
func maxLifetime(s schemas.Sandbox) time.Duration {
	if s.MaxLifetime <= 0 {
		return schemas.DefaultMaxLifetime
	}
	return min(time.Duration(s.MaxLifetime), schemas.MaxLifetime)
}
