package daytona_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/daytona"
	"github.com/sandjet/sandjet/providers/daytona/daytonatest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/schemas"
)

// The routes that faults are for, and what a command of each kind has in its body.
const (
	create  = "POST /sandbox"
	list    = "GET /sandbox"
	look    = "GET /sandbox/*"
	deleted = "DELETE /sandbox/*"
	execute = "POST /process/execute"
	upload  = "POST /files/bulk-upload"

	begins  = "mkfifo"
	fetches = "until=$((SECONDS"
	goes    = `'go\n'`
)

// ran counts how often the script of [TestFaults] was carried out.
func ran(t *testing.T, s *daytonatest.Service) int {
	t.Helper()
	return cloudtest.Ran(t, s.Folders())
}

// with makes a fault happen to commands that have a text.
func with(text string, f daytonatest.Fault) []daytonatest.Fault {
	f.Route, f.Has = execute, text
	return []daytonatest.Fault{f}
}

func status(route string, status, after int) []daytonatest.Fault {
	return []daytonatest.Fault{{Route: route, Status: status, RetryAfter: after}}
}

// TestFaults: each fault has one outcome, and whatever happens a command that was started is not started again, and no sandbox is left.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []daytonatest.Fault
		code    schemas.Code // empty: it succeeds
		started bool
		or      bool // it may succeed in place of the code: that depends on which answer arrives first
		most    int  // how often it may have run
		stdin   int  // bytes
		skew    time.Duration
	}{
		"too many requests, and when to come again": {faults: status(create, http.StatusTooManyRequests, 1), code: schemas.Exhausted},
		"too many requests, and no word on when":    {faults: status(create, http.StatusTooManyRequests, -1), code: schemas.Exhausted},
		"too many lists, and when to come again":    {faults: status(list, http.StatusTooManyRequests, 0), started: true, most: 1},
		"the service is busy":                       {faults: status(create, http.StatusServiceUnavailable, 0), started: true, most: 1},
		"the service fails to make a sandbox":       {faults: status(create, http.StatusInternalServerError, -1), code: schemas.Unavailable},
		"the key is not taken any more":             {faults: status(create, http.StatusUnauthorized, -1), code: schemas.Denied},
		"the key is not taken in the sandbox":       {faults: with(begins, daytonatest.Fault{Status: 401}), code: schemas.Denied},
		"the connection breaks before a sandbox is made": {
			faults: []daytonatest.Fault{{Route: create, Drop: daytonatest.Before}}, code: schemas.Unavailable,
		},
		"the answer is lost after a sandbox was made": {
			faults: []daytonatest.Fault{{Route: create, Drop: daytonatest.After}}, started: true, most: 1,
		},
		"half of the answer comes after a sandbox was made": {
			faults: []daytonatest.Fault{{Route: create, Drop: daytonatest.Half}}, started: true, most: 1,
		},
		"a look at the sandbox fails": {faults: status(look, http.StatusBadGateway, -1), started: true, most: 1},
		"the connection breaks before the program starts": {
			faults: with(begins, daytonatest.Fault{Drop: daytonatest.Before}), code: schemas.Unavailable,
		},
		"the answer to the start of the program is lost": {
			faults: with(begins, daytonatest.Fault{Drop: daytonatest.After}), code: schemas.Unavailable,
		},
		"the start of the program fails": {faults: with(begins, daytonatest.Fault{Status: 500}), code: schemas.Unavailable},
		"the input arrives at the second try": {
			faults: []daytonatest.Fault{{Route: upload, Drop: daytonatest.After}}, started: true, most: 1, stdin: 200_000,
		},
		"the input does not arrive": {
			faults: []daytonatest.Fault{{Route: upload, Status: 507}}, code: schemas.Exhausted, stdin: 200_000,
		},
		"the word to start does not arrive": {
			faults: with(goes, daytonatest.Fault{Drop: daytonatest.Before}), code: schemas.Interrupted, started: true,
		},
		"the answer to the word to start is lost": {
			faults: with(goes, daytonatest.Fault{Drop: daytonatest.After}), code: schemas.Interrupted, or: true, started: true, most: 1,
		},
		"output is lost on its way": {
			faults: with(fetches, daytonatest.Fault{Pass: 1, Drop: daytonatest.After}), started: true, most: 1,
		},
		"half of the output arrives":         {faults: with(fetches, daytonatest.Fault{Pass: 1, Drop: daytonatest.Half}), started: true, most: 1},
		"the proxy fails while output comes": {faults: with(fetches, daytonatest.Fault{Times: 3, Status: 502}), started: true, most: 1},
		"too many fetches, and when to come again": {
			faults: with(fetches, daytonatest.Fault{Pass: 1, Status: 429, RetryAfter: 1}), started: true, most: 1,
		},
		"the key ends while the command runs": {
			faults: with(fetches, daytonatest.Fault{Pass: 1, Status: 401}), code: schemas.Interrupted, started: true, most: 1,
		},
		"a toolbox that ends what it runs": {
			faults: with(fetches, daytonatest.Fault{Pass: 1, Status: 408}), code: schemas.Interrupted, started: true, most: 1,
		},
		"a slow service": {
			faults:  []daytonatest.Fault{{Route: create, Slow: 200 * time.Millisecond}, {Route: execute, Slow: 200 * time.Millisecond}},
			started: true, most: 1,
		},
		"a clock that is behind":                           {skew: -time.Hour, started: true, most: 1},
		"a clock that is ahead":                            {skew: time.Hour, started: true, most: 1},
		"the end of the sandbox is answered with an error": {faults: status(deleted, http.StatusBadGateway, 0), started: true, most: 1},
		"the end of the sandbox is not answered": {
			faults: []daytonatest.Fault{{Route: deleted, Drop: daytonatest.After}}, started: true, most: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			longtest.Sample(t, name, 3)
			t.Parallel()
			p, s := start(t, daytonatest.Options{Skew: c.skew}, func(o *daytona.Options) { o.Start = 5 * time.Second })
			for _, f := range c.faults {
				s.Fail(f)
			}
			cmd := command("echo x >>ran; printf 'done\\0\\n'; echo err >&2")
			cmd.Stdin = make([]byte, c.stdin)
			res, err := p.Run(t.Context(), cmd)
			if wanted := schemas.CodeOf(err) == c.code || err == nil && c.or; !wanted || res.Started != c.started {
				t.Errorf("started %v, %v, want %v and code %q", res.Started, err, c.started, c.code)
			}
			if err == nil && (string(res.Stdout) != "done\x00\n" || string(res.Stderr) != "err\n") {
				t.Errorf("it printed %q and %q", res.Stdout, res.Stderr)
			}
			if n := ran(t, s); n > c.most || err == nil && n != 1 {
				t.Errorf("it ran %d times", n)
			}
			if err != nil && strings.Contains(err.Error(), daytonatest.Key) {
				t.Errorf("the key is shown: %v", err)
			}
		})
	}
}

