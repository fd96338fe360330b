//go:build linux

package supervisor_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// dirOf is the directory of a job, for scripts.
func dirOf(ref schemas.JobRef) string { return "~/.sandjet-jobs/" + string(ref.ID) }

// pidOf reads one of the job's notes.
func (b box) pidOf(t *testing.T, ref schemas.JobRef, who string) int {
	t.Helper()
	pid, err := strconv.Atoi(b.sh(t, "read -r pid _ <"+dirOf(ref)+"/"+who+"; echo $pid"))
	if err != nil || pid < 2 {
		t.Fatalf("the %s has the number %d, %v", who, pid, err)
	}
	return pid
}

// It waits until the job has printed a word.
func (b box) hear(t *testing.T, ref schemas.JobRef, word string) {
	t.Helper()
	testwait.Eventually(t, "the word "+word, func() bool {
		l, err := b.control(t).JobLogs(t.Context(), ref, 0, schemas.MaxJobLogPage)
		return err == nil && strings.Contains(string(l.Data), word)
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, "the end of "+strconv.Itoa(pid), func() bool { return !lives(pid) })
}

// lives reports whether a process is there and no zombie.
func lives(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, ok := strings.Cut(string(data), ") ")
	return err == nil && ok && state[0] != 'Z' && state[0] != 'X'
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestJobWhoseGuardianIsKilledEndsAsItDoes(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "echo begun; until [ -e go ]; do sleep 0.02; done; (setsid sleep 600 &); echo done; exit 5", providers.JobOptions{})
	kill(t, b.pidOf(t, ref, "guardian"))
	st, err := b.control(t).JobStatus(t.Context(), ref)
	if err != nil || !st.Running {
		t.Fatalf("the job lives: %+v, %v", st, err)
	}
	b.sh(t, "touch go")
	if e := b.end(t, ref); e.Lost || e.ExitCode != 5 || string(e.Tail) != "begun\ndone\n" {
		t.Errorf("it ended with %+v", e)
	}
	if n := b.sh(t, "grep -ls SANDJET_JOB="+ref.Instance+" /proc/[0-9]*/environ 2>/dev/null | wc -l"); n != "0" {
		t.Errorf("%s processes are left", n)
	}
}

func TestJobWhoseGuardianIsKilledCanBeStopped(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done", providers.JobOptions{})
	b.hear(t, ref, "ready")
	kill(t, b.pidOf(t, ref, "guardian"))
	if err := b.control(t).StopJob(t.Context(), ref, patience); err != nil {
		t.Fatal(err)
	}
	if e := b.end(t, ref); !e.Stopped || e.ExitCode != 9 {
		t.Errorf("it ended with %+v", e)
	}
}

func TestJobWhoseGuardianIsKilledExpires(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.begin(t, providers.Command{Script: "exec sleep 600", Sandbox: b.ref, Timeout: 6 * time.Second}, providers.JobOptions{})
	kill(t, b.pidOf(t, ref, "guardian"))
	if e := b.end(t, ref); !e.TimedOut || e.ExitCode != 143 {
		t.Errorf("it ended with %+v", e)
	}
}

func TestStopAtOnceIsReceived(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	for range longtest.Scale(2, 5) {
		ref := b.start(t, "exec sleep 600", providers.JobOptions{})
		if err := b.control(t).StopJob(t.Context(), ref, 2*patience); err != nil {
			t.Fatal(err)
		}
		if e := b.end(t, ref); !e.Stopped || e.ExitCode != 143 {
			t.Errorf("it ended with %+v, and not by the first signal", e)
		}
	}
}

// TestAWordInPiecesIsRecognized: the guardian looks at its clock each second, so it may do so in the middle of a line.
func TestAWordInPiecesIsRecognized(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "echo ready; exec sleep 600", providers.JobOptions{})
	b.hear(t, ref, "ready")
	b.sh(t, "{ printf st; sleep 1.5; printf 'op 60'; sleep 1.5; printf '00\\n'; } >"+dirOf(ref)+"/control")
	if e := b.end(t, ref); !e.Stopped || e.ExitCode != 143 {
		t.Errorf("it ended with %+v", e)
	}
}

