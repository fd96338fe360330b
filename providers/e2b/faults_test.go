package e2b_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/schemas"
)

// The routes that faults are for.
const (
	create  = "POST /sandboxes"
	list    = "GET /v2/sandboxes"
	begin   = "POST /process.Process/Start"
	input   = "POST /process.Process/SendInput"
	killBox = "DELETE /sandboxes/*"
)

// ran counts how often the script of [TestFaults] was carried out.
func ran(t *testing.T, s *e2btest.Service) int {
	t.Helper()
	var dirs []string
	for _, name := range s.Volumes() {
		dirs = append(dirs, s.Volume(name))
	}
	return cloudtest.Ran(t, dirs)
}

// TestFaults: each fault has one outcome, and whatever happens a command that was started is not started again.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []e2btest.Fault
		code    schemas.Code // empty: it succeeds
		started bool
		or      bool // it may succeed in place of the code: that depends on which answer arrives first
		most    int  // how often it may have run
		skew    time.Duration
	}{
		"too many requests, and when to come again": {
			faults: fault(create, http.StatusTooManyRequests, 1),
			code:   schemas.Exhausted,
		},
		"too many requests, and no word on when": {
			faults: fault(create, http.StatusTooManyRequests, -1),
			code:   schemas.Exhausted,
		},
		"too many lists, and when to come again": {
			faults:  fault(list, http.StatusTooManyRequests, 0),
			started: true, most: 1,
		},
		"no node has room": {
			faults:  fault(create, http.StatusServiceUnavailable, 0),
			started: true, most: 1,
		},
		"the service fails to make a sandbox": {
			faults: fault(create, http.StatusInternalServerError, -1),
			code:   schemas.Unavailable,
		},
		"the key is not taken": {
			faults: fault(create, http.StatusUnauthorized, -1),
			code:   schemas.Denied,
		},
		"the connection breaks before a sandbox is made": {
			faults: []e2btest.Fault{{Route: create, Drop: e2btest.Before}},
			code:   schemas.Unavailable,
		},
		"the answer is lost after a sandbox was made": {
			faults:  []e2btest.Fault{{Route: create, Drop: e2btest.After}},
			started: true, most: 1,
		},
		"half of the answer comes after a sandbox was made": {
			faults:  []e2btest.Fault{{Route: create, Drop: e2btest.Half}},
			started: true, most: 1,
		},
		"a clock that is behind": {skew: -time.Hour, started: true, most: 1},
		"a clock that is ahead":  {skew: time.Hour, started: true, most: 1},
		"the start of the program fails": {
			faults: []e2btest.Fault{{Route: begin, Pass: 1, Status: 500}},
			code:   schemas.Unavailable,
		},
		"the connection breaks before the program starts": {
			faults: []e2btest.Fault{{Route: begin, Pass: 1, Drop: e2btest.Before}},
			code:   schemas.Unavailable,
		},
		"the token of the sandbox is not taken": {
			faults: []e2btest.Fault{{Route: begin, Pass: 1, Status: 401}},
			code:   schemas.Denied,
		},
		"the input does not arrive": {
			faults: []e2btest.Fault{{Route: input, Drop: e2btest.Before}},
			code:   schemas.Unavailable,
		},
		"the word to start does not arrive": {
			faults: []e2btest.Fault{{Route: input, Pass: 1, Drop: e2btest.Before}},
			code:   schemas.Interrupted, started: true,
		},
		"the answer to the word to start is lost": {
			faults: []e2btest.Fault{{Route: input, Pass: 1, Drop: e2btest.After}},
			code:   schemas.Interrupted, or: true, started: true, most: 1,
		},
		"a slow service": {
			faults:  []e2btest.Fault{{Route: create, Slow: 200 * time.Millisecond}},
			started: true, most: 1,
		},
		"the end of the sandbox is answered with an error": {
			faults:  fault(killBox, http.StatusBadGateway, 0),
			started: true, most: 1,
		},
		"the end of the sandbox is not answered": {
			faults:  []e2btest.Fault{{Route: killBox, Drop: e2btest.After}},
			started: true, most: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			longtest.Sample(t, name, 3)
			t.Parallel()
			p, s := start(t, e2btest.Options{Skew: c.skew}, func(o *e2b.Options) { o.Start = 5 * time.Second })
			for _, f := range c.faults {
				s.Fail(f)
			}
			res, err := p.Run(t.Context(), command("echo x >>ran; echo done"))
			if wanted := schemas.CodeOf(err) == c.code || err == nil && c.or; !wanted || res.Started != c.started {
				t.Errorf("started %v, %v, want %v and code %q", res.Started, err, c.started, c.code)
			}
			if err == nil && string(res.Stdout) != "done\n" {
				t.Errorf("it printed %q", res.Stdout)
			}
			if n := ran(t, s); n > c.most || err == nil && n != 1 {
				t.Errorf("it ran %d times", n)
			}
			if err != nil && strings.Contains(err.Error(), e2btest.Key) {
				t.Errorf("the key is shown: %v", err)
			}
		})
	}
}

func fault(route string, status, after int) []e2btest.Fault {
	return []e2btest.Fault{{Route: route, Status: status, RetryAfter: after}}
}

