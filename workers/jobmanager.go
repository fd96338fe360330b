package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
)

const (
	probesAtOnce = 8
	probeWithin  = 10 * time.Second // for a look at one job, or an answer about it
	stopWithin   = 25 * time.Second // likewise for its end, below what those who ask for it wait
	stopGrace    = 2 * time.Second  // from TERM to KILL
	// leftBehind is how old the end of a job may be for its box to be looked for, when the worker that
	// should have released it is gone.
	leftBehind = lifecycle.JobLeftFor
	// maxReasons bounds the reasons of stops that are remembered.
	maxReasons = 10_000
)

// jobManager looks after the unsettled jobs of one provider, for one worker: it sees to it that those of
// this worker settle, takes over those of workers that are gone, and answers questions about its own.
//
// It holds a record in memory, without its command, for each unsettled job of the provider: some
// 1 KB. A round costs one look into each sandbox per job of this worker, 8 at a time, one renewal of
// all places, and one read for each other worker that has jobs.
type jobManager struct {
	bus        *streams.Bus
	provider   providers.Provider
	name       string // the provider's on the log
	limiter    limits.Limiter
	lease      *leases.Lease
	inFlight   *inFlight
	probeEvery time.Duration
	log        *slog.Logger
	managed    func(n int)                  // jobs that this worker looks after, at each round
	away       func(context.Context, error) // the limiter is away

	controller providers.JobController // nil: the provider cannot look
	records    *streams.Bucket[schemas.Job]
	slots      chan struct{}
	parts      sync.WaitGroup

	mu      sync.Mutex
	jobs    map[string]schemas.Job // unsettled ones, by key
	left    map[string]schemas.Job // settled ones of other workers whose own box may be left
	reasons map[string]string      // of stops that were asked for here
}

func newJobManager(s *workerRun) *jobManager {
	k := &jobManager{
		bus: s.Bus, provider: s.Provider, name: s.Name, limiter: s.Limiter, lease: s.lease, inFlight: s.inFlight, probeEvery: s.ProbeEvery, log: s.Log,
		managed: func(n int) { s.Metrics.Jobs(s.Name, n) }, away: s.accountSlots.tellAway,
		records: lifecycle.OpenJobs(s.Bus), slots: make(chan struct{}, probesAtOnce),
		jobs: make(map[string]schemas.Job), left: make(map[string]schemas.Job), reasons: make(map[string]string),
	}
	k.controller, _ = providers.As[providers.JobController](s.Provider)
	return k
}

func (k *jobManager) me() string { return k.lease.Worker() }

// keep looks after jobs until ctx ends. A provider that starts none has nothing to be kept.
func (k *jobManager) keep(ctx context.Context) {
	if _, ok := providers.As[providers.JobStarter](k.provider); !ok {
		return
	}
	defer k.parts.Wait()
	k.parts.Go(func() { k.watch(ctx) })
	k.parts.Go(func() { k.answer(ctx) })
	k.parts.Go(func() { k.holdPlaces(ctx) })
	for sleep(ctx, k.probeEvery-k.probeEvery/10+rand.N(k.probeEvery/5+1)) { // several workers do not look in step
		k.round(ctx)
	}
}

// watch mirrors the records of the provider's unsettled jobs.
func (k *jobManager) watch(ctx context.Context) {
	for p, err := range lifecycle.WatchJobs(k.bus, k.name).Watch(ctx) {
		switch {
		case err != nil:
			k.log.Warn("the record of a job cannot be read", "key", p.Key, "error", err)
		case p.Deleted:
			k.forget(p.Key)
		case p.Value.Provider != k.name:
		case p.Value.State.Final():
			k.expired(ctx, p.Value)
		default:
			k.observe(p.Value)
		}
	}
}

// observe keeps the record of an unsettled job.
func (k *jobManager) observe(j schemas.Job) {
	j.Command, j.Origin = "", nil
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jobs[j.Key()] = j
}

func (k *jobManager) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.jobs, key)
	delete(k.left, key)
	delete(k.reasons, key)
}

