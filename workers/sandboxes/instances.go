// Package sandboxes keeps the persistent sandbox instances of one provider for one worker: it reserves them for calls, runs
// their lifecycle scripts, knows which worker owns which, and ends what is idle, old or deleted.
//
// # Boxes without a record
//
// The log has an identity (streams.Deployment), made once on the condition that there is none; persistent containers and pods carry it as a
// label. A provider that can list what it keeps is a providers.Lister: every box of one deployment with its key, account, age and state.
// Every ten minutes one worker of each provider, the holder of a streams.Duty, compares that with the records. A box without a record,
// older than 15 minutes, is adopted: it gets a record, on the condition that there is none, made when its provider says and used now. From
// then on the ordinary rules hold: a call finds it, it ends when it is idle, too old, or its sandbox or workspace is gone, and its release
// is tried until the provider confirms it. onCreate is taken not to have run. A record whose box is not listed is removed on the condition
// that it was not written since; the records are read before the boxes are listed. A box whose key this version cannot read is left alone
// and reported. sandjet sandboxes instances sweep asks a worker to do the same at once, or only to say what it would do.
//
// Instances are shown as /v1/instances/{id}, where the id is provider, sandbox and workspace: it stays the same when the box is recreated,
// and a record is found by it without a search. Reading never writes. Who asks for a pause, a resume or a removal writes what is wanted
// into the record; the worker carries it out. While a call or a job is in the instance that is refused, so that no work is lost by a slip;
// a removal by force cancels the calls first, by the ordinary way. A command in an instance is a call like any other: there is no second
// way in.
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

// Records finds what an instance belongs to. Codes: not_found, unavailable.
type Records interface {
	Sandbox(ctx context.Context, account schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error)
	Workspace(ctx context.Context, account schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error)
}

// Options are what [New] needs. All must be set, but for AccountMost, Log, Known and Ended.
type Options struct {
	Bus      *streams.Bus
	Provider providers.Provider
	Name     string // the provider's name on the log
	Records  Records
	Lease    *leases.Lease // the worker's own
	// Every is how often each instance is looked at.
	Every time.Duration
	// AccountMost is how many live instances of this provider an account has at a time, see room. 0: as many as it likes.
	AccountMost int
	// WithJobs says in which instances there are background jobs, as far as their records say.
	WithJobs func() map[schemas.Ref]bool
	// Spec is what the box of a sandbox and a workspace is made of: with it a paused one is woken without a call.
	Spec  func(schemas.Sandbox, schemas.Workspace) providers.Spec
	Log   *slog.Logger
	Known func(n int)      // how many instances are known, at each look
	Ended func(why string) // an instance was released
}

// Instances are the persistent instances that this worker knows of: those of all workers of its provider, whose records are on
// the log (schemas.Instance, in the bucket boxes). Where boxes end with their worker each has one owner, see owners.go.
//
// It keeps a few words for each instance, for as long as that is there. Its methods may be called from any number of
// goroutines; none does I/O while the mutex is held.
type Instances struct {
	*table

	owners  *owners
	reaper  *reaper
	scripts *scripts
}

// table is what this worker knows of instances, and the way to their rows on the log.
type table struct {
	Options

	reserver providers.Reserver // nil: the provider keeps none
	rows     *streams.Bucket[schemas.Instance]
	tied     bool          // instances end with their worker: each has one owner
	wished   chan struct{} // has one entry: a state was requested for an instance that this worker owns, or that any worker reaches

	mu   sync.Mutex
	held map[string]*instance // by Key
	lost []schemas.Ref        // boxes of this worker that others have taken over: to be released
	of   string               // the deployment; empty until it was asked for
	read bool                 // all records were read once
}

// instance is one instance in this worker's memory.
type instance struct {
	row    schemas.Instance
	rev    uint64        // of the row on the log
	seen   clock.Reading // when this worker last read or wrote the row itself
	used   time.Time     // when a call or a job of this worker was last in it; its row lags, see usedFresh
	claims int           // calls of this worker that want to enter
	calls  int           // calls of this worker that are in it
	script chan struct{} // has one place: who runs scripts in it
}

// errGone says that a box has ended since it was reserved.
var errGone = errors.New("the instance is gone")

// usedFresh is how often the use of an instance is written to its row while something is in it.
const usedFresh = 30 * time.Second

// New makes the instances of one provider. It does not block; [Instances.Run] keeps them up to date.
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

// Run follows what other workers say of instances and ends those that are to end, until ctx ends.
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

// Kept reports whether the provider keeps instances at all.
func (b *Instances) Kept() bool { return b.reserver != nil }

// Key names the persistent instance of a call's sandbox and workspace.
func Key(c schemas.Call) string {
	return schemas.BoxKey(c.Account, c.Sandbox, c.Workspace)
}

func (b *table) me() string { return b.Lease.Worker() }

func (b *table) rowKey(key string) string { return b.Name + "." + key }

// shared is how old what this worker knows of a box's use may be. It is 0 if no other worker uses the box.
func (b *table) shared() time.Duration {
	if b.tied {
		return 0
	}
	return usedFresh + 2*b.Every
}

// Request is what a call wants an instance for.
type Request struct {
	Call    schemas.Call
	Sandbox schemas.Sandbox
	// Command is the call's. Its Spec is what the instance is made with; lifecycle scripts run with its network and variables.
	Command providers.Command
	// ScriptTimeout bounds each lifecycle script.
	ScriptTimeout time.Duration
	// Interruptible returns a context that also ends when the call is cancelled, and the function that undoes this.
	Interruptible func(context.Context) (context.Context, func())
	// Hooked is called after onCreate has run and before that is noted. Its error ends the preparation right there: tests let
	// a worker die between the two.
	Hooked func() error
}

