// Package sandboxes keeps the persistent sandbox instances of one provider for one worker: it reserves them for calls, runs
// their lifecycle scripts, knows which worker owns which, and ends what is idle, old or deleted.
package sandboxes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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

// Options are what [New] needs. All must be set, but for Log, Known and Ended.
type Options struct {
	Bus      *streams.Bus
	Provider providers.Provider
	Name     string // the provider's name on the log
	Records  Records
	Lease    *leases.Lease // the worker's own
	// Every is how often each instance is looked at.
	Every time.Duration
	// WithJobs tells in which instances there are background jobs, as far as their records say.
	WithJobs func() map[schemas.Ref]bool
	Log      *slog.Logger
	Known    func(n int)      // how many instances are known, at each look
	Ended    func(why string) // an instance was released
}

// Instances are the persistent instances that this worker knows of: those that its calls have used and, where instances
// outlive their worker, those of the other workers of its provider, whose rows are on the log.
//
// It keeps a few words for each instance, for as long as that is there. Its methods may be called from any number of
// goroutines; none does I/O while the mutex is held.
type Instances struct {
	Options

	reserver providers.Reserver           // nil: the provider keeps none
	rows     *streams.Bucket[instanceRow] // nil: instances end with their worker, and so does what is known of them
	owners   *owners                      // nil: any worker reaches any instance

	mu   sync.Mutex
	held map[string]*instance // by Key
}

// instanceRow is what is known of a kept box. Where boxes outlive their worker it is in the bucket boxes,
// under "<provider>.<key>", and changed on the condition that nobody else has.
type instanceRow struct {
	Account   schemas.AccountID   `json:"account"`
	Sandbox   schemas.SandboxID   `json:"sandbox"`
	Workspace schemas.WorkspaceID `json:"workspace"`
	Provider  string              `json:"provider"`
	Ref       schemas.Ref         `json:"ref"`
	Made      time.Time           `json:"made"` // when it was first used
	Used      time.Time           `json:"used"` // when a call or a job was last in it, see usedFresh
	// Deadline is made once, with the box: what its sandbox says later counts for the next box.
	Deadline time.Time `json:"deadline"`
	Hooked   time.Time `json:"hooked,omitzero"`  // when its onCreate scripts had run; zero: they have not
	Hooking  string    `json:"hooking,omitzero"` // the worker that runs them
	Ending   time.Time `json:"ending,omitzero"`  // since when nothing may enter, because it is being released
}

// instance is one kept box in this worker's memory.
type instance struct {
	row    instanceRow
	rev    uint64        // of the row on the log
	calls  int           // of this worker that are in it
	script chan struct{} // has one place: who runs scripts in it
}

// errGone says that a box has ended since it was reserved.
var errGone = errors.New("the box is gone")

// usedFresh is how old a row may be, at most, while something is in its box.
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
	b := &Instances{Options: o, held: map[string]*instance{}}
	b.reserver, _ = providers.As[providers.Reserver](o.Provider)
	if !providers.ProfileOf(o.Provider).JobsEndWithWorker {
		b.rows = streams.OpenBucket[instanceRow](o.Bus, streams.Boxes)
	} else {
		b.owners = &owners{bucket: streams.OpenBucket[ownerRow](o.Bus, streams.Boxes), lease: o.Lease, prefix: "owner." + o.Name + ".", rows: map[string]owned{}}
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
	parts.Go(func() { b.refresh(ctx) })
}

// Kept reports whether the provider keeps instances at all.
func (b *Instances) Kept() bool { return b.reserver != nil }

// Key names the persistent instance of a call's sandbox and workspace.
func Key(c schemas.Call) string {
	return fmt.Sprintf("%s.%s.%s", c.Account, c.Sandbox, c.Workspace)
}

func (b *Instances) me() string { return b.Lease.Worker() }

func (b *Instances) rowKey(key string) string { return b.Name + "." + key }

