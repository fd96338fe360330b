package sandboxes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

const (
	// DefaultSweepEvery is the default time between comparisons of a provider's instances with their records.
	DefaultSweepEvery = 10 * time.Minute
	// SweepGrace is the minimal age at which an instance without a record, or a record without an instance, is resolved: creating an
	// instance and recording it takes seconds, unless the worker is suspended.
	SweepGrace = 15 * time.Minute
	// duplicateGrace is how long a record must have named another instance of its key before this instance is ended, whatever grace is
	// requested. By then the calls that were in this instance have ended. None can have entered since, because the record would name this
	// instance then.
	duplicateGrace = SweepGrace
	// mostFound is the maximal number of findings of one sweep; the next one finds the rest.
	mostFound = 1000
	// sweepWithin is the time limit of a requested sweep.
	sweepWithin = time.Minute
)

// Reconciler compares a provider's list of persistent instances with their records, and resolves differences: an instance whose worker
// crashed before it recorded the instance, a record whose instance was removed manually, a second instance of a recorded key. Of all
// workers of the provider, one at a time does so; two at once do no harm, because every step is a compare-and-set.
type Reconciler struct {
	Bus      *streams.Bus
	Provider providers.Provider
	Name     string // the provider's name in subjects and records
	Records  Records
	Lease    *leases.Lease // of this worker
	// WithJobs returns the instances in which there are background jobs, as [Options] WithJobs does. Nil: there are none.
	WithJobs func() map[schemas.Ref]bool
	Every    time.Duration // 0: DefaultSweepEvery
	Log      *slog.Logger
}

// Run sweeps periodically and on request, until ctx is done.
func (s *Reconciler) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.answer(ctx) })
	if _, ok := providers.As[providers.Lister](s.Provider); !ok {
		return // there is no list; the owners of instances remove the records of dead owners
	}
	duty := &streams.Duty{Bus: s.Bus, Name: "orphan-sweep." + s.Name, Every: cmp.Or(s.Every, DefaultSweepEvery), Log: s.Log,
		Begin: func() func(context.Context, *streams.Tenure) { return s.look }}
	_ = duty.Run(ctx) // it ends only with ctx
}

func (s *Reconciler) look(ctx context.Context, t *streams.Tenure) {
	found, err := s.Sweep(ctx, false, SweepGrace, t.Held)
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("sandbox instances not swept, retrying", "error", err)
	}
	if n := len(found.Orphans); n > 0 {
		s.Log.Info("orphaned sandbox instances found", "count", n)
	}
}

// answer handles an operator's requests for a sweep, until ctx is done.
func (s *Reconciler) answer(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.Bus.Respond(ctx, streams.SweepSubject(s.Name), 1, func(data []byte, _ streams.Headers) ([]byte, error) {
			var q schemas.SweepRequest
			if err := schemas.DecodeStrict(data, len(data), &q); err != nil {
				return json.Marshal(schemas.SweepReport{Error: schemas.Public(err)})
			}
			ctx, cancel := context.WithTimeout(ctx, sweepWithin)
			defer cancel()
			report, err := s.Sweep(ctx, q.DryRun, time.Duration(q.Grace), func() error { return nil })
			if err != nil {
				report.Error = schemas.Public(err)
			}
			return json.Marshal(report)
		})
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("sweeps on request not served, retrying", "error", err)
		}
		wait.Sleep(ctx, time.Second)
	}
}