func TestStopsAtTheSameTimeAreOne(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done", providers.JobOptions{})
	b.hear(t, ref, "ready")
	c := b.control(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := c.StopJob(t.Context(), ref, 300*time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if st, err := c.JobStatus(t.Context(), ref); err != nil || st.Running || !st.End.Stopped || st.End.ExitCode != 137 {
		t.Errorf("%+v, %v", st, err)
	}
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestJobIsLostWhenAllWhoKnowAreKilled(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "echo begun; exec sleep 600", providers.JobOptions{})
	for _, who := range []string{"guardian", "minder", "leader"} {
		kill(t, b.pidOf(t, ref, who))
	}
	if e := b.end(t, ref); !e.Lost || e.Reason == "" || e.Finished.IsZero() {
		t.Errorf("it ended with %+v", e)
	}
}

func TestNumberOfAnotherProcessIsNotSignalled(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "exec sleep 600", providers.JobOptions{})
	for _, who := range []string{"guardian", "minder", "leader"} {
		kill(t, b.pidOf(t, ref, who))
	}
	// Another process has the numbers now, in a separate group.
	other := exec.CommandContext(t.Context(), "sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = other.Wait() // it is killed at the end
		close(ended)
	}()
	defer func() {
		_ = other.Process.Kill() // it may have been killed, which is what the test is about
		<-ended
	}()
	pid := strconv.Itoa(other.Process.Pid)
	for _, who := range []string{"guardian", "minder", "leader"} {
		b.sh(t, "cd "+dirOf(ref)+"; read -r _ rest <"+who+"; echo "+pid+" $rest >"+who)
	}
	c := b.control(t)
	if err := c.SignalJob(t.Context(), ref, "KILL"); schemas.CodeOf(err) != schemas.Conflict {
		t.Errorf("SignalJob: %v, want a conflict", err)
	}
	if err := c.StopJob(t.Context(), ref, 100*time.Millisecond); err != nil {
		t.Errorf("StopJob: %v", err)
	}
	if e := b.end(t, ref); !e.Lost {
		t.Errorf("it ended with %+v", e)
	}
	select {
	case <-ended:
		t.Error("a foreign process was killed")
	default:
	}
}

func TestWhoLeavesTheSessionIsFoundByTheMark(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	for _, way := range []string{
		"(setsid sleep 600 >/dev/null 2>&1 </dev/null &)",              // by the mark
		"env -i sleep 600 >/dev/null 2>&1 </dev/null &",                // by the session
		"(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &)", // it holds the outputs
	} {
		ref := b.start(t, way+"\nuntil pgrep -s 0 sleep >/dev/null || [ -n \"$(grep -l SANDJET_JOB=$SANDJET_JOB /proc/[0-9]*/environ)\" ]; do "+
			"sleep 0.02; done; exit 2",
			providers.JobOptions{})
		if e := b.end(t, ref); e.ExitCode != 2 || e.ChildrenLeft < 1 {
			t.Errorf("%s: %+v", way, e)
		}
	}
}

func TestAnotherStartIsNotTouched(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	ref := b.start(t, "exec sleep 600", providers.JobOptions{})
	other := ref
	other.Instance = "another"
	c := b.control(t)
	if err := c.StopJob(t.Context(), other, time.Second); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("StopJob: %v", err)
	}
	if err := c.SignalJob(t.Context(), other, "KILL"); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("SignalJob: %v", err)
	}
	if st, err := c.JobStatus(t.Context(), other); err != nil || !st.Running || st.Instance != ref.Instance {
		t.Errorf("%+v, %v: a look says which start it found", st, err)
	}
}

func TestBoxWithoutAToolIsUnsupported(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"bash", "mkfifo", "grep"} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			dir := toolbox(t, "curl")
			if err := os.Remove(dir + "/" + missing); err != nil {
				t.Fatal(err)
			}
			b := reserve(t, clients{open(t, supervisor.Options{}), dir})
			s, _ := providers.As[providers.JobStarter](supervisor.Wrap(b.p, supervisor.Options{}))
			_, err := s.StartJob(t.Context(), schemas.NewJobID(), providers.Command{Script: "true", Sandbox: b.ref}, providers.JobOptions{})
			if schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), missing) {
				t.Errorf("%v: want unsupported, and %s named", err, missing)
			}
		})
	}
}

func TestBoxWithoutSetsidHasJobs(t *testing.T) {
	t.Parallel()
	dir := toolbox(t, "curl")
	if err := os.Remove(dir + "/setsid"); err != nil {
		t.Fatal(err)
	}
	b := reserve(t, clients{open(t, supervisor.Options{}), dir})
	b.p = supervisor.Wrap(b.p, supervisor.Options{})
	ref := b.start(t, "trap 'exit 7' INT; echo ready; while :; do sleep 0.02; done", providers.JobOptions{})
	c := b.control(t)
	b.hear(t, ref, "ready")
	if err := c.SignalJob(t.Context(), ref, "INT"); err != nil {
		t.Error(err)
	}
	if e := b.end(t, ref); e.ExitCode != 7 || e.Lost {
		t.Errorf("it ended with %+v", e)
	}
	ref = b.start(t, "sleep 600 & exec sleep 600", providers.JobOptions{})
	if err := c.StopJob(t.Context(), ref, time.Second); err != nil {
		t.Error(err)
	}
	if e := b.end(t, ref); !e.Stopped {
		t.Errorf("it ended with %+v", e)
	}
}

