package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	probesAtOnce = 8
	probeWithin  = 10 * time.Second // for one probe of a job, or an answer about it
	// leftBehind is how old the end of a job may be for its instance to be looked for, when the worker that
	// should have released it is gone.
	leftBehind = lifecycle.JobLeftFor
)

// Manager manages the unsettled jobs of one provider, for one worker: it settles those of
// this worker, takes over those of workers that are gone, and answers questions about its own.
//
// What it holds in memory is a picture of the records, perhaps an old one: a record of some 1 KB, without its command, for each
// unsettled job of the provider. So nothing follows from the picture alone. A job is another worker's as long as
// that worker has its lease; a record is changed on the condition that it is still as it was read; and a job's end is a completion, of
// which the log takes the first. Two managers that both take themselves for a job's therefore do no harm.
//
// A round costs one probe of each job of this worker, 8 at a time, one renewal of all places, and one read for each
// other worker that has jobs. Its mutex is never held during I/O.
type Manager struct {
	options    Options
	controller providers.JobController // nil: the provider cannot be asked about jobs
	records    *streams.Bucket[schemas.Job]
	open       *streams.Mirror[schemas.Job, schemas.Job] // unsettled ones, by key
	probes     chan struct{}                             // has a slot for each probe of a job
	wake       chan struct{}                             // has an element when there are settled ones

	mu      sync.Mutex
	mine    map[string]schemas.Job // of open, those that this worker manages
	settled []schemas.Job          // of this worker: what they held is to be released
	left    map[string]schemas.Job // settled ones of other workers whose own instance may be left
	reasons map[string]string      // of stops that were asked for here

	logs sometimes.Keyed // about jobs and workers whose state cannot be had
}

// repeatedAfter is when a line about a job, or a worker's lease, whose state still cannot be had is logged again.
const repeatedAfter = 10 * time.Minute

// NewManager makes the manager of one worker. It does not block; [Manager.Run] does the work.
func NewManager(o Options) *Manager {
	m := &Manager{
		options: o, records: lifecycle.OpenJobs(o.Bus), probes: make(chan struct{}, probesAtOnce), wake: make(chan struct{}, 1),
		mine: make(map[string]schemas.Job), left: make(map[string]schemas.Job), reasons: make(map[string]string),
		logs: sometimes.Keyed{Every: repeatedAfter},
	}
	m.open = &streams.Mirror[schemas.Job, schemas.Job]{
		Source: lifecycle.WatchJobs(o.Bus, o.Name), Keep: m.keep, Changed: m.changed,
		Unreadable: func(p streams.BucketEntry[schemas.Job], err error) {
			o.Log.Warn("job record not readable", "job", p.Key, "error", err)
		},
	}
	m.controller, _ = providers.As[providers.JobController](o.Provider)
	return m
}

func (m *Manager) me() string { return m.options.Lease.Worker() }

// Run manages jobs until ctx ends. It returns at once where the provider starts none.
func (m *Manager) Run(ctx context.Context) {
	if _, ok := providers.As[providers.JobStarter](m.options.Provider); !ok {
		return
	}
	var parts sync.WaitGroup
	parts.Go(func() { _ = m.open.Run(ctx) }) // it ends with ctx alone
	parts.Go(func() { m.cleanUpSettled(ctx) })
	parts.Go(func() { m.answer(ctx) })
	parts.Go(func() { m.holdPlaces(ctx) })
	every := m.options.ProbeEvery
	for wait.Sleep(ctx, every-every/10+wait.Upto(every/5)) { // several workers do not look in step
		m.round(ctx)
	}
	if n := m.ending(); n > 0 {
		m.options.Log.Warn("background jobs end with this worker, their state will be lost", "jobs", n)
	}
	parts.Wait()
}

// ending returns how many jobs end together with this worker.
func (m *Manager) ending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, j := range m.mine {
		if j.EndsWithWorker {
			n++
		}
	}
	return n
}

// keep selects what the mirror stores of a record: of unsettled jobs of this provider everything except large fields.
func (m *Manager) keep(p streams.BucketEntry[schemas.Job]) (schemas.Job, bool) {
	j := p.Value
	j.Command, j.Origin = "", nil
	return j, j.Provider == m.options.Name && !j.State.Final()
}