// TestWayIsCut: the sandbox becomes unreachable while a command runs in a kept one. What the command has done is unknown then, and
// nothing of it keeps running.
func TestWayIsCut(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo x >>ran; echo ready; setsid sleep 600 & sleep 600")
	cmd.Output = func(c providers.Chunk) {
		if strings.Contains(string(c.Data), "ready") {
			s.Fail(daytonatest.Fault{Route: execute, Has: fetches, Times: 1, Status: 404})
			s.Fail(daytonatest.Fault{Route: execute, Has: `'kill\n'`, Times: 1, Status: 502})
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
	p, s := start(t, daytonatest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo ready; sleep 600")
	cmd.Output = func(providers.Chunk) { go s.Break(ref.ID) }
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
		t.Errorf("%v, %+v", err, res)
	}
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run in a sandbox that is gone: %v", err)
	}
}

// TestLostReserve: the answer to the create of a kept sandbox is lost. It is the one that is used, by this worker and by others.
func TestLostReserve(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, nil)
	s.Fail(daytonatest.Fault{Route: create, Drop: daytonatest.After})
	ref := reserve(t, p)
	if got := ok(t, p, in(ref, "echo ran")); got != "ran" || s.Made() != 1 {
		t.Errorf("%q, and %d sandboxes were made", got, s.Made())
	}
}

// TestIdle: the service stops an idle kept sandbox. A run reports that, and a reservation starts the same one, under another epoch. The
// sandbox of a single run is deleted by the service.
func TestIdle(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, nil)
	ref := reserve(t, p)
	ok(t, p, in(ref, "echo kept >~/kept"))
	s.Idle(ref.ID)
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run in a stopped sandbox: %v", err)
	}
	again := reserve(t, p)
	if again.ID != ref.ID || again.Epoch == ref.Epoch {
		t.Errorf("started is %+v, was %+v", again, ref)
	}
	if got := ok(t, p, in(again, "cat ~/kept")); got != "kept" {
		t.Errorf("got %q", got)
	}
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run under the epoch before: %v", err)
	}
	body := s.Created(ref.ID)
	if body["autoStopInterval"] != 15.0 || body["autoDeleteInterval"] != 44640.0 {
		t.Errorf("a kept one is made with %v", body)
	}
	cmd := command("echo ready; sleep 600")
	cmd.Output = func(providers.Chunk) {
		for _, id := range s.Boxes() {
			if body := s.Created(id); id != ref.ID && body["autoStopInterval"] == 5.0 && body["autoDeleteInterval"] == 0.0 {
				go s.Idle(id) // its worker has said nothing for five minutes
			}
		}
	}
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
		t.Errorf("%v, %+v", err, res)
	}
}

