package vercel_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/providers/vercel"
	"github.com/sandjet/sandjet/providers/vercel/verceltest"
	"github.com/sandjet/sandjet/schemas"
)

// The routes that faults are for, and what a command of each kind has in its body.
const (
	create  = "POST /v3/sandboxes"
	list    = "GET /v2/sandboxes"
	look    = "GET /v2/sandboxes/*"
	deleted = "DELETE /v2/sandboxes/*"
	cmd     = "POST /cmd"
	write   = "POST /fs/write"
	logs    = "GET /cmd/{id}/logs"
	detail  = "GET /cmd/{id}"

	launches = "mkfifo"
	goes     = `"go\n"`
)

// ran counts how often the script of [TestFaults] was carried out.
func ran(t *testing.T, s *verceltest.Service) int {
	t.Helper()
	return cloudtest.Ran(t, s.Folders())
}

// with makes a fault happen to commands that have a text.
func with(text string, f verceltest.Fault) []verceltest.Fault {
	f.Route, f.Has = cmd, text
	return []verceltest.Fault{f}
}

func status(route string, status, after int) []verceltest.Fault {
	return []verceltest.Fault{{Route: route, Status: status, RetryAfter: after}}
}

// TestFaults: each fault has one outcome, and whatever happens a command that was started is not started again, and no sandbox is left.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []verceltest.Fault
		code    schemas.Code // empty: it succeeds
		started bool
		or      bool // it may succeed in place of the code: that depends on which answer arrives first
		most    int  // how often it may have run
		skew    time.Duration
	}{
		"too many requests, and when to come again": {faults: status(create, http.StatusTooManyRequests, 1), code: schemas.Exhausted},
		"too many requests, and no word on when":    {faults: status(create, http.StatusTooManyRequests, -1), code: schemas.Exhausted},
		"too many lists, and when to come again":    {faults: status(list, http.StatusTooManyRequests, 0), started: true, most: 1},
		"the service is busy":                       {faults: status(create, http.StatusServiceUnavailable, 0), started: true, most: 1},
		"the service fails to make a sandbox":       {faults: status(create, http.StatusInternalServerError, -1), code: schemas.Unavailable},
		"the token is not taken any more":           {faults: status(create, http.StatusUnauthorized, -1), code: schemas.Denied},
		"the token has lost its team":               {faults: status(create, http.StatusForbidden, -1), code: schemas.Denied},
		"the token ends before the command":         {faults: with(launches, verceltest.Fault{Status: 401}), code: schemas.Denied},
		"the connection breaks before a sandbox is made": {
			faults: []verceltest.Fault{{Route: create, Drop: verceltest.Before}}, code: schemas.Unavailable,
		},
		"the answer is lost after a sandbox was made": {
			faults: []verceltest.Fault{{Route: create, Drop: verceltest.After}}, started: true, most: 1,
		},
		"half of the answer comes after a sandbox was made": {
			faults: []verceltest.Fault{{Route: create, Drop: verceltest.Half}}, started: true, most: 1,
		},
		"a look at the sandbox fails":            {faults: status(look, http.StatusBadGateway, -1), started: true, most: 1},
		"the input is written at the second try": {faults: []verceltest.Fault{{Route: write, Drop: verceltest.After}}, started: true, most: 1},
		"the input is not written":               {faults: status(write, http.StatusInsufficientStorage, -1), code: schemas.Exhausted},
		"the connection breaks before the program starts": {
			faults: with(launches, verceltest.Fault{Drop: verceltest.Before}), code: schemas.Unavailable,
		},
		"the answer to the start of the program is lost": {
			faults: with(launches, verceltest.Fault{Drop: verceltest.After}), code: schemas.Unavailable,
		},
		"the start of the program fails":      {faults: with(launches, verceltest.Fault{Status: 500}), code: schemas.Unavailable},
		"too many programs, and when to come": {faults: with(launches, verceltest.Fault{Status: 429, RetryAfter: 1}), code: schemas.Exhausted},
		"the session stops before the start":  {faults: with(launches, verceltest.Fault{Status: 410}), code: schemas.Unavailable},
		"the word to start does not arrive": {
			faults: with(goes, verceltest.Fault{Drop: verceltest.Before}), code: schemas.Interrupted, started: true,
		},
		"the answer to the word to start is lost": {
			faults: with(goes, verceltest.Fault{Drop: verceltest.After}), code: schemas.Interrupted, or: true, started: true, most: 1,
		},
		"the answer to the word to start is an error": {
			faults: with(goes, verceltest.Fault{Status: 502}), code: schemas.Interrupted, started: true,
		},
		"the log cannot be read at first":  {faults: status(logs, http.StatusBadGateway, -1), started: true, most: 1},
		"the log is not known at first":    {faults: status(logs, http.StatusNotFound, -1), started: true, most: 1},
		"too many logs, and when to come":  {faults: status(logs, http.StatusTooManyRequests, 1), started: true, most: 1},
		"the connection of the log breaks": {faults: []verceltest.Fault{{Route: logs, Drop: verceltest.Before}}, started: true, most: 1},
		"neither log nor command is there": {
			faults: []verceltest.Fault{{Route: logs, Status: 502, Times: 2}, {Route: detail, Status: 502, Times: 2}}, started: true, most: 1,
		},
		"the token ends while the log is read": {faults: status(logs, http.StatusUnauthorized, -1), code: schemas.Denied},
		"a slow service": {
			faults:  []verceltest.Fault{{Route: create, Slow: 200 * time.Millisecond}, {Route: logs, Slow: 500 * time.Millisecond}},
			started: true, most: 1,
		},
		"a clock that is behind":                           {skew: -time.Hour, started: true, most: 1},
		"a clock that is ahead":                            {skew: time.Hour, started: true, most: 1},
		"the end of the sandbox is answered with an error": {faults: status(deleted, http.StatusBadGateway, 0), started: true, most: 1},
		"the end of the sandbox is not answered": {
			faults: []verceltest.Fault{{Route: deleted, Drop: verceltest.After}}, started: true, most: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			longtest.Sample(t, name, 3)
			t.Parallel()
			p, s := start(t, verceltest.Options{Skew: c.skew}, func(o *vercel.Options) { o.Start = 15 * time.Second })
			for _, f := range c.faults {
				s.Fail(f)
			}
			res, err := p.Run(t.Context(), command("echo x >>ran; printf 'done\\0\\n'; echo err >&2"))
			if wanted := schemas.CodeOf(err) == c.code || err == nil && c.or; !wanted || res.Started != c.started {
				t.Errorf("started %v, %v, want %v and code %q", res.Started, err, c.started, c.code)
			}
			if err == nil && (string(res.Stdout) != "done\x00\n" || string(res.Stderr) != "err\n") {
				t.Errorf("it printed %q and %q", res.Stdout, res.Stderr)
			}
			if n := ran(t, s); n > c.most || err == nil && n != 1 {
				t.Errorf("it ran %d times", n)
			}
			if err != nil && strings.Contains(err.Error(), verceltest.Token) {
				t.Errorf("the token is shown: %v", err)
			}
		})
	}
}

