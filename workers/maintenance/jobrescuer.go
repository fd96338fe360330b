package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// DefaultRescueEvery is the default time between two rounds of a [JobRescuer].
const DefaultRescueEvery = 15 * time.Second

// JobRescuer ends jobs that no other process will end: jobs whose worker is gone while no other worker serves their provider, and jobs
// whose call ended without starting them and without reporting that. It also closes groups that wait for calls which were never started.
// It needs no provider.
//
// Of all JobRescuers, one does the work at a time and keeps the jobs that have not settled in memory; another takes over within
// [streams.DutyTakenOver]. Two at once do no harm: the first completion of a job counts, and a group is written on the condition that it
// has not changed since it was read.
type JobRescuer struct {
	Bus *streams.Bus
	// Endpoints returns the webhook endpoints. Nil: there are none.
	Endpoints Endpoints
	// Every is the time between two rounds, at least the TTL of a lease. 0: DefaultRescueEvery.
	Every time.Duration
	Log   *slog.Logger // nil: silent
}

// orphanFacts are the facts about an open job on which its verdict depends.
type orphanFacts struct {
	state   schemas.JobState
	tied    bool          // its sandbox ends with its worker
	absent  time.Duration // how long its worker's lease has been missing; 0: it is not, or that is unknown
	overdue time.Duration // time since its deadline; negative: before it
	every   time.Duration // time between two rounds

	age      time.Duration // time since its call was accepted
	unlooked time.Duration // time since the last search for its call; age if there was none
	call     callFate      // result of the search for its call
}

// callFate is the state of the call of a job that was not launched.
type callFate string

const (
	callUnlooked callFate = ""
	callOpen     callFate = "open"
	callResult   callFate = "result"
	callUnknown  callFate = "unknown"
)

// orphanVerdict is what to do with an open job.
type orphanVerdict string

const (
	orphanLeave     orphanVerdict = "leave"       // nothing: a worker manages it
	orphanLook      orphanVerdict = "look"        // search for its call, then judge again
	orphanUnstarted orphanVerdict = "not started" // its call ended without starting it
	orphanForgotten orphanVerdict = "forgotten"   // its call has expired from the stream
	orphanLost      orphanVerdict = "lost"        // its sandbox ended with its worker
	orphanExpired   orphanVerdict = "expired"     // its deadline has passed, and no worker is alive to end it
)

// forgottenAfter is the age from which on the call of a job may have expired from the stream: calls are stored for a day.
const forgottenAfter = 24 * time.Hour

// judgeOrphan decides what to do with an open job. A worker counts as gone if its lease has been missing for two rounds. A job that
// another worker can take over is left to such a worker until its deadline has passed.
func judgeOrphan(f orphanFacts) orphanVerdict {
	gone := f.absent > 0 && f.absent >= 2*f.every
	switch {
	case f.state.Final():
		return orphanLeave
	case f.state == schemas.JobWaiting:
		return judgeWaiting(f)
	case gone && f.tied:
		return orphanLost
	case gone && f.overdue >= 2*f.every:
		return orphanExpired
	}
	return orphanLeave
}

// judgeWaiting judges a job that was not launched. A search for its call reads the call's conversation, so the time between searches grows
// with the job's age.
func judgeWaiting(f orphanFacts) orphanVerdict {
	const first, part = time.Minute, 4
	switch {
	case f.call == callUnlooked && f.unlooked >= max(first, f.age/part):
		return orphanLook
	case f.call == callResult:
		return orphanUnstarted
	case f.call == callUnknown && f.age > forgottenAfter:
		return orphanForgotten
	}
	return orphanLeave
}

// The reasons in completions that a JobRescuer writes.
const (
	reasonLost      = "the worker that kept its sandbox ended"
	reasonExpired   = "nobody was there to stop it"
	reasonForgotten = "its call is no longer known"
)

// rescue is the state of one Run of a JobRescuer.
type rescue struct {
	*followUps

	tenure  *streams.Tenure // nil in tests, and counts as held
	every   time.Duration
	watched *lifecycle.JobWatch
	// covered is when Cover was last called, by the monotonic clock: the stream's clock may jump at a reconnect
	covered time.Time

	leases *leases.Bucket
	absent map[string]time.Time // workers whose lease is missing, and since when
	looked map[string]time.Time // when the call of a waiting job was last searched for

	jobs   *streams.Mirror[schemas.Job, openJob]                              // not settled
	groups *streams.Mirror[schemas.Group, streams.BucketEntry[schemas.Group]] // not done

	ends, looks rounds[openJob]
	overdue     rounds[streams.BucketEntry[schemas.Group]]
	// fate is lookForCall, except in tests.
	fate func(context.Context, openJob) (fate callFate, reason string, err error)

	logs sometimes.Keyed // rate-limits logs about records that cannot be handled
}