// TestDamaged: a kept sandbox that has failed is repaired where the service can, with its files, and else created again.
func TestDamaged(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, nil)
	ref := reserve(t, p)
	ok(t, p, in(ref, "echo kept >~/kept"))
	s.Damage(ref.ID, true)
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run in a sandbox that has failed: %v", err)
	}
	mended := reserve(t, p)
	if got := ok(t, p, in(mended, "cat ~/kept")); got != "kept" || mended.ID != ref.ID {
		t.Errorf("it has %q, and is %v", got, mended)
	}
	s.Damage(ref.ID, false)
	if anew := reserve(t, p); anew.ID == ref.ID {
		t.Error("a sandbox that cannot be mended was taken")
	}
}

// TestWorkersRace: several workers reserve one key at once, though lists lag behind, and get the same sandbox.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	s, url := daytonatest.Start(t, daytonatest.Options{ListLag: 2, Looks: 2})
	workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
	refs := cloudtest.Race(t, workers, "key", spec())
	if left := s.Boxes(); len(refs) != 1 || len(left) != 1 || s.Made() != 1 {
		t.Errorf("they got %v; %v are left of %d", refs, left, s.Made())
	}
}

// TestCaps: no more sandboxes are made than may be, by this worker's settings or by the organization's share.
func TestCaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ours, share int }{"of the worker": {1, 20}, "of the organization": {20, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, daytonatest.Options{MaxRunning: c.share}, func(o *daytona.Options) { o.Sandboxes = c.ours })
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
	p, s := start(t, daytonatest.Options{}, nil)
	s.Fail(daytonatest.Fault{Route: create, Slow: 300 * time.Millisecond})
	cloudtest.CancelledCreate(t, p, command("true"))
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestDeadWorker: what a run of a worker that has died has started is found by its id and ended, in its own sandbox and in a kept one.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	s, url := daytonatest.Start(t, daytonatest.Options{})
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
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, daytonatest.Options{}, nil)
	ref := reserve(t, p)
	cloudtest.RootProcess(t, p, t.Name(), account, func(script string) providers.Command { return in(ref, script) })
}

// TestUnendable: what is left of a command cannot be ended in any way, again and again. The sandbox is deleted, and only then.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestUnendable(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, nil)
	ref := reserve(t, p)
	running := make(chan bool, 1)
	cmd := in(ref, "echo root; sudo -n bash -c 'mount --bind /bin/false /usr/local/bin/sudo && exec sleep 600'")
	cmd.ID = "root"
	cmd.Output = func(providers.Chunk) { running <- true }
	var commands sync.WaitGroup
	commands.Go(func() {
		if _, err := p.Run(t.Context(), cmd); err == nil {
			t.Error("it went on to its end")
		}
	})
	<-running
	testwait.Eventually(t, "it is root's", func() bool { return ok(t, p, in(ref, cloudtest.Sleepers)) != "0" })
	testwait.OK(t, p.EndRun(t.Context(), t.Name(), account, cmd.ID))
	commands.Wait()
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestCapRace: two workers make a sandbox at the same moment when one may run. One of them deletes its sandbox before its command starts.
func TestCapRace(t *testing.T) {
	t.Parallel()
	s, url := daytonatest.Start(t, daytonatest.Options{})
	one := func(o *daytona.Options) { o.Sandboxes = 1 }
	cmd := command("true")
	cmd.Mounts, cmd.Spec.Mounts = nil, nil
	cloudtest.CapRace(t, [2]cloudtest.Provider{on(t, url, one), on(t, url, one)}, func(held func()) {
		s.Fail(daytonatest.Fault{Route: create, Hold: held})
	}, cmd)
}

// TestCapLag: what a worker has started counts also while lists do not show it.
func TestCapLag(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, daytonatest.Options{ListLag: 20}, func(o *daytona.Options) { o.Sandboxes = 1 })
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
	s, url := daytonatest.Start(t, daytonatest.Options{})
	one := func(o *daytona.Options) { o.Sandboxes = 1 }
	p, other := on(t, url, one), on(t, url, one)
	cloudtest.CapWake(t, p, other, spec())
	testwait.OK(t, p.Close())
	testwait.OK(t, other.Close())
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
