package providertest

import (
	"context"
	"strings"
	"testing"
	"time"
)

func endCases() []testCase {
	return []testCase{
		{"a timeout keeps what was printed", timeoutPartial},
		{"a timeout lets the command clean up", timeoutTerm},
		{"a timeout ends what ignores it", timeoutDeaf},
		{"a timeout kills the whole tree", timeoutTree},
		{"no time is lost when the command ends in time", timeoutUnused},
		{"a cancelled context starts nothing", cancelBefore},
		{"cancelling ends the run and keeps what was printed", cancelDuring},
		{"cancelling kills the whole tree before Run returns", cancelTree},
		{"cancelling one run leaves the others alone", cancelOne},
		{"a process left in the background does not hold up the run", backgroundProcess},
		{"a fresh box leaves no process", backgroundGone},
	}
}

func timeoutPartial(t *testing.T, s subject) {
	cmd := s.command("echo before; echo before-err >&2; sleep 600; echo after")
	cmd.Grace = 200 * time.Millisecond
	res := s.timedOut(t, cmd, "before-err")
	want(t, "stdout", string(res.Stdout), "before\n")
	want(t, "stderr begins with", strings.HasPrefix(string(res.Stderr), "before-err\n"), true)
}

func timeoutTerm(t *testing.T, s subject) {
	cmd := s.command("trap 'echo bye; exit 0' TERM; sleep 600 & echo ready; wait")
	cmd.Grace = patience
	want(t, "stdout", string(s.timedOut(t, cmd, "ready").Stdout), "ready\nbye\n")
}

func timeoutDeaf(t *testing.T, s subject) {
	cmd := s.command("trap '' TERM HUP INT; echo deaf; while :; do sleep 600; done")
	cmd.Grace = 200 * time.Millisecond
	want(t, "stdout", string(s.timedOut(t, cmd, "deaf").Stdout), "deaf\n")
}

func timeoutTree(t *testing.T, s subject) {
	cmd := s.command("rm -f beats\n" + beating + "sleep 600")
	cmd.Grace = 100 * time.Millisecond
	want(t, "stdout", string(s.timedOut(t, cmd, "beating").Stdout), "beating\n")
	s.wantSilence(t)
}

func timeoutUnused(t *testing.T, s subject) {
	cmd := s.command("echo x")
	cmd.Timeout, cmd.Grace = s.long(), 10*time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Run(ctx, cmd); err != nil {
		t.Error(err)
	}
}

func cancelBefore(t *testing.T, s subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := s.Run(ctx, s.command("touch ran"))
	if !isCancelled(err) || res.Started {
		t.Errorf("error %v, Started %v", err, res.Started)
	}
	want(t, "files", s.sh(t, "ls"), "")
}

func cancelDuring(t *testing.T, s subject) {
	s.needLiveRuns(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := listenFor("ready")
	cmd := s.command("trap '' TERM; echo ready; sleep 600; echo after")
	cmd.Output, cmd.Timeout, cmd.Grace = h.output, 10*time.Minute, 10*time.Minute
	done := s.start(ctx, cmd)
	receive(t, "the start", h.arrived)
	cancel()
	o := receive(t, "the end", done)
	if !isCancelled(o.err) {
		t.Errorf("error %v, want context.Canceled", o.err)
	}
	want(t, "Started", o.res.Started, true)
	want(t, "TimedOut", o.res.TimedOut, false)
	want(t, "stdout", string(o.res.Stdout), "ready\n")
}

func cancelTree(t *testing.T, s subject) {
	s.needLiveRuns(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := listenFor("beating")
	cmd := s.command(beating + "sleep 600")
	cmd.Output, cmd.Timeout = h.output, 10*time.Minute
	done := s.start(ctx, cmd)
	receive(t, "the first beat", h.arrived)
	cancel()
	if o := receive(t, "the end", done); !isCancelled(o.err) {
		t.Errorf("error %v, want context.Canceled", o.err)
	}
	s.wantSilence(t)
}

func cancelOne(t *testing.T, s subject) {
	s.needLiveRuns(t)
	s = s.together(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h1, h2 := listenFor("ready"), listenFor("ready")
	one, two := s.command("echo ready; sleep 600"), s.command("echo ready; until [ -e go ]; do sleep 0.02; done; echo done")
	one.Output, two.Output = h1.output, h2.output
	done1, done2 := s.start(ctx, one), s.start(t.Context(), two)
	receive(t, "the first run", h1.arrived)
	receive(t, "the second run", h2.arrived)
	cancel()
	if o := receive(t, "the end of the first", done1); !isCancelled(o.err) {
		t.Errorf("first run: %v", o.err)
	}
	s.sh(t, "touch go")
	if o := receive(t, "the end of the second", done2); o.err != nil || string(o.res.Stdout) != "ready\ndone\n" {
		t.Errorf("second run: %q, %v", o.res.Stdout, o.err)
	}
}

func backgroundProcess(t *testing.T, s subject) {
	done := s.start(t.Context(), s.command("sleep 600 & echo done; exit 5")) // it holds our pipes
	o := receive(t, "the end", done)
	if o.err != nil || o.res.ExitCode != 5 || string(o.res.Stdout) != "done\n" || o.res.TimedOut {
		t.Errorf("%+v, %v", o.res, o.err)
	}
}

func backgroundGone(t *testing.T, s subject) {
	want(t, "stdout", s.sh(t, beating), "beating")
	s.wantSilence(t)
}