// TestStreamBreaks: the connection to a command in a kept sandbox breaks while it runs. What the command has done is unknown then, and
// nothing of it keeps running.
func TestStreamBreaks(t *testing.T) {
	t.Parallel()
	p, s := start(t, e2btest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo x >>ran; echo ready; setsid sleep 600 & sleep 600")
	cmd.Output = func(c providers.Chunk) {
		if strings.Contains(string(c.Data), "ready") {
			go s.CutStreams()
		}
	}
	res, err := p.Run(t.Context(), cmd)
	if schemas.CodeOf(err) != schemas.Interrupted || !res.Started || ran(t, s) != 1 {
		t.Errorf("%v, %+v, ran %d times", err, res, ran(t, s))
	}
	if got := ok(t, p, in(ref, cloudtest.Sleepers)); got != "0" {
		t.Errorf("%s processes of the command are left", got)
	}
}

// TestSandboxEnds: the sandbox ends while a command runs in it.
func TestSandboxEnds(t *testing.T) {
	t.Parallel()
	p, s := start(t, e2btest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo ready; sleep 600")
	cmd.Output = func(providers.Chunk) { go s.End(ref.ID) }
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
		t.Errorf("%v, %+v", err, res)
	}
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run in a sandbox that is gone: %v", err)
	}
}

// TestIdle: the service pauses a kept sandbox at the end of its time; a run says so, and a reservation wakes the same one.
func TestIdle(t *testing.T) {
	t.Parallel()
	p, s := start(t, e2btest.Options{}, nil)
	ref := reserve(t, p)
	ok(t, p, in(ref, "echo kept >/tmp/kept"))
	s.Expire(ref.ID)
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run in a paused sandbox: %v", err)
	}
	if again := reserve(t, p); again != ref {
		t.Errorf("woken is %+v, want %+v", again, ref)
	}
	if got := ok(t, p, in(ref, "cat /tmp/kept")); got != "kept" {
		t.Errorf("got %q", got)
	}
}

// TestWorkersRace: several workers reserve one key at once, though lists lag behind, and get the same sandbox.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	s, url := e2btest.Start(t, e2btest.Options{ListLag: 2})
	workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
	refs := cloudtest.Race(t, workers, "key", spec())
	again, err := on(t, url, nil).Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	if len(refs) != 1 || refs[again] == 0 {
		t.Errorf("they got %v, and then %v", refs, again)
	}
	if left := s.Boxes(); len(left) != 1 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestWorkersTakeTurns: several workers have all asked for the sandbox of one key, and one has it before the next one's is made. They get
// the same, whatever the service says of when each was started.
func TestWorkersTakeTurns(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]time.Duration{"in their order": time.Second, "in the other order": -time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := e2btest.Start(t, e2btest.Options{ListLag: 2, Later: later})
			workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
			hold := func(held func()) { s.Fail(e2btest.Fault{Route: create, Hold: held}) }
			refs := cloudtest.Turns(t, workers, hold, "key", spec())
			if left := s.Boxes(); len(refs) != 1 || len(left) != 1 || s.Made() != len(workers) {
				t.Errorf("they got %v; %v are left of %d", refs, left, s.Made())
			}
		})
	}
}

// TestASandboxThatEndsBeforeItIsMine: a worker finds the sandbox of a key and has woken it, and it is killed before its mark is read, or
// after that and before its folders are made.
func TestASandboxThatEndsBeforeItIsMine(t *testing.T) {
	t.Parallel()
	const route = "POST /process.Process/Start"
	for when, passes := range map[string]int{"before its mark is read": 0, "before its folders are made": 1} {
		for who, fail := range map[string]func(s *e2btest.Service, end func()){
			"its router and its service know": func(s *e2btest.Service, end func()) {
				s.Fail(e2btest.Fault{Route: route, Pass: passes, Hold: end})
			},
			"its router knows first": func(s *e2btest.Service, end func()) { // the service has woken it, and forgets it afterwards
				s.Fail(e2btest.Fault{Route: route, Pass: passes, Status: http.StatusBadGateway})
				s.Fail(e2btest.Fault{Route: route, Hold: end})
			},
		} {
			t.Run(when+", "+who, func(t *testing.T) {
				t.Parallel()
				s, url := e2btest.Start(t, e2btest.Options{})
				former := reserve(t, on(t, url, nil))
				fail(s, func() {
					s.End(former.ID)
					testwait.Eventually(t, "it has ended", func() bool { return !slices.Contains(s.Boxes(), former.ID) })
				})
				if ref, err := on(t, url, nil).Reserve(t.Context(), t.Name(), spec()); err != nil || ref == former {
					t.Errorf("it got %v, %v", ref, err)
				}
			})
		}
	}
}

// TestCaps: no more sandboxes are made than may be, by this worker's settings or by the plan.
func TestCaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ours, plan int }{"of the worker": {1, 20}, "of the plan": {20, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, e2btest.Options{MaxRunning: c.plan}, func(o *e2b.Options) { o.Sandboxes = c.ours })
			reserve(t, p)
			if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Exhausted || res.Started {
				t.Errorf("got %v, %+v", err, res)
			}
			if s.Made() != 1 {
				t.Errorf("%d sandboxes were made", s.Made())
			}
		})
	}
}

