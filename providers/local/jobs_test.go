//go:build linux

package local_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// levels are those that this package's tests can have.
var levels = []string{"L3", "L2", "L0"}

// kept reserves a box for jobs.
func kept(t *testing.T, p *local.Provider, key string, change func(*providers.Spec)) providers.Command {
	t.Helper()
	cmd := command("")
	if change != nil {
		change(&cmd.Spec)
		cmd.Mounts = cmd.Spec.Mounts
	}
	ref, err := p.Reserve(t.Context(), key, cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Sandbox, cmd.Timeout = ref, time.Hour
	return cmd
}

// startJob starts script as a job. What comes of ends is what Notify gets.
func startJob(t *testing.T, p *local.Provider, cmd providers.Command, script string) (ref schemas.JobRef, ends <-chan providers.JobEnd) {
	t.Helper()
	told := make(chan providers.JobEnd, 2)
	cmd.Script = script
	ref, err := p.StartJob(t.Context(), schemas.NewJobID(), cmd, providers.JobOptions{Notify: func(e providers.JobEnd) { told <- e }})
	if err != nil {
		t.Fatal(err)
	}
	return ref, told
}

// It waits for the end of a job.
func told(t *testing.T, ends <-chan providers.JobEnd) providers.JobEnd {
	t.Helper()
	select {
	case e := <-ends:
		return e
	case <-time.After(3 * patience):
		t.Fatal("nobody told of the end")
		return providers.JobEnd{}
	}
}

// printed waits until a job has printed text.
func printed(t *testing.T, p *local.Provider, ref schemas.JobRef, text string) {
	t.Helper()
	until(t, "the output "+text, func() bool {
		l, err := p.JobLogs(t.Context(), ref, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(l.Data), text)
	})
}

func TestJobIsLostWithItsBox(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(t *testing.T, p *local.Provider, cmd providers.Command)
		reason string
	}{
		"released": {func(t *testing.T, p *local.Provider, cmd providers.Command) {
			t.Helper()
			if err := p.Release(t.Context(), cmd.Sandbox); err != nil {
				t.Error(err)
			}
		}, "its sandbox was released"},
		"made anew": {func(t *testing.T, p *local.Provider, _ providers.Command) {
			t.Helper()
			kept(t, p, "box", func(s *providers.Spec) { s.MemoryLimit = 64 << 20 })
		}, "its sandbox was made anew under other rules"},
		"closed": {func(t *testing.T, p *local.Provider, _ providers.Command) {
			t.Helper()
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}, "the worker that ran it has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := local.Options{StateDir: dir + "/state", Workspaces: dir + "/workspaces"}
			p, err := local.New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close() // may be closed
			cmd := kept(t, p, "box", nil)
			ref, ends := startJob(t, p, cmd, "echo began; sleep 600")
			printed(t, p, ref, "began\n")
			c.end(t, p, cmd)
			e := told(t, ends)
			replaced := strings.Contains(c.reason, "made anew")
			if !e.Lost || e.Reason != c.reason || e.Replaced != replaced || string(e.Tail) != "began\n" || e.Stopped || e.TimedOut {
				t.Errorf("%+v, want lost since %s", e, c.reason)
			}
			st, err := p.JobStatus(t.Context(), ref)
			if err != nil || st.Running || st.End.Reason != c.reason {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestNextProviderReportsTheEnd(t *testing.T) {
	dir := t.TempDir()
	o := func(o *local.Options) { o.StateDir, o.Workspaces = dir+"/state", dir+"/workspaces" }
	first := open(t, "L3", o)
	cmd := kept(t, first, "box", nil)
	ref, ends := startJob(t, first, cmd, "echo out; sleep 600 & exit 3")
	e := told(t, ends)
	running, _ := startJob(t, first, cmd, "echo began; sleep 600")
	printed(t, first, running, "began\n")

	beside := open(t, "L3", o) // while the first is there
	if st, err := beside.JobStatus(t.Context(), running); err != nil || !st.Running || st.Instance != running.Instance || st.LogBytes != 6 {
		t.Errorf("a job of another worker: %+v, %v", st, err)
	}
	if l, err := beside.JobLogs(t.Context(), running, -1, 3); err != nil || string(l.Data) != "an\n" || l.Ended {
		t.Errorf("its log: %+v, %v", l, err)
	}
	if err := beside.StopJob(t.Context(), running, time.Second); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("stopping it: %v", err)
	}
	if _, err := beside.WriteJob(t.Context(), running, []byte("x"), false); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("writing to it: %v", err)
	}
	if err := beside.SignalJob(t.Context(), running, "TERM"); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("signalling it: %v", err)
	}
	st, err := beside.JobStatus(t.Context(), ref)
	if err != nil || st.Running || st.Instance != ref.Instance {
		t.Fatalf("%+v, %v", st, err)
	}
	if got := st.End; got.ExitCode != 3 || string(got.Tail) != "out\n" || got.ChildrenLeft != 1 || got.LogBytes != 4 ||
		!got.Finished.Equal(e.Finished) || got.Lost {
		t.Errorf("the end was %+v and is told as %+v", e, got)
	}
	if l, err := beside.JobLogs(t.Context(), ref, 1, 100); err != nil || string(l.Data) != "ut\n" || l.Offset != 1 || l.Size != 4 || !l.Ended {
		t.Errorf("the log: %+v, %v", l, err)
	}
	if err := beside.StopJob(t.Context(), ref, time.Second); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
	ref.Instance = "another"
	if _, err := beside.JobStatus(t.Context(), ref); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("another start of it: %v", err)
	}
}

