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

// Duty is work that one process of a deployment does for all, again and again: the one that holds its lease. When
// that dies, or stands still for as long, another takes it over within [DutyTakenOver].
type Duty struct {
	Bus   *Bus
	Name  string        // of the lease
	Every time.Duration // between two looks; the first comes a tenth to a fifth of it after the lease was taken
	// Begin makes what looks for one tenure, so that nothing that was remembered outlives it. A look ends soon after
	// its context, which ends with the tenure; before each step that cannot be taken back it asks [Tenure.Held].
	Begin func() func(context.Context, *Tenure)
	Log   *slog.Logger // nil: silent
}

// DutyTakenOver is how long nobody does a [Duty] at most whose holder is gone, while another runs.
const DutyTakenOver = dutyTTL + 2*dutyRenew

// dutySign is the value of a duty's lease: for people who look into the bucket.
type dutySign struct {
	Holder string `json:"holder"`
	Host   string `json:"host,omitzero"`
	PID    int    `json:"pid"`
}

// Tenure is one process's time in a duty.
type Tenure struct {
	mu      sync.Mutex
	renewed clock.Reading // when the last successful renewal was begun
}

// errNotHeld says that a duty is another's now.
var errNotHeld = &schemas.Error{Code: schemas.Interrupted, Op: "look", Message: "the duty is another process's by now"}

// Held returns an error unless nobody else can have the duty now. A nil Tenure always holds it.
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

// Run does the duty whenever nobody else does, until ctx ends, and returns nil then.
func (d *Duty) Run(ctx context.Context) error {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	leases, key := OpenBucket[dutySign](d.Bus, Leases), "duty."+d.Name
	sign := dutySign{Holder: d.Bus.options.Name + "-" + nuid.Next(), PID: os.Getpid()}
	sign.Host, _ = os.Hostname() // a host without a name has none here
	for {
		begun := clock.Now()
		revision, err := leases.Create(ctx, key, sign, dutyTTL)
		switch {
		case err == nil:
			t := &Tenure{renewed: begun}
			d.Log.Debug("lease of a housekeeping task taken", "duty", d.Name)
			d.serve(ctx, t, func(ctx context.Context) (err error) {
				revision, err = leases.UpdateFor(ctx, key, sign, revision, dutyTTL)
				return err
			})
			if ctx.Err() != nil && t.Held() == nil { // so that nobody waits for it
				if err := leases.DeleteRevision(context.WithoutCancel(ctx), key, revision); err != nil {
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

// serve looks until the duty is lost or ctx ends.
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
	for next := every/10 + wait.Upto(every/10); wait.Sleep(ctx, next); next = every {
		look(ctx, t)
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