// TestCutLog: the connection of a log breaks again and again while a command prints: all of it comes, once and in order.
func TestCutLog(t *testing.T) {
	t.Parallel()
	p, s := start(t, verceltest.Options{}, nil)
	c := command("for i in {1..5}; do seq 30000; sleep 0.1; done")
	var cut int
	c.Output = func(providers.Chunk) {
		if cut++; cut%5 == 0 {
			s.CutStreams()
		}
	}
	res, err := p.Run(t.Context(), c)
	testwait.OK(t, err)
	if res.StdoutBytes != 5*168894 || cut < 5 || res.ExitCode != 0 {
		t.Errorf("%d bytes in %d pieces, exit code %d", res.StdoutBytes, cut, res.ExitCode)
	}
}

// TestSilentLog: a command prints much and is silent then, for many times as long as a log may be, while its connection is whole or breaks
// again and again. A log is read from its beginning, so it is read again only where the sandbox has more.
func TestSilentLog(t *testing.T) {
	longtest.Only(t, "seconds of silence on a log")
	t.Parallel()
	for name, cuts := range map[string]int{"a whole connection": 0, "a connection that breaks": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, verceltest.Options{}, nil)
			vercel.SetSilence(p, time.Second)
			const much = 1988895
			c := command("seq 300000; sleep 6; echo done")
			came, silent := 0, make(chan bool, 1)
			c.Output = func(chunk providers.Chunk) {
				if came += len(chunk.Data); came == much {
					silent <- true
				}
			}
			var breaks sync.WaitGroup
			breaks.Go(func() {
				<-silent
				for range cuts {
					time.Sleep(700 * time.Millisecond)
					s.CutStreams()
				}
			})
			res, err := p.Run(t.Context(), c)
			testwait.OK(t, err)
			breaks.Wait()
			if res.StdoutBytes != much+5 || res.ExitCode != 0 {
				t.Errorf("%d bytes, exit code %d", res.StdoutBytes, res.ExitCode)
			}
			const once = int64(much) * 4 / 3
			most := once * 3 / 2 // with what is around it
			if cuts > 0 {
				most += once // for what came after the silence
			}
			if sent := s.Sent(); sent < once || sent > most {
				t.Errorf("%d bytes of logs were sent for %d, want %d at most", sent, once, most)
			}
		})
	}
}

