//go:build linux

package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

// jobGrace is the time between TERM and KILL of a job that names none.
const jobGrace = 5 * time.Second

var (
	_ providers.JobStarter    = (*Provider)(nil)
	_ providers.JobController = (*Provider)(nil)
)

// StartJob starts cmd in the kept box as a job. The job ends with the box, and the box with this process. Its output is stored in files
// below StateDir that no box can reach, at most schemas.MaxJobOutput bytes of it; a slow disk slows the job down. Any provider with the
// same StateDir can return how it ended, for 7 days, unless 1,000 jobs have ended since. All outputs together take at most a quarter of
// the file system and 8 GiB, and those of one account half of that; beyond that, and when the disk is short of room, the oldest are
// removed.
//
// Processes that a job leaves behind are killed after 200 ms; after a stop, or at the end of the lifetime, after the rest of the grace
// period. A grace of 0 means 5 s, a lifetime of 0 schemas.DefaultJobLifetime. No callbacks are needed: the provider observes every end
// itself.
func (p *jobRunner) StartJob(ctx context.Context, id schemas.JobID, cmd providers.Command, o providers.JobOptions) (schemas.JobRef, error) {
	if err := ctx.Err(); err != nil {
		return schemas.JobRef{}, err
	}
	if err := id.Validate(); err != nil {
		return schemas.JobRef{}, err
	}
	if cmd.Sandbox.IsZero() {
		return schemas.JobRef{}, schemas.Invalidf("sandbox", "a job runs in a persistent sandbox: reserve one")
	}
	if err := p.check(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return schemas.JobRef{}, err
	}
	env, err := environment(cmd)
	if err != nil {
		return schemas.JobRef{}, err
	}
	sb, leave, err := p.instances.find(cmd)
	if err != nil {
		return schemas.JobRef{}, err
	}
	defer leave()
	if env, err = sb.shown(env); err != nil {
		return schemas.JobRef{}, err
	}
	j, mine, err := p.enter(id, cmd.Sandbox, sb)
	if err != nil {
		return schemas.JobRef{}, err
	}
	if !mine {
		select {
		case <-j.ready:
			return j.ref, j.err
		case <-ctx.Done():
			return schemas.JobRef{}, ctx.Err()
		}
	}
	defer close(j.ready)
	j.before, j.refused, j.notify = sb.oomKills(), sb.mark(), o.Notify
	if j.err = j.begin(cmd, env); j.err != nil {
		p.leave(j)
		close(j.done)
		p.jobs.running.Done()
		return schemas.JobRef{}, j.err
	}
	return j.ref, nil
}

// enter returns the job of an id in a box, or a new entry (mine is true) that the caller must start. It reads the files of an earlier job
// without the provider's lock, but holds the turn of the job's name: no other start of the same id can run between the read and the new
// entry, so a job that has begun and ended meanwhile is not started twice.
func (p *jobRunner) enter(id schemas.JobID, in schemas.Ref, sb *sandbox) (j *job, mine bool, err error) {
	name := jobName(in, id)
	defer p.jobs.starting.take(name)()
	if j := p.liveJob(name); j != nil {
		return j, false, nil
	}
	if j, err := p.jobs.dirs.load(name); err == nil {
		return j, false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, schemas.Wrap(schemas.Unavailable, "start job", "the files of an earlier job cannot be read", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, errClosed("start job")
	}
	j = &job{
		p: p, sb: sb, name: name, ref: schemas.JobRef{Sandbox: in, ID: id, Instance: schemas.NewID("")},
		ready: make(chan struct{}), done: make(chan struct{}), stops: make(chan time.Duration),
	}
	p.jobs.live[name] = j
	p.jobs.running.Add(1)
	return j, true, nil
}

// liveJob returns the job of a name if this provider runs it, otherwise nil.
func (p *jobRunner) liveJob(name string) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs.live[name]
}

// leave removes a job from the running ones: from now on it is read from its files.
func (p *jobRunner) leave(j *job) {
	p.mu.Lock()
	delete(p.jobs.live, j.name)
	p.mu.Unlock()
}

