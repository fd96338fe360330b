package providertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

type jobCase struct {
	name string
	run  func(t *testing.T, s jobSubject)
}

// jobCases returns the test cases for jobs. They run in parallel, each in a box of its own.
func jobCases() []jobCase {
	cases := []jobCase{
		{"what a job prints comes in its order, both outputs together", jobOrder},
		{"output is kept byte for byte", jobBinary},
		{"of endless output the end is kept and all is counted", jobFlood},
		{"logs are read by offset, and from the end", jobLogPages},
		{"logs come while it runs", jobLogsLive},
		{"killing the parent of the job does not hide its end", jobKillsParent},
		{"a job may close its outputs", jobClosesOutput},
		{"what a job leaves behind is counted and ended", jobLeaves},
		{"variables and directory are those of a run", jobEnvironment},
		{"a long script", jobLongScript},
		{"a job outlives the call that started it", jobOutlives},
		{"two jobs in one box do not mix", jobPair},
		{"the same id again is no second start", jobTwice},
		{"racing for an id makes one start", jobRace},
		{"standard input is written, written again and closed", jobStdin},
		{"an input that nobody reads is a timeout", jobStdinSlow},
		{"an input that the job has closed is a conflict", jobStdinClosed},
		{"signals reach the job", jobSignals},
		{"stopping ends the job with TERM", jobStop},
		{"stopping kills a job that is deaf", jobStopDeaf},
		{"stopping ends all that the job has started", jobStopTree},
		{"stopping what has ended changes nothing", jobStopEnded},
		{"a job that stands still can be stopped", jobStopStill},
		{"its lifetime ends a job", jobExpires},
		{"an ended job takes no signal and no input", jobEnded},
		{"no job of that name", jobUnknown},
		{"a released box has no jobs", jobReleased},
		{"nothing is started in a box that is gone", jobNoBox},
		{"a cancelled context starts nothing", jobCancelled},
	}
	for _, c := range []struct {
		script  string
		code    int
		printed string
	}{
		{"true", 0, ""},
		{"echo hi; exit 0", 0, "hi\n"},
		{"set -e; echo yes; false; echo no", 1, "yes\n"},
		{"if true; then echo", 2, "*"},
		{"exec sleep 0.1", 0, ""},
		{"sleep 0.3 & echo started", 0, "started\n"},
		{"exit 44", 44, ""},
		{"no-such-command-anywhere", 127, "*"},
		{"kill -9 $$", 137, ""},
		{"kill -TERM $$; sleep 600", 143, ""},
		{"(exit 9)", 9, ""},
		{"trap 'exit 6' EXIT; true", 6, ""},
	} {
		cases = append(cases, jobCase{"the end of " + c.script, func(t *testing.T, s jobSubject) {
			e := s.start(t, c.script).wantEnd(t, c.code)
			if c.printed != "*" {
				want(t, "printed", string(e.Tail), c.printed)
			}
			want(t, "LogBytes", e.LogBytes, int64(len(e.Tail)))
		}})
	}
	return cases
}

// runJobs runs the cases for p, which has jobs.
func runJobs(t *testing.T, p providers.Provider, starter providers.JobStarter, o options) {
	t.Helper()
	control, ok := providers.As[providers.JobController](p)
	if !ok {
		t.Skipf("%T has no JobController", p)
	}
	reserver, ok := providers.As[providers.Reserver](p)
	if !ok {
		t.Fatalf("%T has jobs and keeps no box for them", p)
	}
	for _, c := range jobCases() {
		if !o.has("Jobs", c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, p)
			c.run(t, jobSubject{s, starter, control, reserver, s.keep(t, reserver), o.notifies})
		})
	}
}

func jobEnvironment(t *testing.T, s jobSubject) {
	const script = "env -0 | tr '\\n\\0' ' \\n' | grep -v '^_=\\|^SHLVL=\\|^SANDJET_JOB=\\|^PATH=' | sort; pwd; umask; echo ${PATH%%:*}"
	cmd := s.in(s.box, script)
	cmd.Env = map[string]string{"A": "1 '\"$(x)` \\", "TWO": "one\ntwo", "dir": "d", "id": "i", "token": "t", "PATH": "/evil", "IFS": "x"}
	ran := s.ok(t, cmd)
	e := s.begin(t, cmd).wantEnd(t, 0)
	want(t, "what the job sees", strings.TrimSuffix(string(e.Tail), "\n"), ran)
	cmd.Dir = "/tmp"
	cmd.Script = "pwd"
	want(t, "directory", string(s.begin(t, cmd).wantEnd(t, 0).Tail), s.ok(t, cmd)+"\n")
}

func jobLongScript(t *testing.T, s jobSubject) {
	e := s.start(t, "true "+strings.Repeat("x", 200<<10)+"\necho 'a$b`c\"d'\nexit 3\n\n").wantEnd(t, 3)
	want(t, "printed", string(e.Tail), "a$b`c\"d\n")
}

