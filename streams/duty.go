package streams

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	dutyRenew = 10 * time.Second
	dutyTTL   = 3 * dutyRenew
)

// Duty is recurring work that one process of a deployment does for all: the holder of its lease. If that process dies or is suspended,
// another takes over within [DutyTakenOver].
type Duty struct {
	Bus   *Bus
	Name  string        // of the lease
	Every time.Duration // between two looks; the first comes a tenth to a fifth of it after the lease was taken
	// Begin returns the function that makes the passes of one tenure, so that its state does not outlive the tenure. A pass ends soon after
	// its context, which ends with the tenure; before each irreversible step it asks [Tenure.Held].
	Begin func() func(context.Context, *Tenure)
	// Woken is called by the holder between two looks for what comes from Wake. Both nil: never.
	Wake  <-chan struct{}
	Woken func(context.Context, *Tenure)
	Log   *slog.Logger // nil: silent
}

// DutyTakenOver is how long a [Duty] whose holder is gone is idle at most, while another process runs.
const DutyTakenOver = dutyTTL + 2*dutyRenew

// dutySign is the value of a duty's lease, for people who inspect the bucket.
type dutySign struct {
	Holder string `json:"holder"`
	Host   string `json:"host,omitzero"`
	PID    int    `json:"pid"`
}

// Tenure is the time in which a process holds a duty.
type Tenure struct {
	mu      sync.Mutex
	renewed clock.Reading // when the last successful renewal was begun
}

// errNotHeld says that a duty is another's now.
var errNotHeld = &schemas.Error{Code: schemas.Interrupted, Op: "look", Message: "the duty is another process's by now"}

// Held returns an error if another process may hold the duty now. A nil Tenure always holds it.
func (t *Tenure) Held() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if clock.Since(t.renewed) >= dutyTTL {
		return errNotHeld
	}
	return nil
}

func (t *Tenure) renew(begun clock.Reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = begun
}

// Run does the work whenever this process gets the lease, until ctx ends, and returns nil then.
func (d *Duty) Run(ctx context.Context) error {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	l := dutyLease{bucket: OpenBucket[dutySign](d.Bus, Leases), key: "duty." + d.Name}
	l.sign = dutySign{Holder: d.Bus.options.Name + "-" + nuid.Next(), PID: os.Getpid()}
	l.sign.Host, _ = os.Hostname() // a host without a name has none here
	for {
		begun := clock.Now()
		err := l.take(ctx)
		switch {
		case err == nil:
			t := &Tenure{renewed: begun}
			d.Log.Debug("lease of a housekeeping task taken", "duty", d.Name)
			d.serve(ctx, t, l.renew)
			if ctx.Err() != nil && t.Held() == nil { // so that no successor waits for it
				if err := l.release(context.WithoutCancel(ctx)); err != nil {
					d.Log.Debug("lease of a housekeeping task not released, it expires", "duty", d.Name, "error", err)
				}
			}
		case !errors.Is(err, schemas.ErrConflict) && ctx.Err() == nil:
			d.Log.Debug("lease of a housekeeping task not acquired", "duty", d.Name, "error", err)
		}
		if !wait.Sleep(ctx, dutyRenew/2+wait.Upto(dutyRenew)) {
			return nil
		}
	}
}

// dutyLease is this process's view of a duty's lease. It is for one goroutine at a time.
type dutyLease struct {
	bucket   *Bucket[dutySign]
	key      string
	sign     dutySign
	revision uint64 // of the last write that was confirmed
}

// take takes the lease if no process has it. Code: conflict.
func (l *dutyLease) take(ctx context.Context) (err error) {
	l.revision, err = l.bucket.Create(ctx, l.key, l.sign, dutyTTL)
	return err
}

// renew extends the lease by its whole life. Code: conflict (another process has it).
func (l *dutyLease) renew(ctx context.Context) error {
	return l.write(ctx, func(revision uint64) error {
		next, err := l.bucket.UpdateFor(ctx, l.key, l.sign, revision, dutyTTL)
		if err == nil {
			l.revision = next
		}
		return err
	})
}

// release ends the lease. Code: conflict.
func (l *dutyLease) release(ctx context.Context) error {
	return l.write(ctx, func(revision uint64) error { return l.bucket.DeleteRevision(ctx, l.key, revision) })
}

// write changes the lease. A conflict may be with this process's own last renewal, which was stored but not confirmed.
func (l *dutyLease) write(ctx context.Context, change func(revision uint64) error) error {
	err := change(l.revision)
	if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	p, getErr := l.bucket.Get(ctx, l.key)
	switch {
	case errors.Is(getErr, schemas.ErrNotFound), getErr == nil && p.Value.Holder != l.sign.Holder:
		return err
	case getErr != nil:
		return getErr
	}
	return change(p.Revision)
}

// serve does the work until the duty is lost or ctx ends.
func (d *Duty) serve(ctx context.Context, t *Tenure, renew func(context.Context) error) {
	ctx, lost := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer lost()
	renewing.Go(func() {
		defer lost()
		d.keep(ctx, t, renew)
	})
	every := cmp.Or(d.Every, time.Minute)
	look := d.Begin()
	timer := time.NewTimer(every/10 + wait.Upto(every/10))
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
			look(ctx, t)
			timer.Reset(every)
		case <-d.Wake:
			d.Woken(ctx, t)
		}
	}
}

// keep renews the lease until ctx ends or it is lost.
func (d *Duty) keep(ctx context.Context, t *Tenure, renew func(context.Context) error) {
	for wait.Sleep(ctx, dutyRenew) {
		begun := clock.Now()
		err := renew(ctx)
		switch {
		case err == nil:
			t.renew(begun)
		case errors.Is(err, schemas.ErrConflict), t.Held() != nil:
			d.Log.Debug("lease of a housekeeping task lost", "duty", d.Name, "error", err)
			return
		}
	}
}