// changed handles a record that the mirror has received. The mirror reports each key in the order of its revisions, so a settled job is
// never taken for an open one again.
func (m *Manager) changed(p streams.BucketEntry[schemas.Job]) {
	j, ok := m.keep(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.mine[p.Key]
	mine := j.Worker == m.me()
	switch {
	case p.Deleted:
		delete(m.mine, p.Key)
		delete(m.left, p.Key)
		delete(m.reasons, p.Key)
	case j.Provider != m.options.Name:
	case ok && mine:
		m.mine[p.Key] = j
	case ok:
		delete(m.mine, p.Key)
	default: // it has settled
		delete(m.mine, p.Key)
		delete(m.left, p.Key)
		delete(m.reasons, p.Key)
		switch {
		case mine && known:
			m.settled = append(m.settled, j)
			select {
			case m.wake <- struct{}{}:
			default: // it is awake
			}
		case j.DedicatedSandbox && !mine && j.Completion != nil && m.options.Bus.Now().Sub(j.Completion.Finished) < leftBehind:
			m.left[p.Key] = j
		}
	}
}

// cleanUpSettled releases what settled jobs of this worker occupied, until ctx ends.
func (m *Manager) cleanUpSettled(ctx context.Context) {
	var cleanups sync.WaitGroup
	defer cleanups.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		m.mu.Lock()
		settled := m.settled
		m.settled = nil
		m.mu.Unlock()
		for _, j := range settled {
			cleanups.Go(func() { m.cleanUp(ctx, j) })
		}
	}
}

// forgetLeft forgets a job whose instance was searched for.
func (m *Manager) forgetLeft(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left, key)
}

// cleanUp releases what a settled job occupied here.
func (m *Manager) cleanUp(ctx context.Context, j schemas.Job) {
	if !m.enter(ctx) {
		return
	}
	defer m.leave()
	m.release(ctx, j)
	if j.DedicatedSandbox {
		m.releaseInstance(ctx, j)
	} else if !ranToItsEnd(j) && !j.Ref.Sandbox.IsZero() {
		stopStray(ctx, m.options.Provider, m.options.Log, j.Ref) // it was declared over, by whomever: now it is
	}
}

