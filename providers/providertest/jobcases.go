package providertest

import (
	"bytes"
	"context"
	"fmt"
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

// jobCases are the promises to jobs. They run side by side, each in a box of its own.
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
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, p)
			c.run(t, jobSubject{s, starter, control, reserver, s.keep(t, reserver), o.notifies})
		})
	}
}

func jobOrder(t *testing.T, s jobSubject) {
	e := s.start(t, "echo a; echo b >&2; echo c; printf d >&2").wantEnd(t, 0)
	want(t, "printed", string(e.Tail), "a\nb\nc\nd")
	want(t, "LogTruncated", e.LogTruncated, false)
}

func jobBinary(t *testing.T, s jobSubject) {
	j := s.start(t, `printf 'a\000\001\377\376\r\n\303'`)
	want(t, "the end", string(j.wantEnd(t, 0).Tail), "a\x00\x01\xff\xfe\r\n\xc3")
	want(t, "the log", string(j.logs(t, 0, 100).Data), "a\x00\x01\xff\xfe\r\n\xc3")
}

func jobFlood(t *testing.T, s jobSubject) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 200 << 20
	}
	cmd := s.in(s.box, fmt.Sprintf("head -c %d /dev/zero; echo end", size))
	cmd.Timeout = time.Hour // a slow disk slows it down
	j := s.begin(t, cmd)
	e := j.wantEnd(t, 0)
	want(t, "LogBytes", e.LogBytes, size+4)
	want(t, "LogTruncated", e.LogTruncated, true)
	want(t, "the last bytes", string(j.logs(t, -1, 5).Data), "\x00end\n")
	if len(e.Tail) > schemas.MaxJobLogs || !bytes.HasSuffix(e.Tail, []byte("\x00end\n")) {
		t.Errorf("the tail has %d bytes and ends with %q", len(e.Tail), e.Tail[max(0, len(e.Tail)-8):])
	}
	first := j.logs(t, 0, 1000)
	want(t, "Size", first.Size, size+4)
	want(t, "a page", len(first.Data), 1000)
	if kept := first.Size - first.Offset; kept > schemas.MaxJobOutput || kept < schemas.MaxJobOutput/8 { // the box's disk may be small
		t.Errorf("%d bytes are kept, want at most %d and no less than an eighth of it", kept, schemas.MaxJobOutput)
	}
}

func jobLogPages(t *testing.T, s jobSubject) {
	j := s.start(t, "echo one; echo two; echo three")
	want(t, "LogBytes", j.wantEnd(t, 0).LogBytes, 14)
	for _, c := range []struct {
		offset int64
		limit  int
		data   string
		at     int64
	}{
		{0, 100, "one\ntwo\nthree\n", 0},
		{0, 5, "one\nt", 0},
		{5, 4, "wo\nt", 5},
		{8, 100, "three\n", 8},
		{14, 100, "", 14},
		{-1, 6, "three\n", 8},
		{-1, 100, "one\ntwo\nthree\n", 0},
	} {
		l := j.logs(t, c.offset, c.limit)
		if string(l.Data) != c.data || l.Offset != c.at || l.Size != 14 || !l.Ended {
			t.Errorf("offset %d, limit %d: %q at %d of %d, ended %v", c.offset, c.limit, l.Data, l.Offset, l.Size, l.Ended)
		}
	}
	want(t, "behind the end", len(j.logs(t, 1000, 100).Data), 0)
}

func jobLogsLive(t *testing.T, s jobSubject) {
	j := s.start(t, "echo one; until [ -e go ]; do sleep 0.02; done; echo two")
	j.hear(t, "one\n")
	l := j.logs(t, 0, 100)
	want(t, "Size", l.Size, 4)
	want(t, "Ended", l.Ended, false)
	st := j.status(t)
	want(t, "Running", st.Running, true)
	want(t, "Instance", st.Instance, j.ref.Instance)
	want(t, "LogBytes", st.LogBytes, 4)
	s.sh(t, "touch go")
	j.wantEnd(t, 0)
	want(t, "the rest", string(j.logs(t, l.Size, 100).Data), "two\n")
}