// begin creates the job's files and starts it.
func (j *job) begin(cmd providers.Command, env map[string]string) error {
	j.p.jobs.outputs.prune()
	j.account = cmd.Spec.Account
	lock, err := j.p.jobs.dirs.begin(j.name, startRecord{ID: j.ref.ID, Account: j.account, Sandbox: j.ref.Sandbox,
		Instance: j.ref.Instance, Began: time.Now().UTC()})
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "start job", "the files of the job cannot be made", err)
	}
	if err := j.launch(cmd, env); err != nil {
		j.p.jobs.outputs.end(j.log)
		return errors.Join(err, lock.Close(), j.p.jobs.dirs.remove(j.name))
	}
	j.lock = lock
	lifetime, grace := cmd.Timeout, cmd.Grace
	if lifetime <= 0 {
		lifetime = schemas.DefaultJobLifetime
	}
	if grace <= 0 {
		grace = jobGrace
	}
	go j.watch(lifetime, grace)
	return nil
}

// launch makes the job's pipes and starts its run.
func (j *job) launch(cmd providers.Command, env map[string]string) error {
	owner := j.p.hostID(cmd.Spec.Account)
	theirIn, in, err := pipe(owner)
	if err != nil {
		return schemas.Wrap(schemas.Exhausted, "start job", "no pipes for the job", err)
	}
	defer unix.Close(theirIn) //nolint:errcheck // the run has its own
	j.input.file = nonblocking(in)
	out, theirOut, err := pipe(owner)
	if err != nil {
		return errors.Join(schemas.Wrap(schemas.Exhausted, "start job", "no pipes for the job", err), j.input.file.Close())
	}
	j.output = nonblocking(out)
	j.input.turn = make(chan struct{}, 1)
	j.log = &jobLog{dir: j.p.jobs.dirs.path(j.name), room: j.p.jobs.outputs}
	j.p.jobs.outputs.begin(j.log, j.account)

	r := &running{p: j.p.boxes, cmd: cmd, sb: j.sb}
	frugal := j.p.quotas.frugal(cmd.Spec.Account, cmd.Mounts)
	if frugal != "" {
		if err := j.log.add(frugalNotice(frugal)); err != nil {
			j.p.log.Warn("output of a job not stored", "job", j.ref.ID, "error", err)
		}
	}
	e := box.Exec{Script: cmd.Script, Dir: r.dir(), Env: r.variables(env), Frugal: frugal != ""}
	j.run, err = j.sb.Begin(e, theirIn, theirOut, theirOut)
	_ = unix.Close(theirOut)
	if err == nil {
		// If the box ended first it is unknown whether the job was started: the watch finds it lost.
		if err = j.run.Started(); errors.Is(err, box.ErrEnded) {
			err = nil
		} else if err != nil {
			j.run.Forget()
		}
	}
	if err != nil {
		return errors.Join(r.refusal(err), j.input.file.Close(), j.output.Close())
	}
	j.feed(cmd.Stdin)
	j.copier.Go(j.copy)
	return nil
}