// Sweep compares once, and resolves what it finds unless dry is set. Before each step it calls held, whose error ends the sweep. A sweep
// that ended early is completed by the next one. Code: unavailable.
func (s *Reconciler) Sweep(ctx context.Context, dry bool, grace time.Duration, held func() error) (schemas.SweepReport, error) {
	lister, lists := providers.As[providers.Lister](s.Provider)
	report := schemas.SweepReport{Orphans: []schemas.Orphan{}, Unlisted: !lists}
	rows, err := s.rows(ctx) // read before the list, so that every recorded instance exists already
	if err != nil {
		return report, err
	}
	var boxes []providers.KeptBox
	if lists {
		of, err := streams.Deployment(ctx, s.Bus)
		if err != nil {
			return report, err
		}
		boxes, err = lister.ListKept(ctx, of)
		if partial, ok := errors.AsType[*providers.PartialList](err); ok { // records of accounts that are not listed are no orphans
			s.Log.Warn("instances of some accounts not listed", "accounts", partial.Accounts)
			rows = slices.DeleteFunc(rows, func(row streams.BucketEntry[schemas.Instance]) bool {
				return slices.Contains(partial.Accounts, row.Value.Account)
			})
			boxes = slices.DeleteFunc(boxes, func(b providers.KeptBox) bool { return slices.Contains(partial.Accounts, b.Account) })
		} else if err != nil {
			return report, err
		}
	} else if rows, err = s.ownerless(ctx, rows); err != nil {
		return report, err
	}
	now := s.Bus.Now()
	var busy map[schemas.Ref]bool
	if s.WithJobs != nil {
		busy = s.WithJobs()
	}
	found := compare(rows, boxes, busy, now, grace)
	report.More = len(found) > mostFound
	for _, f := range found[:min(len(found), mostFound)] {
		if !dry && f.Action != schemas.SweepLeave {
			if err := held(); err != nil {
				return report, err
			}
			done, err := s.resolve(ctx, f)
			if err != nil {
				return report, err
			}
			if f.Done = done; !done {
				report.Orphans = append(report.Orphans, f.Orphan)
				continue
			}
			s.Log.Info("orphaned sandbox instance resolved", "instance", f.Key, "action", f.Action)
		}
		report.Orphans = append(report.Orphans, f.Orphan)
	}
	return report, nil
}

// rows returns the records of the provider's instances.
func (s *Reconciler) rows(ctx context.Context) ([]streams.BucketEntry[schemas.Instance], error) {
	bucket := lifecycle.OpenInstances(s.Bus)
	keys, err := bucket.Keys(ctx, s.Name+".*.*.*")
	if err != nil {
		return nil, err
	}
	var rows []streams.BucketEntry[schemas.Instance]
	for _, key := range keys {
		p, err := bucket.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound), err == nil && p.Deleted:
		case err != nil:
			return nil, err
		default:
			rows = append(rows, p)
		}
	}
	return rows, nil
}

// ownerless returns the records whose worker has ended, and their instances with it. If a lease is missing, it blocks until that is proof,
// see [leases.Lease.Gone].
func (s *Reconciler) ownerless(ctx context.Context, rows []streams.BucketEntry[schemas.Instance]) (
	[]streams.BucketEntry[schemas.Instance], error,
) {
	gone, err := s.goneWorkers(ctx, rows)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(rows, func(p streams.BucketEntry[schemas.Instance]) bool {
		return p.Value.Worker != "" && !gone[p.Value.Worker] && s.Lease.Missing(p.Value.Worker)
	}) {
		if !wait.Sleep(ctx, leases.Settle) {
			return nil, ctx.Err()
		}
		if gone, err = s.goneWorkers(ctx, rows); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(rows, func(p streams.BucketEntry[schemas.Instance]) bool {
		return p.Value.Worker == "" || !gone[p.Value.Worker]
	}), nil
}

// goneWorkers returns for each worker in rows whether it has ended.
func (s *Reconciler) goneWorkers(ctx context.Context, rows []streams.BucketEntry[schemas.Instance]) (map[string]bool, error) {
	gone := map[string]bool{}
	for _, p := range rows {
		if _, asked := gone[p.Value.Worker]; asked {
			continue
		}
		is, err := s.Lease.Gone(ctx, p.Value.Worker)
		if err != nil {
			return nil, err
		}
		gone[p.Value.Worker] = is
	}
	return gone, nil
}

// finding is an orphan, with the data needed to resolve it.
type finding struct {
	schemas.Orphan

	box      providers.KeptBox // to adopt or to end
	rev      uint64            // of the record to remove
	recorded string            // the instance named by the record, if box is a second one
}

// compare returns instances without a record and records without an instance that are older than the grace, and instances whose key has a
// record that names another instance. Busy are the instances with background jobs; now is the stream's time. It has no side effects.
func compare(
	rows []streams.BucketEntry[schemas.Instance], boxes []providers.KeptBox, busy map[schemas.Ref]bool, now time.Time, grace time.Duration,
) []finding {
	recorded, there := map[string]schemas.Instance{}, map[string]bool{}
	for _, p := range rows {
		recorded[keyOf(p.Value)] = p.Value
	}
	for _, b := range boxes {
		there[b.Ref.ID] = true
	}
	var found []finding
	for _, b := range boxes {
		row, has := recorded[b.Key]
		if has && row.Ref.ID == b.Ref.ID || b.State == providers.BoxEnding || b.Age <= grace {
			continue
		}
		f := finding{box: b, recorded: row.Ref.ID, Orphan: schemas.Orphan{
			Key: b.Key, Ref: b.Ref.ID, Since: now.Add(-b.Age), Action: schemas.SweepAdopt,
		}}
		switch _, ok := instanceOf(b); {
		case has && (!there[row.Ref.ID] || busy[b.Ref] || now.Sub(row.Made) <= max(grace, duplicateGrace)):
			continue
		case !ok:
			f.Action = schemas.SweepLeave
		case has:
			f.Action = schemas.SweepEnd
		}
		found = append(found, f)
	}
	for _, p := range rows {
		if !there[p.Value.Ref.ID] && now.Sub(p.Stored) > grace {
			found = append(found, finding{rev: p.Revision,
				Orphan: schemas.Orphan{Key: keyOf(p.Value), Ref: p.Value.Ref.ID, Since: p.Stored, Action: schemas.SweepForget}})
		}
	}
	slices.SortFunc(found, func(a, b finding) int { return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Ref, b.Ref)) })
	return found
}

