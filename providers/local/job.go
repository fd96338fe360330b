//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// leftMoment is how long what a job leaves behind may take to end by itself: what it wrote into
	// a pipe is still being read at its end.
	leftMoment = 200 * time.Millisecond
	// notifyPatience is how long Close waits for those who are notified of the ends of jobs.
	notifyPatience = 10 * time.Second
)

// jobs are the background jobs that a provider runs.
type jobs struct {
	dirs     *jobDirs
	outputs  *outputs
	live     map[string]*job // under the provider's lock
	starting turns           // of names of jobs that are looked up to be started
	running  sync.WaitGroup  // until their ends are reported
}

// job is a background job: one that this provider runs, or one loaded from its files.
type job struct {
	p       *jobRunner
	name    string
	account schemas.AccountID
	ref     schemas.JobRef
	log     *jobLog
	ready   chan struct{} // closed when it was started, or was not
	err     error         // why it was not
	done    chan struct{} // closed when it has ended: end is set, and nothing of it is left
	end     providers.JobEnd
	// elsewhere says that another process ran it when it was looked at.
	elsewhere bool

	sb      *sandbox
	before  int    // what the kernel had killed in the box for want of memory
	refused uint64 // what the relay had refused
	run     *box.Run
	input   jobInput
	output  *os.File
	copier  sync.WaitGroup
	feeder  sync.WaitGroup
	stops   chan time.Duration // graces
	notify  func(providers.JobEnd)
	lock    *os.File
}

// path returns the directory of a job.
func (d *jobDirs) path(name string) string { return filepath.Join(d.dir, name) }