// TestJobOfAKilledWorker kills a worker whose job runs: the next one finds it lost, and nothing of
// it alive.
func TestJobOfAKilledWorker(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), workerDir+"="+dir, "SANDJET_TEST_LEVEL=L3", "SANDJET_TEST_JOB=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) != 3 {
		t.Fatalf("%q, %v", line, err)
	}
	family := descendants(cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the end of all processes of the worker", func() bool {
		for pid, start := range family {
			if started(pid) == start {
				return false
			}
		}
		return true
	})
	p := open(t, "L3", func(o *local.Options) { o.StateDir, o.Workspaces = dir+"/state", dir+"/workspaces" })
	ref := schemas.JobRef{Sandbox: schemas.Ref{ID: fields[0], Epoch: fields[1]}, ID: schemas.JobID(fields[2])}
	st, err := p.JobStatus(t.Context(), ref)
	if err != nil || st.Running || !st.End.Lost || st.End.Reason != "the worker that ran it has ended" || string(st.End.Tail) != "began\n" {
		t.Errorf("%+v, %v", st, err)
	}
	again, err := p.JobStatus(t.Context(), ref)
	if err != nil || !again.End.Finished.Equal(st.End.Finished) {
		t.Errorf("first it ended at %v, then at %v, %v", st.End.Finished, again.End.Finished, err)
	}
}

// jobOfAWorker starts a job, says which, and waits.
func jobOfAWorker(ctx context.Context, p *local.Provider) error {
	cmd := command("echo began; trap '' TERM HUP; sleep 600")
	ref, err := p.Reserve(ctx, "box", cmd.Spec)
	if err != nil {
		return err
	}
	cmd.Sandbox = ref
	job, err := p.StartJob(ctx, schemas.NewJobID(), cmd, providers.JobOptions{})
	if err != nil {
		return err
	}
	for {
		if l, err := p.JobLogs(ctx, job, 0, 100); err != nil || l.Size > 0 {
			break
		}
		time.Sleep(time.Millisecond) // a log sends no signal
	}
	_, err = os.Stdout.WriteString(strings.Join([]string{ref.ID, ref.Epoch, string(job.ID)}, " ") + "\n")
	if err == nil {
		<-ctx.Done()
	}
	return err
}