// keyOf returns the [Key] of the calls of an instance.
func keyOf(i schemas.Instance) string {
	return Key(schemas.Call{Account: i.Account, Sandbox: i.Sandbox, Workspace: i.Workspace})
}

// instanceOf returns the account, sandbox and workspace in an instance's key; false if the key is invalid or of another account.
func instanceOf(b providers.KeptBox) (schemas.Instance, bool) {
	parts := strings.Split(b.Key, ".")
	if len(parts) != 3 || parts[0] != string(b.Account) {
		return schemas.Instance{}, false
	}
	i := schemas.Instance{Account: b.Account, Sandbox: schemas.SandboxID(parts[1]), Workspace: schemas.WorkspaceID(parts[2])}
	return i, i.Account.Validate() == nil && i.Sandbox.Validate() == nil && i.Workspace.Validate() == nil
}

// resolve carries out the action of a finding, by compare-and-set. Done is false if another worker was faster, or if an instance could not
// be ended, which the next sweep tries again. Code: unavailable.
func (s *Reconciler) resolve(ctx context.Context, f finding) (done bool, err error) {
	bucket := lifecycle.OpenInstances(s.Bus)
	switch f.Action {
	case schemas.SweepEnd:
		return s.endDuplicate(ctx, f)
	case schemas.SweepForget:
		err = bucket.DeleteRevision(ctx, s.Name+"."+f.Key, f.rev)
	default:
		var life time.Duration
		if life, err = s.lifeOf(ctx, f.box); err != nil {
			return false, err
		}
		i, _ := instanceOf(f.box)
		i.Provider = s.Name
		lifecycle.AdoptInstance(&i, f.box.Ref, f.box.State == providers.BoxPaused, f.Since, s.Bus.Now(), life)
		_, err = bucket.Create(ctx, i.Key(), i, 0)
	}
	if errors.Is(err, schemas.ErrConflict) { // a call uses it
		return true, nil
	}
	return err == nil, err
}

// endDuplicate ends an instance whose key has a record that names another one, if that is still the case. If a worker reserves this
// instance at the same moment, it finds it gone before it starts anything, and reserves again. The time limit is so short that a
// Reconciler that was suspended in between sends no request to the provider.
func (s *Reconciler) endDuplicate(ctx context.Context, f finding) (done bool, err error) {
	reserver, ok := providers.As[providers.Reserver](s.Provider)
	if !ok {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	row, err := lifecycle.OpenInstances(s.Bus).Get(within, s.Name+"."+f.Key)
	switch {
	case errors.Is(err, schemas.ErrNotFound), err == nil && (row.Deleted || row.Value.Ref.ID != f.recorded):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := reserver.Release(within, f.box.Ref); err != nil { // other findings need not wait for it
		s.Log.Warn("second sandbox instance of a key not ended, retrying with the next sweep", "instance", f.Key, "error", err)
		return false, ctx.Err()
	}
	return true, nil
}

// lifeOf returns the maximal lifetime of an instance: that of its sandbox, 0 if the sandbox was deleted, or the default if the sandbox has
// no record.
func (s *Reconciler) lifeOf(ctx context.Context, b providers.KeptBox) (time.Duration, error) {
	i, _ := instanceOf(b)
	sandbox, err := s.Records.Sandbox(ctx, i.Account, i.Sandbox)
	switch {
	case errors.Is(err, streams.ErrDeleted):
		return 0, nil
	case errors.Is(err, schemas.ErrNotFound):
		return maxLifetime(schemas.Sandbox{}), nil
	}
	return maxLifetime(sandbox), err
}