// openJob is what a JobRescuer keeps in memory of a job that has not settled: some 300 bytes instead of a record of up to 20 KB. Before it
// acts on a job, it reads the record again.
type openJob struct {
	account           schemas.AccountID
	id                schemas.JobID
	call              schemas.CallID
	group             string // empty: none
	state             schemas.JobState
	worker            string
	tied              bool // its sandbox ends with its worker
	created, deadline time.Time
}

func openJobOf(j schemas.Job) openJob {
	o := openJob{account: j.Account, id: j.ID, call: j.Call, state: j.State, worker: j.Worker, tied: j.EndsWithWorker, created: j.Created,
		deadline: j.Deadline}
	if j.Group != nil {
		o.group = j.Group.ID
	}
	return o
}

func (j openJob) key() string { return schemas.JobKey(j.account, j.id) }

// repeatedAfter is the time after which a log line about a job, a group or an approval that still cannot be handled is repeated.
const repeatedAfter = 10 * time.Minute

// Run rescues jobs until ctx is done, and then returns nil.
func (s *JobRescuer) Run(ctx context.Context) error {
	return byOne(ctx, s.Bus, "jobs", s.Log, s.serve)
}

// serve rescues jobs until ctx is done.
func (s *JobRescuer) serve(ctx context.Context, tenure *streams.Tenure) {
	w := s.rescue(tenure)
	var mirrors sync.WaitGroup
	defer mirrors.Wait()
	mirrors.Go(func() { _ = w.jobs.Run(ctx) }) // both end only with ctx
	mirrors.Go(func() { _ = w.groups.Run(ctx) })
	w.loop(ctx)
}

// loop runs round after round until ctx is done.
func (w *rescue) loop(ctx context.Context) {
	for pause := w.every; wait.Sleep(ctx, pause); {
		pause = w.every
		if w.sweepJobs(ctx) {
			pause = min(nextRound, w.every)
		}
		if w.sweepGroups(ctx) {
			pause = min(nextRound, w.every)
		}
		w.cover(ctx)
	}
}

// rescue returns the state for one Run.
func (s *JobRescuer) rescue(tenure *streams.Tenure) *rescue {
	w := &rescue{
		followUps: newFollowUps(s.Bus, s.Endpoints, s.Log), tenure: tenure, every: max(cmp.Or(s.Every, DefaultRescueEvery), leases.TTL),
		watched: lifecycle.WatchJobs(s.Bus, ""), covered: time.Now(),
		leases: leases.Open(s.Bus), absent: map[string]time.Time{}, looked: map[string]time.Time{},
		logs: sometimes.Keyed{Every: repeatedAfter},
	}
	jobs := rounds[openJob]{account: func(j openJob) schemas.AccountID { return j.account }, key: openJob.key, first: olderJob}
	w.ends, w.looks, w.fate = jobs, jobs, w.lookForCall
	w.overdue = rounds[streams.BucketEntry[schemas.Group]]{
		account: func(p streams.BucketEntry[schemas.Group]) schemas.AccountID { return p.Value.Account },
		key:     func(p streams.BucketEntry[schemas.Group]) string { return p.Key }, first: olderGroup,
	}
	w.mirror()
	return w
}

// cover reduces, every two minutes, what the next watch of jobs must read, see [lifecycle.JobWatch.Cover].
func (w *rescue) cover(ctx context.Context) {
	const every = 2 * time.Minute
	if time.Since(w.covered) < every {
		return
	}
	w.covered = time.Now()
	if err := w.watched.Cover(ctx); err != nil && ctx.Err() == nil && w.logs.Due("mark") {
		w.log.Warn("mark of open jobs not written, retrying", "error", err)
	}
}

// mirror creates the mirrors of open jobs and groups.
func (w *rescue) mirror() {
	w.jobs = &streams.Mirror[schemas.Job, openJob]{
		Source: w.watched,
		Keep: func(p streams.BucketEntry[schemas.Job]) (openJob, bool) {
			return openJobOf(p.Value), !p.Value.State.Final()
		},
		Unreadable: func(p streams.BucketEntry[schemas.Job], err error) {
			w.log.Warn("job record not readable", "job", p.Key, "error", err)
		},
	}
	w.groups = &streams.Mirror[schemas.Group, streams.BucketEntry[schemas.Group]]{
		Source: lifecycle.OpenGroups(w.bus),
		Keep: func(p streams.BucketEntry[schemas.Group]) (streams.BucketEntry[schemas.Group], bool) {
			return p, !p.Value.Done
		},
		Unreadable: func(p streams.BucketEntry[schemas.Group], err error) {
			w.log.Warn("group record not readable", "group", p.Key, "error", err)
		},
	}
}

