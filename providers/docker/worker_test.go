//go:build linux

package docker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// childVariable holds what a process does that stands for a worker which is killed.
const childVariable = "SANDJET_TEST_DOCKER_CHILD"

// order is the task of such a process.
type order struct {
	Options docker.Options
	Key     string
	Job     schemas.JobID
}

// report is what it answers when all of it runs.
type report struct {
	Box schemas.Ref
	Job schemas.JobRef
}

// beats appends to a file of the workspace for as long as it lives, from a session of its own, deaf to TERM.
func beats(file string) string {
	return fmt.Sprintf(`beat() { trap '' TERM HUP INT; while :; do echo x >>%[1]s; sleep 0.05; done; }
export -f beat; ( setsid env -i PATH="$PATH" bash -c "$(declare -f beat); beat" >/dev/null 2>&1 </dev/null & )
until [ -s %[1]s ]; do sleep 0.01; done; echo beating; sleep 1000`, file)
}

// child does what is asked of it, and ends with the test whatever comes.
func child() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	work()
}

// work starts a job, a command in a kept container and one in a container of its own, says so, and stays.
func work() {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &o); err != nil {
		panic(err)
	}
	p, err := docker.Open(context.Background(), o.Options)
	if err != nil {
		panic(err)
	}
	with := supervisor.Wrap(p, supervisor.Options{})
	ref, err := p.Reserve(context.Background(), o.Key, spec())
	if err != nil {
		panic(err)
	}
	starter, _ := providers.As[providers.JobStarter](with)
	task := in(ref, "echo begun; until [ -e go ]; do sleep 0.05; done; echo done; exit 7")
	job, err := starter.StartJob(context.Background(), o.Job, task, providers.JobOptions{})
	if err != nil {
		panic(err)
	}
	for i, cmd := range []providers.Command{in(ref, beats("kept")), command(beats("fresh"))} {
		begun := make(chan struct{})
		cmd.ID, cmd.Timeout = o.Key+" "+[]string{"kept", "fresh"}[i], schemas.MaxTimeout
		cmd.Output = func(providers.Chunk) {
			if begun != nil {
				close(begun)
				begun = nil
			}
		}
		waiting := begun
		go func() { _, _ = p.Run(context.Background(), cmd) }()
		<-waiting
	}
	if o.Options.Warm > 0 { // what comes after it is ready for the next one
		if _, err := p.Run(context.Background(), command("true")); err != nil {
			panic(err)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(report{ref, job}); err != nil {
		panic(err)
	}
	select {} // until it is killed
}

// employ starts a process that stands for a worker, and returns it once all of it runs.
func employ(t *testing.T, o docker.Options) (*exec.Cmd, report) {
	t.Helper()
	told, err := json.Marshal(order{Options: o, Key: t.Name(), Job: schemas.NewJobID()})
	if err != nil {
		t.Fatal(err)
	}
	worker := exec.Command("/proc/self/exe")
	worker.Env = append(os.Environ(), childVariable+"="+string(told))
	worker.Stderr = os.Stderr
	if _, err := worker.StdinPipe(); err != nil { // its end shows the worker that this test has ended
		t.Fatal(err)
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var r report
	if err != nil || json.Unmarshal(line, &r) != nil {
		_ = worker.Process.Kill()
		_ = worker.Wait()
		t.Fatalf("the worker did not begin: %v, %q", err, line)
	}
	return worker, r
}

// TestARunIsEndedByAnotherWorker: a worker is suspended, so that its connections stay and its commands keep running. Another one ends
// them, each alone, and nothing of them is left when it says so. The job beside them continues.
//
//guarantee:side-effects-are-started-at-most-once
func TestARunIsEndedByAnotherWorker(t *testing.T) {
	t.Parallel()
	var o docker.Options
	p := open(t, func(given *docker.Options) { o = *given })
	worker, r := employ(t, o)
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
		if err := p.Release(context.WithoutCancel(t.Context()), r.Box); err != nil {
			t.Error(err)
		}
	})
	if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ender, ok := providers.As[providers.RunEnder](p)
	if !ok {
		t.Fatal("the provider ends no runs of others")
	}
	end := func(id string) {
		t.Helper()
		if err := ender.EndRun(t.Context(), t.Name(), account, id); err != nil {
			t.Fatalf("end of %q: %v", id, err)
		}
	}
	e := dockertest.Get(t)
	beating := func(file string) string {
		return e.Run(t, "exec", r.Box.ID, "sh", "-c",
			"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q 'echo [x] >>.*"+file+"' && echo ${p#/proc/}; done; true")
	}
	own := func() string {
		return e.Run(t, "ps", "-q", "--filter", "label=sandjet.installation="+o.Installation, "--filter", "label=sandjet.kind=call")
	}
	end("nobody's")
	if beating("kept") == "" || own() == "" {
		t.Fatalf("the commands have ended by themselves: %q, %q", beating("kept"), own())
	}
	gone, cancel := context.WithCancel(t.Context()) // who ends it dies over it
	cancel()
	if err := ender.EndRun(gone, t.Name(), account, t.Name()+" kept"); err == nil {
		t.Error("an end that was given up is reported as one")
	}
	end(t.Name() + " kept")
	if left := beating("kept"); left != "" {
		t.Errorf("processes of the command in the kept container are left: %s", left)
	}
	if own() == "" {
		t.Error("the other command has ended with it")
	}
	end(t.Name() + " fresh")
	if left := own(); left != "" {
		t.Errorf("the container of the other command is left: %s", left)
	}
	end(t.Name() + " fresh")
	control, _ := providers.As[providers.JobController](supervisor.Wrap(p, supervisor.Options{}))
	if st, err := control.JobStatus(t.Context(), r.Job); err != nil || !st.Running {
		t.Errorf("the job: %+v, %v", st, err)
	}
}