// TestSandboxEnds: the session ends while a command runs in it, in order or by a failure. What the command has done is unknown then.
func TestSandboxEnds(t *testing.T) {
	t.Parallel()
	p, s := start(t, verceltest.Options{}, nil)
	for name, end := range map[string]func(string){"its time is over": s.Expire, "it fails": s.Break} {
		ref := reserve(t, p)
		c := in(ref, "echo x >>ran; echo ready; sleep 600")
		c.Output = func(providers.Chunk) { go end(ref.ID) }
		if res, err := p.Run(t.Context(), c); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
			t.Errorf("%s: %v, %+v", name, err, res)
		}
		if res, err := p.Run(t.Context(), in(ref, "echo x >>ran")); schemas.CodeOf(err) != schemas.NotFound || res.Started {
			t.Errorf("%s: a run in a session that has ended: %v", name, err)
		}
	}
	if n := ran(t, s); n != 2 {
		t.Errorf("they ran %d times", n)
	}
}

// TestIdle: the service stops an idle kept sandbox. A run reports that, and a reservation starts it again with its files, under another
// epoch. It lives for its idle time from then, and a run for its own.
func TestIdle(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, verceltest.Options{Looks: 2}, nil)
	ref := reserve(t, p)
	ok(t, p, in(ref, "echo kept >~/kept"))
	if left := s.Left(ref.ID); left < 14*time.Minute || left > 16*time.Minute {
		t.Errorf("it is left to live %s", left)
	}
	s.Expire(ref.ID)
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run in a stopped sandbox: %v", err)
	}
	again := reserve(t, p)
	if again.ID != ref.ID || again.Epoch == ref.Epoch {
		t.Errorf("it goes on as %+v, was %+v", again, ref)
	}
	if got := ok(t, p, in(again, "cat ~/kept")); got != "kept" {
		t.Errorf("got %q", got)
	}
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run under the epoch before: %v", err)
	}
	long := in(again, "true")
	long.Timeout = 20 * time.Minute
	ok(t, p, long)
	if left := s.Left(ref.ID); left < 21*time.Minute {
		t.Errorf("after a run that may take 20 minutes it is left to live %s", left)
	}
	if s.Snapshots() != 1 || s.Made() != 1 {
		t.Errorf("%d snapshots of %d sandboxes", s.Snapshots(), s.Made())
	}
}