// findJob returns the job of ref. It waits until a job that is being started has been, or ctx ends.
func (p *jobRunner) findJob(ctx context.Context, ref schemas.JobRef) (*job, error) {
	if err := ref.ID.Validate(); err != nil {
		return nil, err
	}
	name := jobName(ref.Sandbox, ref.ID)
	j := p.liveJob(name)
	if j == nil {
		var err error
		if j, err = p.jobs.dirs.load(name); errors.Is(err, fs.ErrNotExist) {
			return nil, errNoJob()
		} else if err != nil {
			return nil, schemas.Wrap(schemas.Unavailable, "job", "the job's files cannot be read", err)
		}
	}
	select {
	case <-j.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if j.err != nil || ref.Sandbox != j.ref.Sandbox || ref.Instance != "" && ref.Instance != j.ref.Instance {
		return nil, errNoJob()
	}
	return j, nil
}

func errNoJob() error {
	return schemas.OpErrorf(schemas.NotFound, "job", "no such job was started in this sandbox, or it is too long ago")
}

// JobStatus reports whether the job is running, and otherwise how it ended.
func (p *jobRunner) JobStatus(ctx context.Context, ref schemas.JobRef) (providers.JobStatus, error) {
	j, err := p.findJob(ctx, ref)
	if err != nil {
		return providers.JobStatus{}, err
	}
	ended := j.ended()
	printed, _ := j.log.measure()
	st := providers.JobStatus{Running: !ended, Instance: j.ref.Instance, LogBytes: printed}
	if ended {
		st.End, st.LogBytes = j.end, j.end.LogBytes
		st.End.Tail = slices.Clone(j.end.Tail)
	}
	return st, nil
}

// JobLogs returns a page of the job's output, at most schemas.MaxJobLogPage bytes.
func (p *jobRunner) JobLogs(ctx context.Context, ref schemas.JobRef, offset int64, limit int) (providers.JobLogs, error) {
	j, err := p.findJob(ctx, ref)
	if err != nil {
		return providers.JobLogs{}, err
	}
	if limit <= 0 || limit > schemas.MaxJobLogPage {
		limit = schemas.MaxJobLogPage
	}
	l := providers.JobLogs{Ended: j.ended()} // asked first: after an end there is no more
	if l.Data, l.Offset, l.Size, err = j.log.read(offset, limit); err != nil {
		if errors.Is(err, fs.ErrNotExist) && !j.elsewhere {
			return providers.JobLogs{}, errNoJob()
		}
		return providers.JobLogs{}, schemas.Wrap(schemas.Unavailable, "job logs", "the job's log cannot be read", err)
	}
	return l, nil
}

// StopJob stops the job and returns when no process of it is left. If ctx ends earlier it returns, and the job is stopped nevertheless. Of
// several stops the one with the earliest deadline counts.
func (p *jobRunner) StopJob(ctx context.Context, ref schemas.JobRef, grace time.Duration) error {
	j, err := p.findJob(ctx, ref)
	switch {
	case err != nil:
		return err
	case j.elsewhere && !j.ended():
		return errElsewhere()
	case grace <= 0:
		grace = jobGrace
	}
	select {
	case j.stops <- grace:
	case <-j.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func errElsewhere() error {
	return schemas.OpErrorf(schemas.Unavailable, "job", "another process of this host runs the job: ask the worker that manages it")
}

// errJobEnded is the error for a request to a job that has ended. Code: conflict.
func errJobEnded() error {
	return schemas.OpErrorf(schemas.Conflict, "job", "the job has ended")
}

// signalOf returns the signal of a name in [schemas.JobSignals]; false if the name is unknown.
func signalOf(name string) (unix.Signal, bool) {
	if !slices.Contains(schemas.JobSignals(), name) {
		return 0, false
	}
	s := unix.SignalNum("SIG" + name)
	return s, s != 0
}

// SignalJob sends a signal to the job's process group.
func (p *jobRunner) SignalJob(ctx context.Context, ref schemas.JobRef, signal string) error {
	s, ok := signalOf(signal)
	if !ok {
		return schemas.Invalidf("signal", "%q is unknown", schemas.Quotable(signal))
	}
	j, err := p.findJob(ctx, ref)
	switch {
	case err != nil:
		return err
	case j.ended():
		return errJobEnded()
	case j.elsewhere:
		return errElsewhere()
	case j.exited() || j.run.Signal(s) != nil: // or its box has
		return errJobEnded()
	}
	return nil
}

// WriteJob writes to the job's standard input and returns the number of bytes written. Concurrent writes follow one another.
func (p *jobRunner) WriteJob(ctx context.Context, ref schemas.JobRef, data []byte, eof bool) (int, error) {
	j, err := p.findJob(ctx, ref)
	switch {
	case err != nil:
		return 0, err
	case j.ended():
		return 0, errJobEnded()
	case j.elsewhere:
		return 0, errElsewhere()
	}
	return j.input.write(ctx, data, eof)
}

// jobInput is the standard input of a job.
type jobInput struct {
	file *os.File
	turn chan struct{} // held by who writes
}

// write writes data after all earlier writes have ended, and closes the input if eof is set.
func (i *jobInput) write(ctx context.Context, data []byte, eof bool) (n int, err error) {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, tooSlow(ctx)
	}
	defer func() { <-i.turn }()
	if err := i.file.SetWriteDeadline(time.Time{}); err != nil {
		return 0, errNoInput()
	}
	stop := context.AfterFunc(ctx, func() { _ = i.file.SetWriteDeadline(time.Now()) })
	if len(data) > 0 {
		n, err = i.file.Write(data)
	}
	if !stop() && err == nil && ctx.Err() != nil && n < len(data) {
		err = os.ErrDeadlineExceeded
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, tooSlow(ctx)
	case err != nil:
		return n, errNoInput()
	case eof: // a job that took all may have ended by now, and its input with it
		if err := i.file.Close(); err != nil && (len(data) == 0 || !errors.Is(err, os.ErrClosed)) {
			return n, errNoInput()
		}
	}
	return n, nil
}

func errNoInput() error {
	return schemas.OpErrorf(schemas.Conflict, "write job", "the job has ended, or its input is closed")
}

// tooSlow returns the error for a write that ctx ended.
func tooSlow(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return schemas.OpErrorf(schemas.Timeout, "write job", "the job reads too slowly: what is missing was not written")
}