// sweepJobs judges every open job once, and acts on the verdicts for one round: first it ends jobs, then it searches for the calls of
// waiting jobs, which may be very many. It reports whether some are left.
func (w *rescue) sweepJobs(ctx context.Context) (left bool) {
	open := slices.Collect(maps.Values(w.jobs.All()))
	if err := w.lookForWorkers(ctx, open); err != nil {
		if ctx.Err() == nil && w.logs.Due("jobs") {
			w.log.Warn("open jobs not checked, retrying", "error", err)
		}
		return false
	}
	kept := make(map[string]time.Time, len(w.looked))
	for _, j := range open {
		if at, ok := w.looked[j.key()]; ok {
			kept[j.key()] = at
		}
	}
	w.looked = kept
	var ends, looks []openJob
	now := w.bus.Now()
	for _, j := range open {
		switch judgeOrphan(w.facts(j, now)) {
		case orphanLeave:
		case orphanLook:
			looks = append(looks, j)
		case orphanUnstarted, orphanForgotten, orphanLost, orphanExpired:
			ends = append(ends, j)
		}
	}
	handle := func(j openJob) error {
		err := w.sweepJob(ctx, j)
		if err != nil && ctx.Err() == nil && w.logs.Due("job "+j.key()) {
			w.log.Warn("job not checked, retrying", "job", j.id, "error", err)
		}
		return err
	}
	left = w.ends.run(ctx, ends, handle)
	return w.looks.run(ctx, looks, handle) || left
}

// olderJob orders jobs by the time at which their calls were accepted.
func olderJob(a, b openJob) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key(), b.key()))
}

// sweepJob ends a job if no other process will.
func (w *rescue) sweepJob(ctx context.Context, j openJob) error {
	f := w.facts(j, w.bus.Now())
	v := judgeOrphan(f)
	c := schemas.Completion{Job: j.id, Account: j.account, ReportedBy: schemas.ReportedByProbe}
	if v == orphanLook {
		fate, reason, err := w.fate(ctx, j)
		if err != nil {
			return err
		}
		w.looked[j.key()] = time.Now()
		f.call, c.Reason = fate, reason
		v = judgeOrphan(f)
	}
	switch v {
	case orphanLeave, orphanLook:
		return nil
	case orphanUnstarted:
		c.State, c.ReportedBy = schemas.JobUnstarted, schemas.ReportedByCall
	case orphanForgotten:
		c.State, c.Reason = schemas.JobLost, reasonForgotten
	case orphanLost:
		c.State, c.Reason = schemas.JobLost, reasonLost
	case orphanExpired:
		c.State, c.Reason = schemas.JobExpired, reasonExpired
	}
	record, same, err := w.unchanged(ctx, j)
	if err != nil || !same {
		return err
	}
	if err := w.tenure.Held(); err != nil { // this process was suspended, and its reads may be outdated
		return err
	}
	c.Finished = w.bus.Now()
	w.log.Info("completing a job whose worker is gone", "job", j.id, "state", c.State, "reason", c.Reason)
	return lifecycle.EndJob(ctx, w.bus, record, c, false)
}

func (w *rescue) facts(j openJob, now time.Time) orphanFacts {
	f := orphanFacts{state: j.state, tied: j.tied, overdue: now.Sub(j.deadline), every: w.every, age: now.Sub(j.created)}
	if since, ok := w.absent[j.worker]; ok {
		f.absent = time.Since(since)
	}
	f.unlooked = f.age
	if at, ok := w.looked[j.key()]; ok {
		f.unlooked = time.Since(at)
	}
	return f
}

// unchanged returns a job's record, and whether its state and worker are still those that were judged: the mirror may lag, and another
// worker may have taken the job over.
func (w *rescue) unchanged(ctx context.Context, j openJob) (schemas.Job, bool, error) {
	p, err := lifecycle.FindJob(ctx, w.bus, j.account, j.id)
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Job{}, false, nil
	}
	if err != nil {
		return schemas.Job{}, false, fmt.Errorf("look up the job: %w", err)
	}
	return p.Value, p.Value.State == j.state && p.Value.Worker == j.worker, nil
}

