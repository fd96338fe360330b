package providertest

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// jobSubject is a persistent box of the test, and the capabilities that run jobs in it.
type jobSubject struct {
	subject

	starter  providers.JobStarter
	control  providers.JobController
	reserver providers.Reserver
	box      schemas.Ref
	notifies bool
}

// job is a job that a test has started.
type job struct {
	s     jobSubject
	ref   schemas.JobRef
	ended chan providers.JobEnd // what Notify got
}

// start starts script as a job.
func (s jobSubject) start(t *testing.T, script string) *job {
	t.Helper()
	return s.begin(t, s.in(s.box, script))
}

// begin starts cmd as a job. When the test ends, the job's end must have been reported at most once.
func (s jobSubject) begin(t *testing.T, cmd providers.Command) *job {
	t.Helper()
	j := &job{s: s, ended: make(chan providers.JobEnd, 8)}
	id := schemas.NewJobID()
	ref, err := s.starter.StartJob(t.Context(), id, cmd, j.options())
	if err != nil {
		t.Fatalf("StartJob: %v", err)
	}
	if ref.ID != id || ref.Sandbox != s.box || ref.Instance == "" {
		t.Fatalf("the ref of a started job %s: %+v", id, ref)
	}
	t.Cleanup(func() {
		if n := len(j.ended); n > 0 {
			t.Errorf("the end of the job was told %d times too often", n)
		}
	})
	j.ref = ref
	return j
}

func (j *job) options() providers.JobOptions {
	if !j.s.notifies {
		return providers.JobOptions{}
	}
	return providers.JobOptions{Notify: func(e providers.JobEnd) { j.ended <- e }}
}

// status returns the state of the job, which must exist.
func (j *job) status(t *testing.T) providers.JobStatus {
	t.Helper()
	st, err := j.s.control.JobStatus(t.Context(), j.ref)
	if err != nil {
		t.Fatalf("JobStatus: %v", err)
	}
	return st
}

// end waits for the end of the job, by its status and by the notification.
func (j *job) end(t *testing.T) providers.JobEnd {
	t.Helper()
	var st providers.JobStatus
	j.until(t, "the end of the job", func() bool {
		st = j.status(t)
		return !st.Running
	})
	want(t, "Instance", st.Instance, j.ref.Instance)
	if st.End.Finished.IsZero() {
		t.Error("nobody knows when it ended")
	}
	want(t, "LogBytes of the end", st.End.LogBytes, st.LogBytes)
	if j.s.notifies {
		told := receive(t, "the word of the end", j.ended)
		if told.ExitCode != st.End.ExitCode || told.Lost != st.End.Lost || told.Stopped != st.End.Stopped ||
			told.TimedOut != st.End.TimedOut || told.LogBytes != st.End.LogBytes || string(told.Tail) != string(st.End.Tail) {
			t.Errorf("told was %+v, the status says %+v", told, st.End)
		}
	}
	return st.End
}

// expired starts cmd as a job and waits until its lifetime has ended it. It tries longer lifetimes until the job has printed begun.
func (s jobSubject) expired(t *testing.T, cmd providers.Command, begun string) (e providers.JobEnd) {
	t.Helper()
	for _, cmd.Timeout = range timeouts() {
		e = s.begin(t, cmd).end(t)
		if strings.Contains(string(e.Tail), begun) {
			break
		}
	}
	want(t, "TimedOut", e.TimedOut, true)
	want(t, "Stopped", e.Stopped, false)
	return e
}

// wantEnd fails the test when the job does not end by itself with an exit code.
func (j *job) wantEnd(t *testing.T, code int) providers.JobEnd {
	t.Helper()
	e := j.end(t)
	want(t, "exit code", e.ExitCode, code)
	if e.Lost || e.Stopped || e.TimedOut || e.OOMKilled {
		t.Errorf("lost %v (%s), stopped %v, timed out %v, killed for memory %v: it ended by itself", e.Lost, e.Reason,
			e.Stopped, e.TimedOut, e.OOMKilled)
	}
	return e
}

// logs reads a page of what the job printed.
func (j *job) logs(t *testing.T, offset int64, limit int) providers.JobLogs {
	t.Helper()
	l, err := j.s.control.JobLogs(t.Context(), j.ref, offset, limit)
	if err != nil {
		t.Fatalf("JobLogs: %v", err)
	}
	if len(l.Data) > limit || l.Offset < 0 || l.Offset+int64(len(l.Data)) > l.Size {
		t.Fatalf("%d bytes at %d of %d, with a limit of %d", len(l.Data), l.Offset, l.Size, limit)
	}
	return l
}

// awaitWord waits until the job has printed a word.
func (j *job) awaitWord(t *testing.T, word string) {
	t.Helper()
	j.until(t, "the word "+word, func() bool {
		return strings.Contains(string(j.logs(t, 0, schemas.MaxJobLogPage).Data), word)
	})
}

func (j *job) stop(t *testing.T, grace time.Duration) {
	t.Helper()
	if err := j.s.control.StopJob(t.Context(), j.ref, grace); err != nil {
		t.Errorf("StopJob: %v", err)
	}
}

func (j *job) signal(t *testing.T, name string) {
	t.Helper()
	if err := j.s.control.SignalJob(t.Context(), j.ref, name); err != nil {
		t.Errorf("SignalJob: %v", err)
	}
}

// until repeats a check until it returns true. A check may be a whole run in the box: checks take at most a fifth of the time, so that
// they do not slow down what they wait for.
func (*job) until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * patience); ; {
		began := time.Now()
		if yes() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s did not come within %v", what, 4*patience)
		}
		time.Sleep(min(max(30*time.Millisecond, 4*time.Since(began)), time.Second))
	}
}