// ended reports whether the job has ended.
func (j *job) ended() bool {
	if j.elsewhere {
		return false
	}
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// exited reports whether the job's first process, or its box, has ended.
func (j *job) exited() bool {
	select {
	case <-j.run.Ended():
		return true
	default:
		return false
	}
}

// feed writes the input that came with the command, before any later input. It does not wait.
func (j *job) feed(data []byte) {
	if len(data) == 0 {
		return
	}
	j.input.turn <- struct{}{} // it is free: no caller knows the job yet
	j.feeder.Go(func() {
		_, _ = j.input.file.Write(data) // a job need not read all of it
		<-j.input.turn
	})
}

// copy copies the job's output into its log until the end of the pipe. When it is stopped by a read deadline, it first copies the bytes
// that are already in the pipe.
func (j *job) copy() {
	buf, _ := j.p.buffers.Get().(*[schemas.MaxChunk]byte)
	defer j.p.buffers.Put(buf)
	complained := false
	take := func(data []byte) {
		if err := j.log.add(data); err != nil && !complained && !errors.Is(err, errNoRoom) {
			complained = true
			j.p.log.Warn("output of a job not stored", "job", j.ref.ID, "error", err)
		}
	}
	copyPipe(j.output, buf[:], take)
	take(j.sb.notices(j.refused))
	if err := j.log.close(); err != nil {
		j.p.log.Warn("job log not closed", "job", j.ref.ID, "error", err)
	}
}

// watch waits for the job to end, stops it at the end of its lifetime, and reports the end.
func (j *job) watch(lifetime, grace time.Duration) {
	defer j.p.jobs.running.Done()
	<-j.ready
	end := j.await(lifetime, grace)
	_ = j.output.SetReadDeadline(time.Now()) // nothing of it is left: what is in the pipe is all
	j.copier.Wait()
	_ = j.output.Close()
	_ = j.input.file.Close() // writers get a conflict
	j.feeder.Wait()
	j.run.Forget()

	end.Finished = time.Now().UTC()
	end.LogBytes, end.LogTruncated = j.log.measure()
	var err error
	if end.Tail, _, _, err = j.log.read(-1, schemas.MaxJobLogs); err != nil {
		j.p.log.Warn("log of a job not readable", "job", j.ref.ID, "error", err)
	}
	j.end = end
	j.p.jobs.outputs.end(j.log) // from here on it counts as the output of an ended job
	err = j.p.jobs.dirs.finish(j.name, j.account, end, j.log.kept())
	j.p.jobs.outputs.prune()
	if err != nil {
		j.p.log.Error("end of a job not recorded, it is lost if this worker ends now", "job", j.ref.ID, "error", err)
	}
	close(j.done)
	if err == nil {
		j.p.leave(j)
		_ = j.lock.Close()
	}
	if j.notify != nil {
		j.notify(end)
	}
}

// await waits until no process of the job is left, and returns how the job ended.
func (j *job) await(lifetime, grace time.Duration) providers.JobEnd {
	var end providers.JobEnd
	clock := time.NewTimer(lifetime)
	defer clock.Stop()
	moment := leftMoment
	select {
	case <-j.run.Ended():
	case grace = <-j.stops:
		end.Stopped = !j.exited()
	case <-clock.C:
		end.TimedOut = !j.exited()
	}
	if end.Stopped || end.TimedOut {
		moment = j.terminate(grace)
	}
	end.ChildrenLeft = j.sweep(moment)

	exit, ok := j.run.Exit()
	oom := j.sb.oomKills() > j.before
	end.ExitCode = exit.Status
	end.OOMKilled = exit.OOM || oom && (!ok || exit.Status == 128+int(unix.SIGKILL))
	if !ok {
		end.ExitCode = 128 + int(unix.SIGKILL)
		if end.Lost = !end.Stopped && !end.TimedOut; end.Lost {
			end.Reason, end.Replaced = j.sb.reason(end.OOMKilled), j.sb.replaced.Load()
		}
	}
	return end
}

// terminate sends the job SIGTERM and waits for its first process to exit, at most for grace. It returns the rest of grace.
func (j *job) terminate(grace time.Duration) time.Duration {
	deadline := time.Now().Add(grace)
	if j.run.Signal(unix.SIGTERM) != nil || j.run.Signal(unix.SIGCONT) != nil { // a stopped process does not get the first
		<-j.run.Ended()
		return 0
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	for {
		select {
		case <-j.run.Ended():
			return time.Until(deadline)
		case <-patience.C:
			return 0
		case grace := <-j.stops:
			if sooner := time.Now().Add(grace); sooner.Before(deadline) {
				deadline = sooner
				patience.Reset(grace)
			}
		}
	}
}

// sweep kills the job's remaining processes after moment, and returns how many there were. If the box's process 1 does not answer in time,
// it ends the box.
func (j *job) sweep(moment time.Duration) int {
	if j.exited() {
		exit, ok := j.run.Exit()
		if !ok {
			<-j.sb.Gone()
			return 0
		}
		if !exit.Left {
			return 0
		}
	}
	if j.run.BeginKill(moment) == nil && j.killed(moment+killPatience) {
		return j.run.Left()
	}
	j.sb.because("its processes could not be killed")
	j.sb.Kill()
	<-j.sb.Gone()
	<-j.run.Ended()
	return j.run.Left()
}

// killed waits at most most until all processes of the job are killed and its exit is known, and reports whether they are.
func (j *job) killed(most time.Duration) bool {
	deadline, patience := time.Now().Add(most), time.NewTimer(most)
	defer patience.Stop()
	all, end := j.run.Killed(), j.run.Ended()
	for all != nil || end != nil {
		select {
		case <-all:
			all = nil
		case <-end:
			end = nil
		case grace := <-j.stops:
			if sooner := time.Now().Add(grace + killPatience); sooner.Before(deadline) && j.run.BeginKill(grace) == nil {
				deadline = sooner
				patience.Reset(grace + killPatience)
			}
		case <-patience.C:
			return false
		}
	}
	return true
}

// reason returns why the box has ended, for the job's end.
func (s *sandbox) reason(oom bool) string {
	if oom {
		return "its sandbox was ended for want of memory"
	}
	if why := s.why.Load(); why != nil {
		return *why
	}
	return "its sandbox has ended"
}

// because records why the box is about to be ended. Only the first reason counts.
func (s *sandbox) because(why string) { s.why.CompareAndSwap(nil, &why) }

// settle waits until the ends of all jobs of an ended box are recorded, or ctx ends.
func (p *jobRunner) settle(ctx context.Context, sb *sandbox) {
	p.mu.Lock()
	var of []*job
	for _, j := range p.jobs.live {
		if j.sb == sb {
			of = append(of, j)
		}
	}
	p.mu.Unlock()
	for _, j := range of {
		select {
		case <-j.done:
		case <-ctx.Done():
			return
		}
	}
}

// closeJobs waits up to notifyPatience until the ends of all jobs are reported. Their boxes have ended.
func (p *jobRunner) closeJobs() error {
	told := make(chan struct{})
	go func() {
		p.jobs.running.Wait()
		close(told)
	}()
	patience := time.NewTimer(notifyPatience)
	defer patience.Stop()
	var err error
	select {
	case <-told:
	case <-patience.C:
		err = errors.New("local: a receiver of the end of a job does not return")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range p.jobs.live { // their ends could not be recorded: the next read finds them lost
		if j.ended() && j.lock != nil {
			_ = j.lock.Close()
		}
	}
	return err
}