func jobOutlives(t *testing.T, s jobSubject) {
	j := &job{s: s, ended: make(chan providers.JobEnd, 8)}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	j.ref, err = s.starter.StartJob(ctx, schemas.NewJobID(), s.in(s.box, "until [ -e go ]; do sleep 0.02; done; echo done"), j.options())
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "another run in the box", s.ok(t, s.in(s.box, "echo fine")), "fine")
	want(t, "Running", j.status(t).Running, true)
	s.sh(t, "touch go")
	want(t, "printed", string(j.wantEnd(t, 0).Tail), "done\n")
}

func jobPair(t *testing.T, s jobSubject) {
	one := s.start(t, "echo one; until [ -e go ]; do sleep 0.02; done; exit 1")
	two := s.start(t, "echo two; sleep 600")
	if one.ref.Instance == two.ref.Instance {
		t.Errorf("two starts are the same instance %q", one.ref.Instance)
	}
	one.awaitWord(t, "one")
	two.awaitWord(t, "two")
	two.stop(t, patience)
	want(t, "Stopped", two.end(t).Stopped, true)
	want(t, "the other runs", one.status(t).Running, true)
	s.sh(t, "touch go")
	want(t, "printed", string(one.wantEnd(t, 1).Tail), "one\n")
}

func jobTwice(t *testing.T, s jobSubject) {
	cmd := s.in(s.box, "echo x >>runs; until [ -e go ]; do sleep 0.02; done")
	j := s.begin(t, cmd)
	again := func() {
		ref, err := s.starter.StartJob(t.Context(), j.ref.ID, cmd, providers.JobOptions{})
		if err != nil || ref != j.ref {
			t.Errorf("again: %+v, %v; the first is %+v", ref, err, j.ref)
		}
	}
	again()
	s.sh(t, "touch go")
	j.wantEnd(t, 0)
	again()
	want(t, "starts", s.sh(t, "cat runs"), "x")
}

func jobRace(t *testing.T, s jobSubject) {
	type answer struct {
		ref schemas.JobRef
		err error
	}
	const n = 5
	id, cmd, answers := schemas.NewJobID(), s.in(s.box, "echo x >>runs"), make(chan answer, n)
	told := make(chan providers.JobEnd, n)
	for range n {
		go func() {
			ref, err := s.starter.StartJob(t.Context(), id, cmd, providers.JobOptions{Notify: func(e providers.JobEnd) { told <- e }})
			answers <- answer{ref, err}
		}()
	}
	first := receive(t, "an answer", answers)
	if first.err != nil {
		t.Fatal(first.err)
	}
	for range n - 1 {
		want(t, "the others' answer", receive(t, "an answer", answers), first)
	}
	j := &job{s: s, ref: first.ref, ended: told}
	j.wantEnd(t, 0)
	want(t, "starts", s.sh(t, "cat runs"), "x")
}

func jobUnknown(t *testing.T, s jobSubject) {
	s.wantNoJob(t, schemas.JobRef{Sandbox: s.box, ID: schemas.NewJobID(), Instance: "none"})
}

// wantNoJob calls all methods with a job that does not exist.
func (s jobSubject) wantNoJob(t *testing.T, ref schemas.JobRef) {
	t.Helper()
	_, err := s.control.JobStatus(t.Context(), ref)
	wantCode(t, err, schemas.NotFound)
	_, err = s.control.JobLogs(t.Context(), ref, 0, 100)
	wantCode(t, err, schemas.NotFound)
	wantCode(t, s.control.StopJob(t.Context(), ref, time.Second), schemas.NotFound)
	wantCode(t, s.control.SignalJob(t.Context(), ref, "TERM"), schemas.NotFound)
	_, err = s.control.WriteJob(t.Context(), ref, []byte("x"), false)
	wantCode(t, err, schemas.NotFound)
}

func jobNoBox(t *testing.T, s jobSubject) {
	if err := s.reserver.Release(t.Context(), s.box); err != nil {
		t.Fatal(err)
	}
	_, err := s.starter.StartJob(t.Context(), schemas.NewJobID(), s.in(s.box, "touch ran"), providers.JobOptions{})
	wantCode(t, err, schemas.NotFound)
	_, err = s.starter.StartJob(t.Context(), schemas.NewJobID(), s.command("touch ran"), providers.JobOptions{})
	wantCode(t, err, schemas.Invalid)
	want(t, "files", s.sh(t, "ls"), "")
}

func jobCancelled(t *testing.T, s jobSubject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.starter.StartJob(ctx, schemas.NewJobID(), s.in(s.box, "touch ran"), providers.JobOptions{})
	if !isCancelled(err) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	want(t, "files", s.sh(t, "ls"), "")
}