// TestCancelledCreate: who cancels while a sandbox is being made leaves none.
func TestCancelledCreate(t *testing.T) {
	t.Parallel()
	p, s := start(t, e2btest.Options{}, nil)
	s.Fail(e2btest.Fault{Route: create, Slow: time.Second})
	cloudtest.CancelledCreate(t, p, command("true"))
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestDeadWorker: what a run of a worker that has died has started is found by its id and ended, in its own sandbox and in a kept one.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	s, url := e2btest.Start(t, e2btest.Options{})
	dead, alive := on(t, url, nil), on(t, url, nil)
	ref, err := dead.Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	runs := map[string]providers.Command{"own": command("echo x >>ran; sleep 600"), "kept": in(ref, "echo x >>ran; sleep 600")}
	cloudtest.DeadWorker(t, dead, alive, "key", account, runs, func() int { return ran(t, s) })
	if got := ok(t, alive, in(ref, cloudtest.Sleepers)); got != "0" {
		t.Errorf("%s processes are left", got)
	}
	testwait.OK(t, alive.Release(t.Context(), ref))
	testwait.OK(t, dead.Close())
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestRootProcess: a command that has become root is ended alone, and its sandbox lives on.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestRootProcess(t *testing.T) {
	t.Parallel()
	p, _ := start(t, e2btest.Options{}, nil)
	ref := reserve(t, p)
	cloudtest.RootProcess(t, p, t.Name(), account, func(script string) providers.Command { return in(ref, script) })
}

// TestRootProcessTimesOut: a command that has become root, and that its own user cannot kill, has timed out, and its sandbox lives on.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestRootProcessTimesOut(t *testing.T) {
	t.Parallel()
	p, _ := start(t, e2btest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "sudo -n sleep 600")
	cmd.Timeout, cmd.Grace = time.Second, time.Second
	if res, err := p.Run(t.Context(), cmd); err != nil || !res.TimedOut {
		t.Errorf("%v, %+v, want a timeout", err, res)
	}
	if got := ok(t, p, in(ref, cloudtest.Sleepers)); got != "0" {
		t.Errorf("%s processes of the command are left", got)
	}
}

// TestSweepFails: the daemon of a sandbox does not answer for a moment, or for longer than the end of a run is tried. Its sandbox lives
// on with what is in it, because it is not shown that its processes cannot be ended.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestSweepFails(t *testing.T) {
	t.Parallel()
	const sweeps = "sandjet-run" // only a sweep as root is sent with it by EndRun
	for name, c := range map[string]struct {
		fault e2btest.Fault
		code  schemas.Code
	}{
		"once":               {e2btest.Fault{Status: http.StatusBadGateway}, ""},
		"twice, and dropped": {e2btest.Fault{Drop: e2btest.Before, Times: 2}, ""},
		"all the time":       {e2btest.Fault{Status: http.StatusInternalServerError, Times: 1000}, schemas.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, e2btest.Options{}, nil)
			ref := reserve(t, p)
			c.fault.Route, c.fault.Has = begin, sweeps
			s.Fail(c.fault)
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			if err := p.EndRun(ctx, t.Name(), account, "run"); schemas.CodeOf(err) != c.code {
				t.Errorf("got %v, want code %q", err, c.code)
			}
			if left := s.Boxes(); !slices.Contains(left, ref.ID) {
				t.Errorf("the sandbox was ended: %v are left", left)
			}
		})
	}
}

// TestCapRace: two workers make a sandbox at the same moment when one may run. One of them deletes its sandbox before its command starts.
func TestCapRace(t *testing.T) {
	t.Parallel()
	s, url := e2btest.Start(t, e2btest.Options{})
	one := func(o *e2b.Options) { o.Sandboxes = 1 }
	cmd := command("true")
	cmd.Mounts, cmd.Spec.Mounts = nil, nil
	cloudtest.CapRace(t, [2]cloudtest.Provider{on(t, url, one), on(t, url, one)}, func(held func()) {
		s.Fail(e2btest.Fault{Route: create, Hold: held})
	}, cmd)
}

// TestCapLag: what a worker has started counts also while lists do not show it.
func TestCapLag(t *testing.T) {
	t.Parallel()
	p, _ := start(t, e2btest.Options{ListLag: 20}, func(o *e2b.Options) { o.Sandboxes = 1 })
	cloudtest.CapLag(t, p, func(script string) providers.Command {
		cmd := command(script)
		cmd.Mounts, cmd.Spec.Mounts = nil, nil
		return cmd
	})
}

// TestCapWake: a sandbox that rests is woken only where one more may run.
func TestCapWake(t *testing.T) {
	t.Parallel()
	s, url := e2btest.Start(t, e2btest.Options{})
	one := func(o *e2b.Options) { o.Sandboxes = 1 }
	p, other := on(t, url, one), on(t, url, one)
	cloudtest.CapWake(t, p, other, spec())
	testwait.OK(t, p.Close())
	testwait.OK(t, other.Close())
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