func (m *Manager) enter(ctx context.Context) bool {
	select {
	case m.probes <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *Manager) leave() { <-m.probes }

func (m *Manager) releaseInstance(ctx context.Context, j schemas.Job) {
	r, ok := providers.As[providers.Reserver](m.options.Provider)
	if !ok || j.Ref.Sandbox.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if err := r.Release(ctx, j.Ref.Sandbox); err != nil {
		m.options.Log.Warn("sandbox instance of a job not released", "job", j.ID, "instance", j.Ref.Sandbox.ID, "error", err)
	}
}

// round checks every job once.
func (m *Manager) round(ctx context.Context) {
	jobs := slices.Collect(maps.Values(m.open.All()))
	m.mu.Lock()
	left, mine := slices.Collect(maps.Values(m.left)), len(m.mine)
	m.mu.Unlock()
	m.options.Managed(mine)
	alive := m.owners(ctx, append(jobs, left...))
	kept := sync.OnceValues(func() ([]providers.KeptBox, error) { return m.kept(ctx) })
	var looks sync.WaitGroup
	defer looks.Wait()
	for _, j := range jobs {
		owner, known := alive[j.Worker]
		f := m.facts(j, owner || !known)
		if judge(f) == toLeave || !m.enter(ctx) {
			continue
		}
		looks.Go(func() {
			defer m.leave()
			if err := m.settle(ctx, j, f, kept); err != nil && ctx.Err() == nil && m.logs.Due(j.Key()) {
				m.options.Log.Warn("job not checked, retrying", "job", j.ID, "error", err)
			}
		})
	}
	for _, j := range left {
		owner, known := alive[j.Worker]
		if !known || owner && m.options.Lease.Missing(j.Worker) { // it may have ended: the next round knows more
			continue
		}
		m.forgetLeft(j.Key())
		if !owner && m.enter(ctx) {
			looks.Go(func() {
				defer m.leave()
				m.releaseInstance(ctx, j)
			})
		}
	}
}

// owners reports which of the workers that manage jobs may live. A worker whose lease could not be read is not in it.
func (m *Manager) owners(ctx context.Context, jobs []schemas.Job) map[string]bool {
	alive := map[string]bool{m.me(): true}
	for _, j := range jobs {
		if _, ok := alive[j.Worker]; ok {
			continue
		}
		gone, err := m.options.Lease.Gone(ctx, j.Worker)
		if err != nil {
			if ctx.Err() == nil && m.logs.Due("lease "+j.Worker) {
				m.options.Log.Warn("lease of a worker with jobs not read", "owner", j.Worker, "error", err)
			}
			continue
		}
		alive[j.Worker] = !gone
	}
	return alive
}

func (m *Manager) facts(j schemas.Job, ownerAlive bool) facts {
	now := m.options.Bus.Now()
	return facts{
		state: j.State, launchingHere: m.options.LaunchingHere(schemas.Call{Account: j.Account, ID: j.Call}.EventID()), mine: j.Worker == m.me(),
		ownerAlive: ownerAlive, tied: j.EndsWithWorker, age: now.Sub(j.Launched), over: now.Sub(j.Deadline),
	}
}

// settle judges one job, probes it if the verdict says so, and carries out the verdict. kept lists the provider's boxes.
func (m *Manager) settle(ctx context.Context, j schemas.Job, f facts, kept func() ([]providers.KeptBox, error)) error {
	v := judge(f)
	if v == toTakeOver {
		taken, err := m.takeOver(ctx, j)
		if err != nil || taken.State == "" {
			return err
		}
		j, f.mine = taken, true
		v = judge(f)
	}
	var status providers.JobStatus
	if v == toProbe {
		f.probe, status = m.refresh(ctx, j)
		v = judge(f)
	}
	m.options.Log.Debug("job checked", "job", j.ID, "verdict", v, "probe", f.probe)
	switch v {
	case toReport:
		return m.end(ctx, j, status.End, m.stopReason(j.Key()))
	case toStop:
		ctx, cancel := context.WithTimeout(ctx, stopWithin)
		defer cancel()
		if err := m.controller.StopJob(ctx, j.Ref, stopGrace); err != nil {
			return fmt.Errorf("stop a job whose lifetime is over: %w", err)
		}
		if f.probe, status = m.refresh(ctx, j); f.probe == probeEnded {
			return m.end(ctx, j, status.End, "")
		}
		return nil
	case toRecord:
		return m.record(ctx, j, status.Instance)
	case toTakeOver: // a tied one whose sandbox is here after all
		_, err := m.takeOver(ctx, j)
		return err
	case toExpire, isOrphaned, isGone, isVanished, isSilent:
		state, reason := lostBecause(v)
		replaced, err := m.replaced(ctx, j, f.probe, kept)
		if err != nil {
			return err
		}
		m.options.Log.Info("job ended with an unknown status", "job", j.ID, "reason", reason, "replaced", replaced)
		return lifecycle.EndJob(ctx, m.options.Bus, j, schemas.Completion{
			Job: j.ID, Account: j.Account, State: state, ReportedBy: schemas.ReportedByProbe, Reason: reason, Finished: m.options.Bus.Now(),
		}, replaced)
	case toLeave, toProbe:
	}
	return nil
}

// end settles a job of whose end the provider knows. Stopped is why a stop was asked for here; empty: none was.
func (m *Manager) end(ctx context.Context, j schemas.Job, end providers.JobEnd, stopped string) error {
	c := completionOf(j, end, schemas.ReportedByProbe, stopped, m.options.Bus.Now())
	return lifecycle.EndJob(ctx, m.options.Bus, j, c, end.Replaced)
}

// replaced reports whether the provider has another box in place of that of a vanished job: its worker may have died before the instance's
// record said so.
func (m *Manager) replaced(ctx context.Context, j schemas.Job, r probeResult, kept func() ([]providers.KeptBox, error)) (bool, error) {
	if r != probeGone || j.DedicatedSandbox {
		return false, nil
	}
	known, err := lifecycle.BoxReplaced(ctx, m.options.Bus, j)
	if known || err != nil {
		return known, err
	}
	boxes, err := kept()
	key := schemas.BoxKey(j.Account, j.Sandbox, j.Workspace)
	return slices.ContainsFunc(boxes, func(b providers.KeptBox) bool {
		return b.Key == key && b.Ref != j.Ref.Sandbox && b.State != providers.BoxEnding
	}), err
}

// kept lists the boxes that the provider keeps for this deployment, where it can.
func (m *Manager) kept(ctx context.Context) ([]providers.KeptBox, error) {
	lister, ok := providers.As[providers.Lister](m.options.Provider)
	if !ok {
		return nil, nil
	}
	of, err := streams.Deployment(ctx, m.options.Bus)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	return lister.ListKept(ctx, of)
}

// refresh asks the provider about a job.
func (m *Manager) refresh(ctx context.Context, j schemas.Job) (probeResult, providers.JobStatus) {
	if m.controller == nil {
		return probeUnsupported, providers.JobStatus{}
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	s, err := m.controller.JobStatus(ctx, j.Ref)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return probeGone, s
	case err != nil:
		if m.logs.Due("reach " + j.Key()) {
			m.options.Log.Info("job not reachable, retrying", "job", j.ID, "error", err)
		}
		return probeUnreachable, s
	case j.Ref.Instance != "" && s.Instance != "" && s.Instance != j.Ref.Instance:
		return probeGone, s // another start under its name: its own sandbox is gone
	case s.Running:
		return probeRuns, s
	}
	return probeEnded, s
}

// takeOver records that this worker manages a job whose worker is gone, and returns the record; the zero one if another worker was first
// or the job has settled.
func (m *Manager) takeOver(ctx context.Context, j schemas.Job) (schemas.Job, error) {
	taken, err := m.change(ctx, j, func(have *schemas.Job) bool {
		if have.Worker != j.Worker || have.State.Final() {
			return false
		}
		have.Worker = m.me()
		return true
	})
	if err != nil || taken.State == "" {
		return taken, err
	}
	m.options.Log.Info("job taken over from a dead worker", "job", j.ID, "from", j.Worker)
	m.renew(ctx, []schemas.Job{taken})
	return taken, nil
}

// record writes that a launched job is running.
func (m *Manager) record(ctx context.Context, j schemas.Job, instance string) error {
	now, err := m.change(ctx, j, func(have *schemas.Job) bool {
		if have.Worker != m.me() || have.State != schemas.JobLaunching {
			return false
		}
		have.State, have.Ref.Instance = schemas.JobRunning, instance
		return true
	})
	if err != nil || now.State == "" {
		return err
	}
	return publishStarted(ctx, m.options.Bus, now)
}

// change reads a job's record, changes it by f and writes it by compare-and-set. It returns the zero Job if there was nothing to change or
// another process was first: the mirror then shows the new record.
func (m *Manager) change(ctx context.Context, j schemas.Job, f func(*schemas.Job) bool) (schemas.Job, error) {
	p, err := m.records.Get(ctx, j.Key())
	if errors.Is(err, schemas.ErrNotFound) || err == nil && (p.Deleted || !f(&p.Value)) {
		return schemas.Job{}, nil
	}
	if err == nil {
		p.Revision, err = m.records.Update(ctx, p.Key, p.Value, p.Revision)
	}
	if errors.Is(err, schemas.ErrConflict) {
		return schemas.Job{}, nil
	}
	if err != nil {
		return schemas.Job{}, fmt.Errorf("record of the job: %w", err)
	}
	m.open.Take(p, nil)
	return p.Value, nil
}

// Instances are the sandbox instances in which there are background jobs of this provider, as far as their records say.
func (m *Manager) Instances() map[schemas.Ref]bool {
	in := map[schemas.Ref]bool{}
	for _, j := range m.open.All() {
		if !j.Ref.Sandbox.IsZero() {
			in[j.Ref.Sandbox] = true
		}
	}
	return in
}
