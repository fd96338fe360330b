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

// DefaultRescueEvery is how often a [JobRescuer] looks.
const DefaultRescueEvery = 15 * time.Second

// JobRescuer settles the jobs that no other process will: those whose worker is gone while no other serves their provider, and those whose
// call ended without starting them and without a word. It also closes groups that wait for calls which never came. It needs no provider and
// knows none.
//
// Of all that run, one does the work at a time and keeps the jobs that have not settled in memory; another takes over within
// [streams.DutyTakenOver]. Two at once do no harm: the first completion of a job counts, and a group is changed on the condition
// that it is still as it was read.
type JobRescuer struct {
	Bus *streams.Bus
	// Endpoints finds the webhook endpoints. Nil: there are none.
	Endpoints Endpoints
	// Every is the time between looks. 0: DefaultRescueEvery. At least as long as a lease.
	Every time.Duration
	Log   *slog.Logger // nil: silent
}

// orphanFacts is all that decides what becomes of an open job.
type orphanFacts struct {
	state   schemas.JobState
	tied    bool          // its sandbox ended with its worker
	absent  time.Duration // for how long its worker has been seen to have no lease; 0: it has one, or that is unknown
	overdue time.Duration // since its deadline; < 0: that is to come
	every   time.Duration // between two looks

	age      time.Duration // since its call was accepted
	unlooked time.Duration // since its call was looked for; all of age when never
	call     callFate      // what the search for its call found
}

// callFate is the state of a waiting job's call.
type callFate string

const (
	callUnlooked callFate = ""
	callOpen     callFate = "open"
	callResult   callFate = "result"
	callUnknown  callFate = "unknown"
)

// orphanVerdict is what becomes of an open job.
type orphanVerdict string

const (
	orphanLeave     orphanVerdict = "leave"       // a worker manages it
	orphanLook      orphanVerdict = "look"        // look for its call, then judge again
	orphanUnstarted orphanVerdict = "not started" // its call has ended without it
	orphanForgotten orphanVerdict = "forgotten"   // its call is gone from the log
	orphanLost      orphanVerdict = "lost"        // its sandbox is gone
	orphanExpired   orphanVerdict = "expired"     // its lifetime is over, and no worker is there to end it
)

// forgottenAfter is when the call of a job can be gone from the log: calls are kept for a day.
const forgottenAfter = 24 * time.Hour

// judgeOrphan is the whole rule of the job rescuer. A worker is taken for gone after two looks without a
// lease; a job that another worker can take over is left to such until its time is over.
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

// judgeWaiting judges a job that was not launched. A search for its call reads its conversation, so searches come further and further
// apart.
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

// The reasons in completions that a job rescuer writes.
const (
	reasonLost      = "the worker that kept its sandbox ended"
	reasonExpired   = "nobody was there to stop it"
	reasonForgotten = "its call is no longer known"
)

// rescue is one Run of a JobRescuer.
type rescue struct {
	*followUps

	tenure  *streams.Tenure // nil: held
	every   time.Duration
	watched *lifecycle.JobWatch
	// By this process's clock that cannot be set: the log's may jump at a reconnect.
	covered time.Time // when the watch was last covered

	leases *leases.Bucket
	absent map[string]time.Time // workers without a lease, since when
	looked map[string]time.Time // when the calls of waiting jobs were looked for

	jobs   *streams.Mirror[schemas.Job, openJob]                              // that have not settled
	groups *streams.Mirror[schemas.Group, streams.BucketEntry[schemas.Group]] // that are not done

	ends, looks rounds[openJob]
	overdue     rounds[streams.BucketEntry[schemas.Group]]
	// fate is lookForCall, but in tests.
	fate func(context.Context, openJob) (fate callFate, reason string, err error)

	logs sometimes.Keyed // about what cannot be looked at
}

// openJob is what a rescuer keeps of a job that has not settled: some 300 bytes, where a record may have 20 KB. What is done about the job
// is done by its record, which is read again then.
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

// repeatedAfter is when a line about a job, a group or an approval that still cannot be handled is logged again.
const repeatedAfter = 10 * time.Minute