// expired sees a job that has settled.
func (k *jobManager) expired(ctx context.Context, j schemas.Job) {
	k.mu.Lock()
	_, known := k.jobs[j.Key()]
	k.mu.Unlock()
	k.forget(j.Key())
	recent := j.Completion != nil && k.bus.Now().Sub(j.Completion.Finished) < leftBehind
	switch {
	case j.Worker == k.me() && known:
		k.parts.Go(func() { k.cleanUp(ctx, j) })
	case j.Own && recent && j.Worker != k.me():
		k.mu.Lock()
		k.left[j.Key()] = j
		k.mu.Unlock()
	}
}

// cleanUp gives back what a settled job held here.
func (k *jobManager) cleanUp(ctx context.Context, j schemas.Job) {
	if !k.enter(ctx) {
		return
	}
	defer k.leave()
	k.release(ctx, j)
	if j.Own {
		k.releaseBox(ctx, j)
	} else if !ranToItsEnd(j.State) && !j.Ref.Sandbox.IsZero() {
		stopStray(ctx, k.provider, k.log, j.Ref) // it was declared over, by whomever: now it is
	}
}

func (k *jobManager) enter(ctx context.Context) bool {
	select {
	case k.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (k *jobManager) leave() { <-k.slots }

func (k *jobManager) release(ctx context.Context, j schemas.Job) {
	if k.limiter == nil || len(j.Places) == 0 {
		return
	}
	if err := k.limiter.Release(ctx, leasesOf(j)...); err != nil {
		k.log.Warn("places of a job not given back: they end by themselves", "job", j.ID, "error", err, "after", placeTTL(k.probeEvery))
	}
}

func (k *jobManager) releaseBox(ctx context.Context, j schemas.Job) {
	r, ok := providers.As[providers.Reserver](k.provider)
	if !ok || j.Ref.Sandbox.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if err := r.Release(ctx, j.Ref.Sandbox); err != nil {
		k.log.Warn("the box of a job is left behind", "job", j.ID, "box", j.Ref.Sandbox.ID, "error", err)
	}
}

func leasesOf(j schemas.Job) []limits.Lease {
	leases := make([]limits.Lease, len(j.Places))
	for i, p := range j.Places {
		leases[i] = limits.Lease{Key: p.Key, Holder: j.Key(), Token: p.Token}
	}
	return leases
}

// round looks at every job once.
func (k *jobManager) round(ctx context.Context) {
	// First whether absence is proof, then the absence: the other way round a lapse in between would
	// go unseen.
	settled := k.lease.Settled()
	k.mu.Lock()
	jobs := make([]schemas.Job, 0, len(k.jobs))
	for _, j := range k.jobs {
		jobs = append(jobs, j)
	}
	left := make([]schemas.Job, 0, len(k.left))
	for _, j := range k.left {
		left = append(left, j)
	}
	k.mu.Unlock()
	mine := slices.DeleteFunc(slices.Clone(jobs), func(j schemas.Job) bool { return j.Worker != k.me() })
	k.managed(len(mine))
	alive := k.owners(ctx, append(jobs, left...))
	var looks sync.WaitGroup
	defer looks.Wait()
	for _, j := range jobs {
		owner, known := alive[j.Worker]
		f := k.facts(j, owner, settled && known)
		if judgeJob(f) == jobLeave || !k.enter(ctx) {
			continue
		}
		looks.Go(func() {
			defer k.leave()
			if err := k.settle(ctx, j, f); err != nil && ctx.Err() == nil {
				k.log.Warn("a job was not looked after: that is tried again", "job", j.ID, "error", err)
			}
		})
	}
	for _, j := range left {
		owner, known := alive[j.Worker]
		if !known || !settled && !owner {
			continue
		}
		k.forget(j.Key())
		if !owner && k.enter(ctx) {
			looks.Go(func() {
				defer k.leave()
				k.releaseBox(ctx, j)
			})
		}
	}
}

// owners tells which of the workers that look after jobs have their lease. One that could not be asked
// for is not in it.
func (k *jobManager) owners(ctx context.Context, jobs []schemas.Job) map[string]bool {
	alive := map[string]bool{"": false, k.me(): true}
	for _, j := range jobs {
		if _, ok := alive[j.Worker]; ok {
			continue
		}
		held, err := k.lease.Held(ctx, j.Worker)
		if err != nil {
			if ctx.Err() == nil {
				k.log.Warn("a worker that looks after jobs cannot be asked for", "owner", j.Worker, "error", err)
			}
			continue
		}
		alive[j.Worker] = held
	}
	return alive
}

func (k *jobManager) facts(j schemas.Job, ownerAlive, settled bool) jobFacts {
	now := k.bus.Now()
	return jobFacts{
		state: j.State, inHand: k.inFlight.has(schemas.Call{Account: j.Account, ID: j.Call}.EventID()), mine: j.Worker == k.me(),
		ownerAlive: ownerAlive, settled: settled, tied: j.Tied, age: now.Sub(j.Launched), over: now.Sub(j.Deadline),
	}
}

// settle judges one job, looks at it where that is asked for, and does what follows.
func (k *jobManager) settle(ctx context.Context, j schemas.Job, f jobFacts) error {
	v := judgeJob(f)
	if v == jobTakeOver {
		taken, err := k.takeOver(ctx, j)
		if err != nil || taken.State == "" {
			return err
		}
		j, f.mine = taken, true
		v = judgeJob(f)
	}
	var status providers.JobStatus
	if v == jobProbe {
		f.look, status = k.refresh(ctx, j)
		v = judgeJob(f)
	}
	k.log.Debug("job looked after", "job", j.ID, "verdict", v, "look", f.look)
	now := k.bus.Now()
	switch v {
	case jobReport:
		return lifecycle.CompleteOnce(ctx, k.bus, completionOf(j, status.End, schemas.ViaProbe, k.stopReason(j.Key()), now))
	case jobStop:
		ctx, cancel := context.WithTimeout(ctx, stopWithin)
		defer cancel()
		if err := k.controller.StopJob(ctx, j.Ref, stopGrace); err != nil {
			return fmt.Errorf("stop a job whose lifetime is over: %w", err)
		}
		if f.look, status = k.refresh(ctx, j); f.look == lookEnded {
			return lifecycle.CompleteOnce(ctx, k.bus, completionOf(j, status.End, schemas.ViaProbe, "", now))
		}
		return nil
	case jobRecord:
		return k.record(ctx, j, status.Instance)
	case jobTakeOver: // a tied one whose sandbox is here after all
		_, err := k.takeOver(ctx, j)
		return err
	case jobExpire, jobOrphaned, jobGone, jobVanished, jobSilent:
		state, reason := lostBecause(v)
		k.log.Info("a job is over and nobody knows how it ended", "job", j.ID, "reason", reason)
		return lifecycle.CompleteOnce(ctx, k.bus, schemas.Completion{Job: j.ID, Account: j.Account, State: state, Via: schemas.ViaProbe, Reason: reason, Finished: now})
	case jobLeave, jobProbe:
	}
	return nil
}

// refresh asks the provider about a job.
func (k *jobManager) refresh(ctx context.Context, j schemas.Job) (jobLook, providers.JobStatus) {
	if k.controller == nil {
		return lookBlind, providers.JobStatus{}
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	s, err := k.controller.JobStatus(ctx, j.Ref)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return lookGone, s
	case err != nil:
		k.log.Info("a job could not be looked at: that is tried again", "job", j.ID, "error", err)
		return lookAway, s
	case j.Ref.Instance != "" && s.Instance != "" && s.Instance != j.Ref.Instance:
		return lookGone, s // another start under its name: its own sandbox is gone
	case s.Running:
		return lookRuns, s
	}
	return lookEnded, s
}

// takeOver writes that this worker looks after a job whose worker is gone, and returns the record; the
// zero one when somebody else was first or the job has settled.
func (k *jobManager) takeOver(ctx context.Context, j schemas.Job) (schemas.Job, error) {
	taken, err := k.change(ctx, j, func(have *schemas.Job) bool {
		if have.Worker != j.Worker || have.State.Final() {
			return false
		}
		have.Worker = k.me()
		return true
	})
	if err != nil || taken.State == "" {
		return taken, err
	}
	k.log.Info("job taken over from a worker that is gone", "job", j.ID, "from", j.Worker)
	k.renew(ctx, []schemas.Job{taken})
	return taken, nil
}

// record writes that a launched job runs.
func (k *jobManager) record(ctx context.Context, j schemas.Job, instance string) error {
	now, err := k.change(ctx, j, func(have *schemas.Job) bool {
		if have.Worker != k.me() || have.State != schemas.JobLaunching {
			return false
		}
		have.State, have.Ref.Instance = schemas.JobRunning, instance
		return true
	})
	if err != nil || now.State == "" {
		return err
	}
	return tellStarted(ctx, k.bus, now)
}

// change reads a job's record, lets f change it and writes it, if it is the same still. It returns the
// zero Job when there was nothing to change or somebody else was first: the watch tells what is there.
func (k *jobManager) change(ctx context.Context, j schemas.Job, f func(*schemas.Job) bool) (schemas.Job, error) {
	p, err := k.records.Get(ctx, j.Key())
	if errors.Is(err, schemas.ErrNotFound) || err == nil && (p.Deleted || !f(&p.Value)) {
		return schemas.Job{}, nil
	}
	if err == nil {
		_, err = k.records.Update(ctx, p.Key, p.Value, p.Revision)
	}
	if errors.Is(err, schemas.ErrConflict) {
		return schemas.Job{}, nil
	}
	if err != nil {
		return schemas.Job{}, fmt.Errorf("record of the job: %w", err)
	}
	return p.Value, nil
}

// holdPlaces keeps the places of this worker's jobs until ctx ends. It looks as often as calls do, far more often
// than the places' life asks for: so a limiter that has lost its store knows of them again within seconds.
func (k *jobManager) holdPlaces(ctx context.Context) {
	for sleep(ctx, capRenew) {
		k.mu.Lock()
		var mine []schemas.Job
		for _, j := range k.jobs {
			if j.Worker == k.me() && len(j.Places) > 0 {
				mine = append(mine, j)
			}
		}
		k.mu.Unlock()
		k.renew(ctx, mine)
	}
}

// renew keeps the places of jobs. One that a limiter has forgotten is taken again whatever the cap says:
// the job runs, so the count has to know it. That is how a limiter that lost its store gets it back.
func (k *jobManager) renew(ctx context.Context, jobs []schemas.Job) {
	if k.limiter == nil {
		return
	}
	var leases []limits.Lease
	byHolder := make(map[string]schemas.Job, len(jobs))
	for _, j := range jobs {
		leases = append(leases, leasesOf(j)...)
		byHolder[j.Key()] = j
	}
	if len(leases) == 0 {
		return
	}
	lost, err := k.limiter.Renew(ctx, placeTTL(k.probeEvery), leases...)
	if err != nil {
		k.away(ctx, err)
		return
	}
	again := make(map[string][]schemas.JobPlace, len(lost))
	for _, l := range lost {
		taken, err := k.limiter.Acquire(ctx, l.Key, l.Holder, limits.Regardless, placeTTL(k.probeEvery))
		if err != nil {
			k.away(ctx, err)
			continue
		}
		again[l.Holder] = append(again[l.Holder], schemas.JobPlace{Key: taken.Key, Token: taken.Token})
	}
	for holder, places := range again {
		k.log.Warn("places of a job were lost and are taken again", "job", byHolder[holder].ID)
		_, err := k.change(ctx, byHolder[holder], func(have *schemas.Job) bool {
			for _, p := range places {
				if i := slices.IndexFunc(have.Places, func(h schemas.JobPlace) bool { return h.Key == p.Key }); i >= 0 {
					have.Places[i] = p
				}
			}
			return !have.State.Final()
		})
		if err != nil && ctx.Err() == nil {
			k.log.Warn("new places of a job are not on record", "job", byHolder[holder].ID, "error", err)
		}
	}
}

// answer answers what is asked about the jobs of this worker.
func (k *jobManager) answer(ctx context.Context) {
	for wait := time.Second; ctx.Err() == nil; sleep(ctx, wait) {
		err := k.bus.Answer(ctx, streams.JobControlSubject(k.me()), nil, k.control)
		if err != nil {
			k.log.Warn("questions about jobs are not heard: that is tried again", "error", err)
		}
	}
}

// control does what was asked for with a job of this worker.
func (k *jobManager) control(ctx context.Context, data []byte) ([]byte, error) {
	var cmd schemas.JobCommand
	if err := json.Unmarshal(data, &cmd); err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "job", "the question is not understood", err)
	}
	p, err := lifecycle.FindJob(ctx, k.bus, cmd.Account, cmd.Job)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Value.Worker != k.me():
		return nil, schemas.Errorf(schemas.Unavailable, "job", "the job has moved to another worker: try again")
	case k.controller == nil:
		return nil, schemas.Errorf(schemas.Unsupported, "job", "this sandbox has no live job control")
	}
	reply, err := k.carryOut(ctx, p.Value, cmd)
	if err != nil {
		return nil, err
	}
	return json.Marshal(reply)
}