// lookForCall returns the state of the call of a waiting job, and the text of its result if it has ended.
func (w *rescue) lookForCall(ctx context.Context, j openJob) (fate callFate, reason string, err error) {
	call, err := w.bus.Calls().Find(ctx, j.account, j.call)
	switch {
	case schemas.CodeOf(err) == schemas.NotFound:
		return callUnknown, "", nil
	case err != nil:
		return callUnlooked, "", fmt.Errorf("find the call: %w", err)
	case call.Job != j.id: // the id was reused by another call
		return callUnknown, "", nil
	}
	state, err := w.bus.States().Read(ctx, call)
	switch {
	case err != nil:
		return callUnlooked, "", fmt.Errorf("look for the call on its conversation: %w", err)
	case state.Result == nil: // no result, or it has expired; then the call expires soon too
		return callOpen, "", nil
	}
	return callResult, state.Result.Text, nil
}

// lookForWorkers records in absent which of the workers that manage jobs have no lease, and since when. Before it returns, it reads the
// missing leases again for [leases.Settle], because a living worker may need as long to renew its lease after an outage of the NATS
// server. A lease that is found by then does not count as missing.
func (w *rescue) lookForWorkers(ctx context.Context, open []openJob) error {
	missing, living := map[string]time.Time{}, map[string]bool{}
	for _, j := range open {
		if j.state == schemas.JobWaiting {
			continue
		}
		if _, known := missing[j.worker]; known || living[j.worker] {
			continue
		}
		gone, err := w.without(ctx, j.worker)
		switch since, before := w.absent[j.worker]; {
		case err != nil:
			clear(w.absent)
			return err
		case gone && before:
			missing[j.worker] = since
		case gone:
			missing[j.worker] = time.Now()
		default:
			living[j.worker] = true
		}
	}
	w.absent = missing
	if len(missing) == 0 {
		return nil
	}
	for end := time.Now().Add(leases.Settle); time.Now().Before(end) && wait.Sleep(ctx, leases.Renew); {
		for name := range missing {
			gone, err := w.without(ctx, name)
			if err != nil {
				clear(w.absent)
				return err
			}
			if !gone {
				delete(missing, name)
			}
		}
	}
	return ctx.Err()
}

// without reports whether a worker's lease is missing.
func (w *rescue) without(ctx context.Context, worker string) (bool, error) {
	if worker == "" {
		return true, nil
	}
	living, err := leases.Held(ctx, w.leases, worker)
	return !living, err
}

// sweepGroups closes groups whose time is over, with the members that have settled. It reports whether some are left.
func (w *rescue) sweepGroups(ctx context.Context) (left bool) {
	now := w.bus.Now()
	latest := map[string]time.Time{} // by group: the latest deadline of members that may still settle
	for _, j := range w.jobs.All() {
		if j.group == "" {
			continue
		}
		key := lifecycle.GroupKey(j.account, j.group)
		if j.deadline.After(latest[key]) {
			latest[key] = j.deadline
		}
	}
	var due []streams.BucketEntry[schemas.Group]
	for key, p := range w.groups.All() {
		if groupDue(p.Value, latest[key], now, w.every) {
			due = append(due, p)
		}
	}
	return w.overdue.run(ctx, due, func(p streams.BucketEntry[schemas.Group]) error {
		err := w.closeOverdue(ctx, p)
		if err != nil && ctx.Err() == nil && w.logs.Due("group "+p.Key) {
			w.log.Warn("overdue group not continued, retrying", "group", p.Key, "error", err)
		}
		return err
	})
}

// olderGroup orders groups by their deadlines.
func olderGroup(a, b streams.BucketEntry[schemas.Group]) int {
	return cmp.Or(a.Value.Deadline.Compare(b.Value.Deadline), cmp.Compare(a.Key, b.Key))
}

// groupDue reports whether a group no longer waits: its own deadline has passed, and the latest deadline of members that may still settle
// has passed by several rounds, in which they could have settled.
func groupDue(g schemas.Group, latest, now time.Time, every time.Duration) bool {
	const looks = 8
	return !g.Done && now.After(g.Deadline) && now.After(latest.Add(looks*every))
}

// closeOverdue creates the follow-up of an overdue group from the members that have settled.
func (w *rescue) closeOverdue(ctx context.Context, p streams.BucketEntry[schemas.Group]) error {
	g := p.Value
	if err := w.tenure.Held(); err != nil {
		return err
	}
	if !sealed(g) {
		var ours bool
		var err error
		if g, ours, err = w.seal(ctx, p); err != nil || !ours {
			return err
		}
		w.log.Info("group continues without some of its calls", "group", g.ID, "missing", g.Missing)
	}
	receivers, err := w.receivers(ctx, g.Account)
	if err != nil {
		return err
	}
	return w.finish(ctx, g, w.bus.AbsentAt(g.Created), receivers)
}