// Run rescues jobs until ctx ends, and returns nil then.
func (s *JobRescuer) Run(ctx context.Context) error {
	return byOne(ctx, s.Bus, "jobs", s.Log, s.serve)
}

// serve rescues jobs until ctx ends.
func (s *JobRescuer) serve(ctx context.Context, tenure *streams.Tenure) {
	w := s.rescue(tenure)
	var mirrors sync.WaitGroup
	defer mirrors.Wait()
	mirrors.Go(func() { _ = w.jobs.Run(ctx) }) // both end with ctx alone
	mirrors.Go(func() { _ = w.groups.Run(ctx) })
	w.loop(ctx)
}

// loop looks round by round until ctx ends.
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

// rescue makes what rescues jobs.
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

// cover keeps what the next watch of jobs must read small.
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

// mirror makes the mirrors of open jobs and groups.
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

// sweepJobs judges every open job once, and does what is to be done about them for a round: first about those that are over, then it
// looks for the calls of those that wait, of which there may be very many. It reports whether some are left.
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

// olderJob orders jobs by when their calls were accepted.
func olderJob(a, b openJob) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key(), b.key()))
}

// sweepJob settles a job if no other process will.
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
	if err := w.tenure.Held(); err != nil { // it was suspended: what it read may be outdated
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

// unchanged returns a job's record, and whether it still says what was judged: what a job rescuer mirrors may be
// behind, and another worker may have taken the job over.
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

// lookForCall finds the state of the call of a waiting job, and why it has ended if it has.
func (w *rescue) lookForCall(ctx context.Context, j openJob) (fate callFate, reason string, err error) {
	call, err := w.bus.Calls().Find(ctx, j.account, j.call)
	switch {
	case schemas.CodeOf(err) == schemas.NotFound:
		return callUnknown, "", nil
	case err != nil:
		return callUnlooked, "", fmt.Errorf("find the call: %w", err)
	case call.Job != j.id: // its id was free again: this is another call
		return callUnknown, "", nil
	}
	state, err := w.bus.States().Read(ctx, call)
	switch {
	case err != nil:
		return callUnlooked, "", fmt.Errorf("look for the call on its conversation: %w", err)
	case state.Result == nil: // also where it is forgotten whether there was one: until the log forgets the call too
		return callOpen, "", nil
	}
	return callResult, state.Result.Text, nil
}

// lookForWorkers notes which of the workers that manage jobs have no lease. A worker that had one at the last check is only doubted; the
// others are checked again for as long as it takes a living worker to show its lease after an outage of the log.
func (w *rescue) lookForWorkers(ctx context.Context, open []openJob) error {
	missing, doubted := map[string]time.Time{}, map[string]bool{}
	for _, j := range open {
		if j.state == schemas.JobWaiting {
			continue
		}
		if _, known := missing[j.worker]; known || doubted[j.worker] {
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
			doubted[j.worker] = true
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

// without reports whether a worker has no lease.
func (w *rescue) without(ctx context.Context, worker string) (bool, error) {
	if worker == "" {
		return true, nil
	}
	living, err := leases.Held(ctx, w.leases, worker)
	return !living, err
}

// sweepGroups closes groups whose time is over with the members that have settled. It reports whether some are left.
func (w *rescue) sweepGroups(ctx context.Context) (left bool) {
	now := w.bus.Now()
	latest := map[string]time.Time{} // deadlines of members that may still settle, by group
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

// olderGroup orders groups by the end of their time.
func olderGroup(a, b streams.BucketEntry[schemas.Group]) int {
	return cmp.Or(a.Value.Deadline.Compare(b.Value.Deadline), cmp.Compare(a.Key, b.Key))
}

// groupDue reports whether a group is not waited for any more: its own time is over, and so is that of
// the last of its members that may still settle, which has some looks to do so.
func groupDue(g schemas.Group, latest, now time.Time, every time.Duration) bool {
	const looks = 8
	return !g.Done && now.After(g.Deadline) && now.After(latest.Add(looks*every))
}

// closeOverdue makes the follow-up of a group with what has settled.
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