// shared is how old what this worker knows of a box's use may be. It is 0 where nobody else uses it.
func (b *Instances) shared() time.Duration {
	if b.rows == nil {
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
	// Interruptible returns a context that also ends when somebody ends the call, and the function that undoes this.
	Interruptible func(context.Context) (context.Context, func())
	// Hooked is called after onCreate has run and before that is noted. Its error ends the preparation right there: tests let
	// a worker die between the two.
	Hooked func() error
}

// Stay is a call's presence in an instance, which is not ended meanwhile. A nil Stay is in none.
type Stay struct {
	in   *Instances
	at   *instance
	ref  schemas.Ref
	once sync.Once
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

// Acquire gets the instance for a call, ready for use: reserved, within its time, its scripts run. The call is in it until
// Leave. It blocks until the scripts have run or ctx ends. Codes: those of Reserve; unavailable (it is just being ended or
// made ready elsewhere: try again; [ErrElsewhere]: another worker has it), invalid (a script has failed).
func (b *Instances) Acquire(ctx context.Context, q Request) (*Stay, error) {
	const tries = 3
	key := Key(q.Call)
	if err := b.own(ctx, key); err != nil {
		return nil, err
	}
	for range tries {
		ref, err := b.reserver.Reserve(ctx, key, q.Command.Spec)
		if err != nil {
			return nil, fmt.Errorf("reserve the sandbox: %w", err)
		}
		q.Command.Sandbox = ref
		h, err := b.admit(ctx, q.Call, q.Sandbox, ref)
		if err == nil {
			s := &Stay{in: b, at: h, ref: ref}
			if err = b.prime(ctx, h, q); err == nil {
				return s, nil
			}
			s.Leave()
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
	return nil, schemas.Errorf(schemas.Unavailable, "reserve", "the sandbox's instance ends again and again: the call waits for one that stays")
}

// own makes sure that no other worker has the box, where boxes end with their worker.
func (b *Instances) own(ctx context.Context, key string) error {
	if b.owners == nil {
		return nil
	}
	lost, err := b.owners.own(ctx, key)
	if lost { // this worker was taken for dead: what others see now is another box
		b.mu.Lock()
		h := b.held[key]
		if h != nil {
			delete(b.held, key)
		}
		b.mu.Unlock()
		if h != nil {
			_ = b.reserver.Release(ctx, h.row.Ref)
		}
	}
	return err
}

// disownUnused lets other workers have what is not here any more. A box that has just ended may be being made anew
// by a call, so that takes as long as no call has wanted it.
func (b *Instances) disownUnused(ctx context.Context) {
	if b.owners == nil {
		return
	}
	for _, key := range b.owners.unasked(max(b.Every, time.Second)) {
		b.mu.Lock()
		_, held := b.held[key]
		b.mu.Unlock()
		if !held {
			b.owners.disown(ctx, key)
		}
	}
}

// DisownAll lets other workers have every instance, when this worker has no call in hand any more.
func (b *Instances) DisownAll(ctx context.Context) {
	if b.owners != nil {
		b.owners.disownAll(ctx)
	}
}

// leave notes that a call is in an instance no more.
func (b *Instances) leave(h *instance) {
	now := b.Bus.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	h.calls--
	h.row.Used = now
}

// admit lets a call into the box that was reserved for it and counts it there. Codes: unavailable (the
// box is at its end, or the log is away); errGone: somebody else was faster, reserve again.
func (b *Instances) admit(ctx context.Context, c schemas.Call, s schemas.Sandbox, ref schemas.Ref) (*instance, error) {
	now := b.Bus.Now()
	key := Key(c)
	have, err := b.load(ctx, key)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	h := b.held[key]
	if h == nil {
		h = &instance{script: make(chan struct{}, 1)}
		b.held[key] = h
	}
	if have.rev != 0 && have.rev >= h.rev {
		h.row, h.rev = have.row, have.rev
	}
	b.mu.Unlock()
	counted := false
	err = b.change(ctx, key, h, func(row *instanceRow) error {
		before := row.Used
		if row.Ref != ref {
			*row = newRow(c, s, b.Name, ref, now)
			before = now
		}
		if !row.Ending.IsZero() || !now.Before(row.Deadline) {
			return schemas.Errorf(schemas.Unavailable, "reserve", "the sandbox's box is at the end of its life: the call waits for the next one")
		}
		if now.Sub(before) >= min(usedFresh, idleTimeout(s)/4) { // else others know already that it is used
			row.Used = now
		}
		if !counted {
			h.calls++ // from here on it is not ended here
			counted = true
		}
		return nil
	})
	if err != nil && counted {
		b.mu.Lock()
		h.calls--
		b.mu.Unlock()
	}
	return h, err
}

func newRow(c schemas.Call, s schemas.Sandbox, provider string, ref schemas.Ref, now time.Time) instanceRow {
	row := instanceRow{
		Account: c.Account, Sandbox: c.Sandbox, Workspace: c.Workspace, Provider: provider, Ref: ref,
		Made: now, Used: now, Deadline: now.Add(maxLifetime(s)),
	}
	if len(s.OnCreate) == 0 {
		row.Hooked = now // scripts that come later are for the next box
	}
	return row
}

// stored is a row with its revision.
type storedRow struct {
	row instanceRow
	rev uint64 // 0: there is none
}

// load reads the row of a box, where rows are on the log.
func (b *Instances) load(ctx context.Context, key string) (storedRow, error) {
	if b.rows == nil {
		return storedRow{}, nil
	}
	p, err := b.rows.Get(ctx, b.rowKey(key))
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return storedRow{}, nil
	case err != nil:
		return storedRow{}, schemas.Wrap(schemas.Unavailable, "reserve", "what is known of the box cannot be read", err)
	}
	return storedRow{p.Value, p.Revision}, nil
}

// change changes the row of a box on the condition that nobody else has, no other goroutine of this worker
// either; how is asked again about what they have made of it. It runs under the lock, and its error leaves
// all as it was. Codes: unavailable; errGone: the box is not h any more.
func (b *Instances) change(ctx context.Context, key string, h *instance, how func(*instanceRow) error) error {
	for {
		rev, row, err := b.decide(key, h, how)
		if err != nil || row == nil {
			return err
		}
		if rev == 0 {
			rev, err = b.rows.Create(ctx, b.rowKey(key), *row, 0)
		} else {
			rev, err = b.rows.Update(ctx, b.rowKey(key), *row, rev)
		}
		have := storedRow{*row, rev}
		conflict := errors.Is(err, schemas.ErrConflict)
		if conflict {
			have, err = b.load(ctx, key)
		}
		if err != nil {
			return schemas.Wrap(schemas.Unavailable, "reserve", "what is known of the box cannot be written", err)
		}
		b.merge(key, have)
		if !conflict {
			return nil
		}
	}
}

// decide makes the changed row of a box, nil where there is nothing to write, with the revision that it is
// to replace. Where boxes end with their worker it counts at once.
func (b *Instances) decide(key string, h *instance, how func(*instanceRow) error) (rev uint64, changed *instanceRow, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == nil || b.held[key] != h {
		return 0, nil, errGone
	}
	row := h.row
	if err := how(&row); err != nil {
		return 0, nil, err
	}
	if b.rows == nil {
		h.row = row
	}
	if row == h.row {
		return 0, nil, nil
	}
	return h.rev, &row, nil
}

// merge keeps what the log tells of a box.
func (b *Instances) merge(key string, have storedRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	switch {
	case h == nil && have.rev == 0:
		return
	case h == nil:
		h = &instance{script: make(chan struct{}, 1)}
		b.held[key] = h
	case have.rev != 0 && have.rev < h.rev:
		return
	}
	h.row, h.rev = have.row, have.rev
}

// deadline is when an instance ends at the latest.
func (b *Instances) deadline(h *instance) time.Time {
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