func TestJobsKeepTheLimitOnProcesses(t *testing.T) {
	p := open(t, "L3", nil)
	cmd := kept(t, p, "box", func(s *providers.Spec) { s.Pids = 40 })
	bomb, ends := startJob(t, p, cmd, "bomb() { bomb | bomb & }; echo began; bomb 2>/dev/null; wait; sleep 600")
	printed(t, p, bomb, "began\n")
	if err := p.StopJob(t.Context(), bomb, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if e := told(t, ends); !e.Stopped || e.Lost {
		t.Errorf("%+v", e)
	}
	_, ends = startJob(t, p, cmd, "echo fine")
	if e := told(t, ends); e.ExitCode != 0 || string(e.Tail) != "fine\n" {
		t.Errorf("the box is of no more use: %+v", e)
	}
}

func TestJobThatEatsMemory(t *testing.T) {
	p := open(t, "L3", nil)
	cmd := kept(t, p, "box", func(s *providers.Spec) { s.MemoryLimit = 64 << 20 })
	_, ends := startJob(t, p, cmd, "x=$(head -c 300M /dev/zero | tr '\\0' x); echo ${#x}")
	if e := told(t, ends); !e.OOMKilled || e.ExitCode == 0 && !e.Lost {
		t.Errorf("%+v", e)
	}
}

// TestJobsAreNotKilledWithOthers starts runs and jobs while others are being ended.
func TestJobsAreNotKilledWithOthers(t *testing.T) {
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			p := open(t, level, func(o *local.Options) { o.AllowUnisolated = true })
			cmd := kept(t, p, "box", nil)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 6 {
						_, leaves := startJob(t, p, cmd, "sleep 600 & exit 0")
						run := cmd
						run.Script = "sleep 0.02; echo done"
						if res, err := p.Run(t.Context(), run); err != nil || string(res.Stdout) != "done\n" {
							t.Errorf("a run beside it: %q, exit code %d, %v", res.Stdout, res.ExitCode, err)
						}
						if e := told(t, leaves); e.ChildrenLeft != 1 || e.ExitCode != 0 || e.Lost {
							t.Errorf("%+v, want one process left behind", e)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestJobThatCannotStartLeavesNothing(t *testing.T) {
	var state string
	p := open(t, "L3", func(o *local.Options) { state = o.StateDir })
	cmd := kept(t, p, "box", nil)
	cmd.Dir, cmd.Script = "/nowhere", "true"
	id := schemas.NewJobID()
	if _, err := p.StartJob(t.Context(), id, cmd, providers.JobOptions{}); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("in a directory that is not there: %v", err)
	}
	ref := schemas.JobRef{Sandbox: cmd.Sandbox, ID: id}
	if _, err := p.JobStatus(t.Context(), ref); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("what was not started is there: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(state, "jobs")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	cmd.Dir = ""
	if _, err := p.StartJob(t.Context(), id, cmd, providers.JobOptions{}); err != nil {
		t.Errorf("the second try: %v", err)
	}
	until(t, "the end", func() bool {
		st, err := p.JobStatus(t.Context(), ref)
		return err == nil && !st.Running
	})
	for _, bad := range []schemas.JobID{"", "job_", "job_../x", "../job_x", "job_a/b"} {
		if _, err := p.StartJob(t.Context(), bad, cmd, providers.JobOptions{}); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("the id %q: %v", bad, err)
		}
		if _, err := p.JobStatus(t.Context(), schemas.JobRef{Sandbox: cmd.Sandbox, ID: bad}); schemas.CodeOf(err) == "" {
			t.Errorf("a job %q is there", bad)
		}
	}
}

// TestPipelineMayEndByItself: what reads the end of the job's output is not killed before it has. A
// busy machine may be too slow for that, but not every time.
func TestPipelineMayEndByItself(t *testing.T) {
	p := open(t, "L3", nil)
	cmd := kept(t, p, "box", nil)
	until(t, "a job whose last process ended by itself", func() bool {
		_, ends := startJob(t, p, cmd, "exec > >(sleep 0.02; cat; echo last); echo first")
		e := told(t, ends)
		return string(e.Tail) == "first\nlast\n" && e.ChildrenLeft == 0
	})
}

func TestClosingWithJobsLeak(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	files := openFiles(t)
	dir := t.TempDir()
	p, err := local.New(local.Options{StateDir: dir + "/state", Workspaces: dir + "/workspaces"})
	if err != nil {
		t.Fatal(err)
	}
	var ends []<-chan providers.JobEnd
	for i := range 12 {
		cmd := kept(t, p, string(rune('a'+i%3)), nil)
		cmd.Stdin = make([]byte, 1<<20) // more than the job reads
		script := "sleep 600 & echo x"
		if i%2 == 0 {
			script = "sleep 600"
		}
		_, end := startJob(t, p, cmd, script)
		ends = append(ends, end)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, end := range ends {
		if len(end) != 1 {
			t.Errorf("%d ends were told when Close returned, want 1", len(end))
		}
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d files are open, %d were", n, files)
	}
	if _, err := p.StartJob(t.Context(), schemas.NewJobID(), command("true"), providers.JobOptions{}); err == nil {
		t.Error("a closed provider started a job")
	}
}

// TestBoxesCannotReachJobFiles looks for the log of a job from inside of its box.
func TestBoxesCannotReachJobFiles(t *testing.T) {
	for _, level := range []string{"L3", "L2"} {
		t.Run(level, func(t *testing.T) {
			var state string
			p := open(t, level, func(o *local.Options) { state = o.StateDir })
			cmd := kept(t, p, "box", nil)
			_, ends := startJob(t, p, cmd, "ls "+filepath.Join(state, "jobs")+" && echo there; echo tried")
			if e := told(t, ends); strings.Contains(string(e.Tail), "there") || !strings.Contains(string(e.Tail), "tried") {
				t.Errorf("%q", e.Tail)
			}
		})
	}
}

// TestEndlessOutputTakesNoMemory has a job print much more than is kept.
func TestEndlessOutputTakesNoMemory(t *testing.T) {
	size := 200 << 20
	if longtest.Asked() {
		size = 1 << 30
	}
	p := open(t, "L3", nil)
	cmd := kept(t, p, "box", nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, ends := startJob(t, p, cmd, fmt.Sprintf("head -c %d /dev/zero", size))
	if e := told(t, ends); e.LogBytes != int64(size) || !e.LogTruncated || len(e.Tail) != schemas.MaxJobLogs {
		t.Errorf("%d bytes, truncated %v, tail of %d", e.LogBytes, e.LogTruncated, len(e.Tail))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes were allocated on the way", n)
	}
}