// TestAJobThatComesLateIsAskedToEnd has jobs whose first process comes when they are stopped or their time is over.
func TestAJobThatComesLateIsAskedToEnd(t *testing.T) {
	t.Parallel()
	dir := toolbox(t, "curl")
	setsid, err := os.Readlink(dir + "/setsid")
	if err == nil {
		err = os.Remove(dir + "/setsid")
	}
	if err == nil {
		err = os.WriteFile(dir+"/setsid", []byte("#!"+dir+"/bash\nsleep 3\nexec "+setsid+" \"$@\"\n"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := reserve(t, clients{open(t, supervisor.Options{}), dir})
	b.p = supervisor.Wrap(b.p, supervisor.Options{})
	late := providers.Command{Script: "exec sleep 600", Sandbox: b.ref, Timeout: time.Second, Grace: 10 * time.Minute}
	expires := b.begin(t, late, providers.JobOptions{})
	stopped := b.start(t, late.Script, providers.JobOptions{})
	if err := b.control(t).StopJob(t.Context(), stopped, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := b.end(t, expires); !e.TimedOut || e.ExitCode != 143 {
		t.Errorf("its time was over: it ended with %+v", e)
	}
	if e := b.end(t, stopped); !e.Stopped || e.ExitCode != 143 {
		t.Errorf("it was stopped: it ended with %+v", e)
	}
}

func TestDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	b.sh(t, "mkdir ~/elsewhere; ln -s elsewhere ~/.sandjet-jobs")
	s, _ := providers.As[providers.JobStarter](b.p)
	_, err := s.StartJob(t.Context(), schemas.NewJobID(), providers.Command{Script: "true", Sandbox: b.ref}, providers.JobOptions{})
	if schemas.CodeOf(err) != schemas.Denied {
		t.Errorf("%v: want denied", err)
	}
}

func TestJobsDirIsTheOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/my jobs"
	b := reserve(t, open(t, supervisor.Options{JobsDir: dir}))
	ref := b.start(t, "exit 4", providers.JobOptions{})
	if e := b.end(t, ref); e.ExitCode != 4 {
		t.Errorf("it ended with %+v", e)
	}
	info, err := os.Stat(dir + "/" + string(ref.ID))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
}

func TestNothingIsLeftWhenJobsHaveEnded(t *testing.T) {
	t.Parallel()
	b := reserve(t, open(t, supervisor.Options{}))
	for range longtest.Scale(2, 3) {
		b.end(t, b.start(t, "sleep 0.1", providers.JobOptions{}))
	}
	home := b.sh(t, "echo ~")
	testwait.Eventually(t, "the end of the supervisors", func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
		return !slices.ContainsFunc(files, func(file string) bool {
			data, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(data), home+"/.sandjet-jobs")
		})
	})
}

func TestWrapLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	wrapped := supervisor.Wrap(providertest.Noop{}, supervisor.Options{})
	if _, ok := wrapped.(*supervisor.Provider); !ok {
		t.Errorf("a Reserver without jobs is wrapped as %T", wrapped)
	}
	if again := supervisor.Wrap(wrapped, supervisor.Options{}); again != wrapped {
		t.Errorf("what has jobs is wrapped again, as %T", again)
	}
	if p := supervisor.Wrap(runner{}, supervisor.Options{}); p != providers.Provider(runner{}) {
		t.Errorf("what keeps no boxes is wrapped as %T", p)
	}
	if providers.ProfileOf(wrapped).Name != "noop" {
		t.Error("the profile of the wrapped provider is not found")
	}
}

// runner keeps no boxes.
type runner struct{}

func (runner) Run(context.Context, providers.Command) (providers.Result, error) {
	return providers.Result{}, schemas.OpErrorf(schemas.Unavailable, "run", "there is nothing here")
}

func TestStartJobRefuses(t *testing.T) {
	t.Parallel()
	id, cmd := schemas.NewJobID(), providers.Command{Script: "true", Sandbox: schemas.Ref{ID: "box", Epoch: "1"}}
	call := func(url, token string) providers.JobOptions {
		return providers.JobOptions{Callback: &providers.Callback{URL: url, Token: token}}
	}
	for name, c := range map[string]struct {
		id   schemas.JobID
		cmd  providers.Command
		with providers.JobOptions
		dir  string
	}{
		"an id that is a path":     {id: "job_../../x", cmd: cmd},
		"no id":                    {cmd: cmd},
		"no box":                   {id: id, cmd: providers.Command{Script: "true"}},
		"a script with NUL":        {id: id, cmd: providers.Command{Script: "a\x00b", Sandbox: cmd.Sandbox}},
		"a URL that is a file":     {id: id, cmd: cmd, with: call("file:///etc/passwd", "t")},
		"a URL with a line break":  {id: id, cmd: cmd, with: call("http://host/\nx", "t")},
		"a URL with a quote":       {id: id, cmd: cmd, with: call(`http://host/"x`, "t")},
		"no token":                 {id: id, cmd: cmd, with: call("http://host/", "")},
		"a token with a newline":   {id: id, cmd: cmd, with: call("http://host/", "t\nx: y")},
		"a token with a backslash": {id: id, cmd: cmd, with: call("http://host/", `t\`)},
		"a relative directory":     {id: id, cmd: cmd, dir: "jobs"},
		"a directory on two lines": {id: id, cmd: cmd, dir: "/a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := providers.As[providers.JobStarter](supervisor.Wrap(providertest.Noop{}, supervisor.Options{JobsDir: c.dir}))
			if _, err := s.StartJob(t.Context(), c.id, c.cmd, c.with); schemas.CodeOf(err) != schemas.Invalid {
				t.Errorf("%v: want invalid", err)
			}
		})
	}
}