// Stay is a call's presence in an instance, which is not ended meanwhile. A nil Stay is in none.
type Stay struct {
	in   *table
	at   *instance
	ref  schemas.Ref
	once sync.Once

	sandbox schemas.SandboxID
}

// Ref is the instance.
func (s *Stay) Ref() schemas.Ref { return s.ref }

// Deadline is when the instance ends at the latest.
func (s *Stay) Deadline() time.Time { return s.in.deadline(s.at) }

// Leave ends the stay. It may be called more than once.
func (s *Stay) Leave() {
	if s != nil {
		s.once.Do(func() { s.in.leave(s.at) })
	}
}

// Acquire gets the instance for a call, ready for use: reserved, within its time, its scripts run. The call is in it until Leave. It blocks
// until the scripts have run or ctx ends. Codes: those of Reserve; unavailable (it is just being ended or prepared elsewhere: try again;
// [ErrElsewhere]: another worker has it), exhausted (also: the account has as many as it may), invalid (a script has failed).
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
		h = b.claimed(key) // another one, if this worker has lost it meanwhile
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

// deployment is the label that boxes carry. It is read once. Code: unavailable.
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

// claimed is the instance of a key, which is known here from now until unclaim at least.
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

// at is the instance of a key. The caller has the mutex.
func (b *table) at(key string) *instance {
	h := b.held[key]
	if h == nil {
		h = &instance{script: make(chan struct{}, 1)}
		b.held[key] = h
	}
	return h
}

// leave notes that a call is in an instance no more.
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

// revision is that of an instance's row as it is known.
func (b *table) revision(h *instance) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.rev
}

// admit lets a call into the box that was reserved for it and counts it there. An owner of a box in use writes nothing for it. Known is the
// revision of the row before the box was reserved: what has changed since may have paused or released that very box after it was reserved,
// and only a row that says it is ready says that it is there. Codes: unavailable (the box is at its end, or the log is unavailable);
// errGone: another goroutine or worker was faster, reserve again.
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
		if !b.tied && now.Sub(row.Used) >= min(usedFresh, idleTimeout(s)/4) { // else others know already that it is used
			row.Used = now
		}
		if !counted {
			h.calls++ // from here on it is not ended here
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
	rev uint64 // 0: there is none
}

// change changes the row of a box by compare and set, against other workers and other goroutines of this one; after a conflict how is
// called again with the changed row. It runs under the lock, and its error leaves all as it was. Codes: unavailable; errGone: the box is
// not h any more.
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

// decide makes the changed row of a box, nil where there is nothing to write, with the revision that it is
// to replace.
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

// reload takes in what the log has now, unless something else was taken in since the revision known was. It counts also if its own revision
// is lower: then the log was recreated, or has lost its end, and the revision known here would never come.
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
		h.rev = 0 // the box is here: its row is written again
	case err != nil:
		b.adopt(key, storedRow{}, seen)
	default:
		b.adopt(key, storedRow{p.Value, p.Revision}, seen)
	}
	return nil
}

// merge takes in a row that this worker has written itself, unless a later one is known. Seen is from before.
func (b *table) merge(key string, have storedRow, seen clock.Reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h == nil || have.rev >= h.rev {
		b.adopt(key, have, seen)
	}
}

// follow takes in a row that the log reports, unless a later one is known. For an owner, a row of its own instance is news only while it
// has that instance: else it is its own last write about one that has ended.
func (b *table) follow(key string, have storedRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	echo := b.tied && have.row.Worker == b.me() && (h == nil || h.row.Worker != b.me())
	if !echo && (h == nil || have.rev > h.rev) {
		b.adopt(key, have, clock.Reading{})
	}
}

// adopt takes in a row as it is. The caller has the mutex.
func (b *table) adopt(key string, have storedRow, seen clock.Reading) {
	h := b.at(key)
	if b.tied && h.row.Worker == b.me() && have.row.Worker != b.me() {
		// This worker was taken for dead. What is left of the instance here must go, and its calls are counted with that.
		if !h.row.Ref.IsZero() {
			b.lost = append(b.lost, h.row.Ref)
		}
		delete(b.held, key)
		h = b.at(key)
	}
	was, now := h.row.Wanted, have.row.Wanted
	if now.State != "" && (now.State != was.State || now.Cancelled != was.Cancelled || !now.At.Equal(was.At)) &&
		(!b.tied || have.row.Worker == b.me()) {
		b.wish() // not at each change of the row: what could not be done is tried again at the next look
	}
	h.row, h.rev = have.row, have.rev
	if seen.After(h.seen) {
		h.seen = seen
	}
}

// deadline is when an instance ends at the latest.
func (b *table) deadline(h *instance) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.row.Deadline
}

// idleTimeout is how long nothing may be in a sandbox's kept box before it is ended.
func idleTimeout(s schemas.Sandbox) time.Duration {
	if s.IdleTimeout <= 0 {
		return schemas.DefaultIdleTimeout
	}
	return min(time.Duration(s.IdleTimeout), schemas.MaxIdleTimeout)
}

// maxLifetime is how long a kept box of a sandbox lives at most.
func maxLifetime(s schemas.Sandbox) time.Duration {
	if s.MaxLifetime <= 0 {
		return schemas.DefaultMaxLifetime
	}
	return min(time.Duration(s.MaxLifetime), schemas.MaxLifetime)
}