// TestSessionStopsUnderACommand: the session of a kept sandbox is stopped just before a command starts in it, by the service or by another
// worker. The service says that it is stopping, or that a snapshot is made (422): nothing has run. The next try resumes the sandbox, and
// the command runs once.
func TestSessionStopsUnderACommand(t *testing.T) {
	t.Parallel()
	for kind, looks := range map[string]int{"sandbox_stopping": 3, "sandbox_snapshotting": -1} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, verceltest.Options{Looks: looks}, func(o *vercel.Options) { o.Start = 15 * time.Second })
			ref := reserve(t, p)
			s.Fail(verceltest.Fault{Route: cmd, Has: launches, Hold: func() { s.Expire(ref.ID) }})
			res, err := p.Run(t.Context(), in(ref, "echo x >>ran"))
			if said, _ := errors.AsType[*cloud.Error](err); said == nil || said.Status != http.StatusUnprocessableEntity || said.Kind != kind {
				t.Errorf("the service said %+v, want 422 %s", said, kind)
			}
			if schemas.CodeOf(err) != schemas.NotFound || res.Started || ran(t, s) != 0 {
				t.Errorf("%v, %+v, ran %d times", err, res, ran(t, s))
			}
			again := reserve(t, p)
			ok(t, p, in(again, "echo x >>ran"))
			if again.ID != ref.ID || again.Epoch == ref.Epoch || ran(t, s) != 1 || s.Made() != 1 {
				t.Errorf("it goes on as %+v, was %+v; ran %d times, %d were made", again, ref, ran(t, s), s.Made())
			}
		})
	}
}

// TestPlanIsShort: where the plan grants a session no more time, a run that does not fit is not started.
func TestPlanIsShort(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, verceltest.Options{MaxTimeout: 16 * time.Minute}, nil)
	ref := reserve(t, p)
	ok(t, p, in(ref, "true"))
	long := in(ref, "echo x >>ran")
	long.Timeout = 20 * time.Minute
	if res, err := p.Run(t.Context(), long); schemas.CodeOf(err) != schemas.Unavailable || res.Started || ran(t, s) != 0 {
		t.Errorf("%v, %+v", err, res)
	}
}

// TestFilesAreLost: a kept sandbox whose snapshot is gone is created again.
func TestFilesAreLost(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, verceltest.Options{}, nil)
	ref := reserve(t, p)
	testwait.OK(t, p.Pause(t.Context(), ref))
	s.Forget(ref.ID)
	again := reserve(t, p)
	if before, _, _ := strings.Cut(ref.Epoch, "."); strings.HasPrefix(again.Epoch, before) || s.Made() != 2 {
		t.Errorf("it is %+v, was %+v; %d were made", again, ref, s.Made())
	}
	testwait.OK(t, p.Release(t.Context(), ref)) // does not touch the new one
	ok(t, p, in(again, "true"))
}

// TestWorkspaceInUse: a call that needs a workspace which another sandbox has waits for it, and is answered to try again.
func TestWorkspaceInUse(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	_, url := verceltest.Start(t, verceltest.Options{})
	p := on(t, url, nil)
	ref := reserve(t, p)
	ok(t, p, in(ref, "echo seen >file"))
	hasty := on(t, url, func(o *vercel.Options) { o.Start = 10 * time.Second }) // it stops waiting within the test
	if res, err := hasty.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Exhausted || res.Started {
		t.Errorf("%v, %+v", err, res)
	}
	read := command("cat file; ! touch file")
	read.Mounts = []providers.Mount{{Namespace: "ws-1", ReadOnly: true}}
	if got := ok(t, p, read); got != "seen" {
		t.Errorf("a reader sees %q", got)
	}
	testwait.OK(t, p.Pause(t.Context(), ref))
	if got := ok(t, p, command("cat file")); got != "seen" {
		t.Errorf("the next one sees %q", got)
	}
}

// TestWorkersRace: several workers reserve one key at once, though lists lag behind, and get the same sandbox.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	s, url := verceltest.Start(t, verceltest.Options{ListLag: 2, Looks: 2})
	workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
	refs := cloudtest.Race(t, workers, "key", spec())
	if left := s.Boxes(); len(refs) != 1 || len(left) != 1 || s.Made() != 1 {
		t.Errorf("they got %v; %v are left of %d", refs, left, s.Made())
	}
}

