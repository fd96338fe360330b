package providertest

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// jobKillsParent accepts any correct behaviour: the parent may be unreachable, its end may end the box, and the job's exit code may be
// unknown.
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

func jobLeaves(t *testing.T, s jobSubject) {
	e := s.start(t, beating+"exit 4").wantEnd(t, 4)
	if e.ChildrenLeft < 1 {
		t.Errorf("ChildrenLeft is %d: a process was left behind", e.ChildrenLeft)
	}
	want(t, "printed", string(e.Tail), "beating\n")
	s.wantSilence(t)
}

func jobSignals(t *testing.T, s jobSubject) {
	j := s.start(t, "trap 'echo usr1' USR1; trap 'echo int; exit 9' INT; echo ready; while :; do sleep 0.05; done")
	j.awaitWord(t, "ready")
	j.signal(t, "USR1")
	j.awaitWord(t, "usr1")
	j.signal(t, "STOP")
	j.signal(t, "CONT")
	j.until(t, "the word int", func() bool { // again: bash forgets one that comes while the program that it waits for ends by itself
		_ = s.control.SignalJob(t.Context(), j.ref, "INT") // refused once it has ended
		return strings.Contains(string(j.logs(t, 0, schemas.MaxJobLogPage).Data), "int")
	})
	j.wantEnd(t, 9)
	killed := s.start(t, "exec sleep 600")
	killed.signal(t, "KILL")
	killed.wantEnd(t, 137)
}

func jobStop(t *testing.T, s jobSubject) {
	j := s.start(t, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
	j.awaitWord(t, "ready")
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
	plain.awaitWord(t, "ready")
	plain.stop(t, patience)
	want(t, "exit code", plain.end(t).ExitCode, 143)
}

func jobStopDeaf(t *testing.T, s jobSubject) {
	j := s.start(t, "trap '' TERM HUP INT; echo ready; while :; do sleep 600; done")
	j.awaitWord(t, "ready")
	j.stop(t, 200*time.Millisecond)
	e := j.end(t)
	want(t, "Stopped", e.Stopped, true)
	want(t, "exit code", e.ExitCode, 137)
}

func jobStopTree(t *testing.T, s jobSubject) {
	j := s.start(t, beating+"sleep 600")
	j.awaitWord(t, "beating")
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
	j.awaitWord(t, "ready")
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

func jobReleased(t *testing.T, s jobSubject) {
	j := s.start(t, beating+"sleep 600")
	j.awaitWord(t, "beating")
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