func (k *jobManager) carryOut(ctx context.Context, j schemas.Job, cmd schemas.JobCommand) (r schemas.JobReply, err error) {
	within := probeWithin
	if cmd.Action == schemas.JobActionStop {
		within = stopWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch cmd.Action {
	case schemas.JobActionStatus:
		s, err := k.controller.JobStatus(ctx, j.Ref)
		return schemas.JobReply{Running: s.Running, Size: max(s.LogBytes, s.End.LogBytes), Ended: err == nil && !s.Running}, err
	case schemas.JobActionLogs:
		limit := cmd.Limit
		if limit <= 0 || limit > schemas.MaxJobLogPage {
			limit = schemas.MaxJobLogPage
		}
		l, err := k.controller.JobLogs(ctx, j.Ref, max(cmd.Offset, -1), limit)
		return schemas.JobReply{Running: !l.Ended, Data: l.Data, Offset: l.Offset, Size: l.Size, Ended: l.Ended}, err
	case schemas.JobActionStop:
		return schemas.JobReply{Ended: true}, k.stop(ctx, j, cmd.Reason)
	case schemas.JobActionStdin:
		n, err := k.controller.WriteJob(ctx, j.Ref, cmd.Data, cmd.EOF)
		return schemas.JobReply{Running: true, Written: n}, err
	case schemas.JobActionSignal:
		if !slices.Contains(schemas.JobSignals(), cmd.Signal) {
			return r, schemas.Invalidf("signal", "%q is unknown", schemas.Quotable(cmd.Signal))
		}
		return schemas.JobReply{Running: true}, k.controller.SignalJob(ctx, j.Ref, cmd.Signal)
	}
	return r, schemas.Invalidf("action", "%q is unknown", schemas.Quotable(string(cmd.Action)))
}

// stop ends a job on request and tells its end at once.
func (k *jobManager) stop(ctx context.Context, j schemas.Job, reason string) error {
	if reason == "" {
		reason = "somebody asked for its end"
	}
	k.mu.Lock()
	if len(k.reasons) < maxReasons {
		k.reasons[j.Key()] = reason
	}
	k.mu.Unlock()
	if err := k.controller.StopJob(ctx, j.Ref, stopGrace); err != nil {
		return err
	}
	look, status := k.refresh(ctx, j)
	if look != lookEnded {
		return nil
	}
	return lifecycle.CompleteOnce(ctx, k.bus, completionOf(j, status.End, schemas.ViaProbe, reason, k.bus.Now()))
}

// stopReason is why a stop was asked for here; empty: none was.
func (k *jobManager) stopReason(key string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reasons[key]
}

// instances tells in which sandbox instances there are background jobs of this provider, as far as their records say.
func (k *jobManager) instances() map[schemas.Ref]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	in := map[schemas.Ref]bool{}
	for _, j := range k.jobs {
		if !j.Ref.Sandbox.IsZero() {
			in[j.Ref.Sandbox] = true
		}
	}
	return in
}