// TestAKilledWorker: its commands end in their containers, its kept container and job continue, and another worker finds the job and its
// end.
func TestAKilledWorker(t *testing.T) {
	t.Parallel()
	var o docker.Options
	p := open(t, func(given *docker.Options) { o = *given })
	worker, r := employ(t, o)
	if err := worker.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = worker.Wait()
	t.Cleanup(func() {
		if err := p.Release(context.WithoutCancel(t.Context()), r.Box); err != nil {
			t.Error(err)
		}
	})
	for _, file := range []string{"kept", "fresh"} {
		silent(t, p, r.Box, file)
	}
	if again, err := p.Reserve(t.Context(), t.Name(), spec()); err != nil || again != r.Box {
		t.Errorf("the kept container: %+v, %v; it was %+v", again, err, r.Box)
	}
	control, _ := providers.As[providers.JobController](supervisor.Wrap(p, supervisor.Options{}))
	if st, err := control.JobStatus(t.Context(), r.Job); err != nil || !st.Running {
		t.Fatalf("the job: %+v, %v", st, err)
	}
	ok(t, p, in(r.Box, "touch go"))
	var st providers.JobStatus
	testwait.Eventually(t, "the end of the job", func() bool {
		var err error
		st, err = control.JobStatus(t.Context(), r.Job)
		return err == nil && !st.Running
	})
	if st.End.Lost || st.End.ExitCode != 7 || string(st.End.Tail) != "begun\ndone\n" {
		t.Errorf("the end of the job: %+v", st.End)
	}
	e := dockertest.Get(t)
	calls := strings.Fields(e.Run(t, "ps", "-aq",
		"--filter", "label=sandjet.installation="+o.Installation, "--filter", "label=sandjet.kind=call"))
	for _, id := range calls { // no worker removes what has just ended, but it does not run any more
		if state := e.Run(t, "inspect", "-f", "{{.State.Running}}", id); state != "false" {
			t.Errorf("the container of the dead worker's call runs: %s", state)
		}
		e.Run(t, "rm", "-f", id)
	}
	if len(calls) != 1 {
		t.Errorf("%d containers of calls, want the one that the dead worker had", len(calls))
	}
}

// silent waits until a file of the workspace does not grow any more.
func silent(t *testing.T, p providers.Provider, box schemas.Ref, file string) {
	t.Helper()
	testwait.Eventually(t, "the end of what writes to "+file, func() bool {
		sizes := strings.Fields(ok(t, p, in(box, "wc -c <"+file+"; sleep 0.5; wc -c <"+file)))
		return len(sizes) == 2 && sizes[0] == sizes[1]
	})
}