// TestCaps: no more sandboxes are made than may be, by this worker's settings or by the team's share.
func TestCaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ours, share int }{"of the worker": {1, 20}, "of the team": {20, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, verceltest.Options{MaxRunning: c.share}, func(o *vercel.Options) { o.Sandboxes = c.ours })
			reserve(t, p)
			c := command("true")
			c.Mounts, c.Spec.Mounts = nil, nil
			if res, err := p.Run(t.Context(), c); schemas.CodeOf(err) != schemas.Exhausted || res.Started {
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
	p, s := start(t, verceltest.Options{}, nil)
	s.Fail(verceltest.Fault{Route: create, Slow: 300 * time.Millisecond})
	cloudtest.CancelledCreate(t, p, command("true"))
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestDeadWorker: what a run of a dead worker has started is found by its id and ended, in a separate sandbox and in a kept one. A
// sandbox of a run whose session has ended is deleted by the next worker that makes one.
func TestDeadWorker(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	s, url := verceltest.Start(t, verceltest.Options{Looks: -1})
	dead, alive := on(t, url, nil), on(t, url, nil)
	ref, err := dead.Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	bare := func(script string) providers.Command {
		c := command(script)
		c.Mounts, c.Spec.Mounts = nil, nil
		return c
	}
	begun := make(chan string, 3)
	var all sync.WaitGroup
	for id, c := range map[string]providers.Command{
		"own": bare("echo ready; sleep 600"), "left": bare("echo ready; sleep 600"), "kept": in(ref, "echo ready; sleep 600"),
	} {
		c.ID = id
		c.Output = func(providers.Chunk) { begun <- id }
		all.Go(func() {
			if res, err := dead.Run(t.Context(), c); err == nil && res.ExitCode == 0 {
				t.Errorf("it went on to its end: %+v", res)
			}
		})
	}
	for range 3 {
		<-begun
	}
	for _, id := range []string{"own", "kept", "none"} {
		testwait.OK(t, alive.EndRun(t.Context(), "key", account, id))
	}
	for _, name := range s.Boxes() {
		if name != ref.ID {
			s.Fail(verceltest.Fault{Route: deleted, Status: 400, RetryAfter: -1, Times: 3}) // it is not deleted
			s.Expire(name)
		}
	}
	all.Wait()
	if got := ok(t, alive, in(ref, cloudtest.Sleepers)); got != "0" {
		t.Errorf("%s processes are left", got)
	}
	testwait.OK(t, dead.Close())
	for _, name := range s.Boxes() {
		s.Age(name, time.Hour)
	}
	if left := s.Boxes(); len(left) != 2 {
		t.Errorf("there are %v, want the kept one and one that nobody has deleted", left)
	}
	ok(t, alive, bare("true"))
	testwait.OK(t, alive.Release(t.Context(), ref))
	testwait.OK(t, alive.Close())
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestRootProcess: a command that has become root is ended alone, and its sandbox lives on.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestRootProcess(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, verceltest.Options{}, nil)
	ref := reserve(t, p)
	cloudtest.RootProcess(t, p, t.Name(), account, func(script string) providers.Command { return in(ref, script) })
}

// TestCapRace: two workers make a sandbox at the same moment when one may run. One of them deletes its sandbox before its command starts.
func TestCapRace(t *testing.T) {
	t.Parallel()
	s, url := verceltest.Start(t, verceltest.Options{})
	one := func(o *vercel.Options) { o.Sandboxes = 1 }
	cmd := command("true")
	cmd.Mounts, cmd.Spec.Mounts = nil, nil
	cloudtest.CapRace(t, [2]cloudtest.Provider{on(t, url, one), on(t, url, one)}, func(held func()) {
		s.Fail(verceltest.Fault{Route: create, Hold: held})
	}, cmd)
}

// TestCapLag: what a worker has started counts also while lists do not show it.
func TestCapLag(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, verceltest.Options{ListLag: 20}, func(o *vercel.Options) { o.Sandboxes = 1 })
	cloudtest.CapLag(t, p, func(script string) providers.Command {
		cmd := command(script)
		cmd.Mounts, cmd.Spec.Mounts = nil, nil
		return cmd
	})
}

// TestCapWake: a sandbox that rests is woken only where one more may run.
func TestCapWake(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	s, url := verceltest.Start(t, verceltest.Options{})
	one := func(o *vercel.Options) { o.Sandboxes = 1 }
	p, other := on(t, url, one), on(t, url, one)
	cloudtest.CapWake(t, p, other, spec())
	testwait.OK(t, p.Close())
	testwait.OK(t, other.Close())
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