// jobKillsParent accepts each honest answer: the parent may be out of reach, its end may end the
// box, and nobody else may hear the job's exit code.
func jobKillsParent(t *testing.T, s jobSubject) {
	j := s.start(t, "echo began; kill -9 $PPID 2>/dev/null; sleep 0.3; echo lives; exit 3")
	var st providers.JobStatus
	var err error
	j.until(t, "the end of the job", func() bool {
		st, err = s.control.JobStatus(t.Context(), j.ref)
		return err != nil || !st.Running
	})
	switch {
	case err != nil:
		wantCode(t, err, schemas.NotFound)
	case !st.End.Lost:
		want(t, "exit code", st.End.ExitCode, 3)
		want(t, "printed", string(st.End.Tail), "began\nlives\n")
	case st.End.Reason == "":
		t.Error("it is lost, and nobody says why")
	}
	if s.notifies {
		receive(t, "the word of the end", j.ended)
	}
}

func jobClosesOutput(t *testing.T, s jobSubject) {
	e := s.start(t, "echo before; exec >&- 2>&- <&-; sleep 0.2; touch done; exit 7").wantEnd(t, 7)
	want(t, "printed", string(e.Tail), "before\n")
	want(t, "files", s.sh(t, "ls"), "done")
}

func jobLeaves(t *testing.T, s jobSubject) {
	e := s.start(t, beating+"exit 4").wantEnd(t, 4)
	if e.ChildrenLeft < 1 {
		t.Errorf("ChildrenLeft is %d: a process was left behind", e.ChildrenLeft)
	}
	want(t, "printed", string(e.Tail), "beating\n")
	s.wantSilence(t)
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
	one.hear(t, "one")
	two.hear(t, "two")
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

func jobStdin(t *testing.T, s jobSubject) {
	cmd := s.in(s.box, "cat; echo over")
	cmd.Stdin = []byte("first\n")
	j := s.begin(t, cmd)
	j.hear(t, "first\n")
	j.write(t, "second\x00\xff\n", false)
	j.hear(t, "second")
	j.write(t, strings.Repeat("y", 20000), true)
	e := j.wantEnd(t, 0)
	want(t, "printed", string(e.Tail), "first\nsecond\x00\xff\n"+strings.Repeat("y", 20000)+"over\n")

	closed := s.start(t, "cat; until [ -e go ]; do sleep 0.02; done")
	closed.write(t, "", true)
	_, err := s.control.WriteJob(t.Context(), closed.ref, []byte("x"), false)
	wantCode(t, err, schemas.Conflict)
	s.sh(t, "touch go")
	closed.wantEnd(t, 0)
}

func (j *job) write(t *testing.T, data string, eof bool) {
	t.Helper()
	n, err := j.s.control.WriteJob(t.Context(), j.ref, []byte(data), eof)
	if err != nil || n != len(data) {
		t.Errorf("WriteJob: %d of %d bytes, %v", n, len(data), err)
	}
}

func jobStdinSlow(t *testing.T, s jobSubject) {
	j := s.start(t, "exec sleep 600")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for range 100 { // a pipe holds a few of these
		n, err := s.control.WriteJob(ctx, j.ref, bytes.Repeat([]byte("x"), schemas.MaxJobStdin), false)
		if err == nil {
			continue
		}
		wantCode(t, err, schemas.Timeout)
		if n < 0 || n >= schemas.MaxJobStdin {
			t.Errorf("%d of %d bytes were taken", n, schemas.MaxJobStdin)
		}
		j.stop(t, time.Second)
		want(t, "Stopped", j.end(t).Stopped, true)
		return
	}
	t.Error("a job that reads nothing takes all")
}

func jobStdinClosed(t *testing.T, s jobSubject) {
	j := s.start(t, "exec <&-; echo closed; until [ -e go ]; do sleep 0.02; done")
	j.hear(t, "closed")
	_, err := s.control.WriteJob(t.Context(), j.ref, []byte("x"), false)
	wantCode(t, err, schemas.Conflict)
	s.sh(t, "touch go")
	j.wantEnd(t, 0)
}

func jobSignals(t *testing.T, s jobSubject) {
	j := s.start(t, "trap 'echo usr1' USR1; trap 'echo int; exit 9' INT; echo ready; while :; do sleep 0.05; done")
	j.hear(t, "ready")
	j.signal(t, "USR1")
	j.hear(t, "usr1")
	j.signal(t, "STOP")
	j.signal(t, "CONT")
	j.signal(t, "INT")
	j.hear(t, "int")
	j.wantEnd(t, 9)
	killed := s.start(t, "exec sleep 600")
	killed.signal(t, "KILL")
	killed.wantEnd(t, 137)
}

func jobStop(t *testing.T, s jobSubject) {
	j := s.start(t, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
	j.hear(t, "ready")
	j.stop(t, patience)
	want(t, "Running when StopJob has returned", j.status(t).Running, false)
	e := j.end(t)
	want(t, "Stopped", e.Stopped, true)
	want(t, "TimedOut", e.TimedOut, false)
	want(t, "exit code", e.ExitCode, 5)
	if !strings.HasPrefix(string(e.Tail), "ready\n") || !strings.HasSuffix(string(e.Tail), "bye\n") {
		t.Errorf("printed %q", e.Tail)
	}
	plain := s.start(t, "echo ready; exec sleep 600")
	plain.hear(t, "ready")
	plain.stop(t, patience)
	want(t, "exit code", plain.end(t).ExitCode, 143)
}

func jobStopDeaf(t *testing.T, s jobSubject) {
	j := s.start(t, "trap '' TERM HUP INT; echo ready; while :; do sleep 600; done")
	j.hear(t, "ready")
	j.stop(t, 200*time.Millisecond)
	e := j.end(t)
	want(t, "Stopped", e.Stopped, true)
	want(t, "exit code", e.ExitCode, 137)
}

func jobStopTree(t *testing.T, s jobSubject) {
	j := s.start(t, beating+"sleep 600")
	j.hear(t, "beating")
	j.stop(t, 200*time.Millisecond)
	s.wantSilence(t)
	want(t, "Stopped", j.end(t).Stopped, true)
}

func jobStopEnded(t *testing.T, s jobSubject) {
	j := s.start(t, "exit 2")
	e := j.wantEnd(t, 2)
	j.stop(t, patience)
	j.stop(t, patience)
	again := j.status(t).End
	if again.Stopped || again.ExitCode != 2 || !again.Finished.Equal(e.Finished) {
		t.Errorf("the end was %+v and is %+v now", e, again)
	}
}

func jobStopStill(t *testing.T, s jobSubject) {
	j := s.start(t, "echo ready; kill -STOP $$; exit 3")
	j.hear(t, "ready")
	j.stop(t, 500*time.Millisecond)
	want(t, "Stopped", j.end(t).Stopped, true)
}

func jobExpires(t *testing.T, s jobSubject) {
	cmd := s.in(s.box, "trap '' TERM\nrm -f beats\n"+beating+"while :; do sleep 600; done")
	cmd.Grace = 200 * time.Millisecond
	want(t, "exit code", s.expired(t, cmd, "beating").ExitCode, 137)
	s.wantSilence(t)
	cmd = s.in(s.box, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	cmd.Grace = patience
	e := s.expired(t, cmd, "ready")
	want(t, "exit code", e.ExitCode, 0)
	if !strings.HasSuffix(string(e.Tail), "bye\n") {
		t.Errorf("printed %q", e.Tail)
	}
}

func jobEnded(t *testing.T, s jobSubject) {
	j := s.start(t, "true")
	j.wantEnd(t, 0)
	wantCode(t, s.control.SignalJob(t.Context(), j.ref, "TERM"), schemas.Conflict)
	_, err := s.control.WriteJob(t.Context(), j.ref, []byte("x"), false)
	wantCode(t, err, schemas.Conflict)
}

func jobUnknown(t *testing.T, s jobSubject) {
	s.wantNoJob(t, schemas.JobRef{Sandbox: s.box, ID: schemas.NewJobID(), Instance: "none"})
}

// wantNoJob asks all questions about a job that is not there.
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

func jobReleased(t *testing.T, s jobSubject) {
	j := s.start(t, beating+"sleep 600")
	j.hear(t, "beating")
	if err := s.reserver.Release(t.Context(), s.box); err != nil {
		t.Fatal(err)
	}
	s.wantSilence(t)
	if s.notifies {
		e := receive(t, "the word of the end", j.ended)
		if !e.Lost || e.Reason == "" {
			t.Errorf("told was %+v: want lost, and why", e)
		}
	}
	if st, err := s.control.JobStatus(t.Context(), j.ref); err != nil {
		wantCode(t, err, schemas.NotFound)
	} else if st.Running || !st.End.Lost {
		t.Errorf("in a box that is gone: %+v", st)
	}
	again := s.keep(t, s.reserver)
	s.wantNoJob(t, schemas.JobRef{Sandbox: again, ID: j.ref.ID, Instance: j.ref.Instance})
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
