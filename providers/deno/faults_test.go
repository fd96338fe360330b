package deno_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/schemas"
)

// The routes that faults are for, and what a command of each kind has in its parameters.
const (
	create  = "GET /api/v3/sandboxes/create"
	connect = "GET /api/v3/sandbox/*"
	kill    = "DELETE /api/v3/sandbox/*"
	list    = "GET /api/v2/sandboxes"
	spawn   = "RPC spawn"
	upload  = "RPC writeFile"

	looks   = "readlink /workspace"
	begins  = "mkfifo"
	fetches = "until=$((SECONDS"
	goes    = "go\n"
)

// sleepers prints how many processes of a sandbox sleep long, and folders prints those of programs for their output.
const (
	sleepers = `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f && echo; done 2>/dev/null | grep -c '^sleep 600'; true`
	folders  = `ls -d /dev/shm/.sandjet-* /tmp/.sandjet-* 2>/dev/null; true`
)

// ran counts how often the script of [TestFaults] was carried out.
func ran(t *testing.T, s *denotest.Service) int {
	t.Helper()
	return cloudtest.Ran(t, s.Volumes())
}

// with makes a fault happen to commands that have a text.
func with(text string, f denotest.Fault) []denotest.Fault {
	f.Route, f.Has = spawn, text
	return []denotest.Fault{f}
}

func status(route string, status, after int) []denotest.Fault {
	return []denotest.Fault{{Route: route, Status: status, RetryAfter: after}}
}

// TestFaults: each fault has one outcome, and whatever happens a command that was started is not started again, and no sandbox is left.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []denotest.Fault
		code    schemas.Code // empty: it succeeds
		started bool
		most    int // how often it may have run
		stdin   int // bytes
		clock   time.Duration
	}{
		"too many requests, and when to come again": {faults: status(create, http.StatusTooManyRequests, 1), code: schemas.Exhausted},
		"too many requests, and no word on when":    {faults: status(create, http.StatusTooManyRequests, -1), code: schemas.Exhausted},
		"too many lists, and when to come again":    {faults: status(list, http.StatusTooManyRequests, 0), started: true, most: 1},
		"the service is busy":                       {faults: status(create, http.StatusServiceUnavailable, 0), started: true, most: 1},
		"the service fails to make a sandbox":       {faults: status(create, http.StatusInternalServerError, -1), code: schemas.Unavailable},
		"the token has ended":                       {faults: status(create, http.StatusUnauthorized, -1), code: schemas.Denied},
		"the connection breaks before a sandbox is made": {
			faults: []denotest.Fault{{Route: create, Drop: denotest.Before}}, code: schemas.Unavailable,
		},
		"the answer is lost after a sandbox was made": {
			faults: []denotest.Fault{{Route: create, Drop: denotest.After}}, started: true, most: 1,
		},
		"half of the answer comes after a sandbox was made": {
			faults: []denotest.Fault{{Route: create, Drop: denotest.Half}}, started: true, most: 1,
		},
		"half of a list comes": {faults: []denotest.Fault{{Route: list, Drop: denotest.Half}}, started: true, most: 1},
		"the connection breaks while the sandbox is prepared": {
			faults: with(looks, denotest.Fault{Drop: denotest.After}), started: true, most: 1,
		},
		"the connection breaks before the program starts": {
			faults: with(begins, denotest.Fault{Drop: denotest.Before}), code: schemas.Unavailable,
		},
		"the answer to the start of the program is lost": {
			faults: with(begins, denotest.Fault{Drop: denotest.After}), code: schemas.Unavailable,
		},
		"the start of the program fails": {faults: with(begins, denotest.Fault{Status: 500}), code: schemas.Unavailable},
		"the input arrives at the second try": {
			faults: []denotest.Fault{{Route: upload, Drop: denotest.After}}, started: true, most: 1, stdin: 800_000,
		},
		"the input does not arrive": {
			faults: []denotest.Fault{{Route: upload, Status: 500, Times: 6}}, code: schemas.Unavailable, stdin: 200_000,
		},
		"the word to start does not arrive at first": {
			faults: with(goes, denotest.Fault{Drop: denotest.Before}), started: true, most: 1,
		},
		"the word to start does not arrive": {
			faults: with(goes, denotest.Fault{Status: 500, Times: 6}), code: schemas.Interrupted, started: true,
		},
		"the answer to the word to start is lost": {
			faults: with(goes, denotest.Fault{Drop: denotest.After}), started: true, most: 1,
		},
		"the answer to the word to start is lost again and again": {
			faults: with(goes, denotest.Fault{Drop: denotest.After, Times: 4}), started: true, most: 1,
		},
		"output is lost on its way":          {faults: with(fetches, denotest.Fault{Pass: 1, Drop: denotest.After}), started: true, most: 1},
		"half a frame of an answer arrives":  {faults: with(fetches, denotest.Fault{Drop: denotest.Half}), started: true, most: 1},
		"the sandbox fails while it answers": {faults: with(fetches, denotest.Fault{Times: 3, Status: 500}), started: true, most: 1},
		"the way back fails for a while": {
			faults:  append(with(fetches, denotest.Fault{Drop: denotest.Before}), denotest.Fault{Route: connect, Times: 2, Status: 502}),
			started: true, most: 1,
		},
		"the token ends while the command runs": {
			faults: append(with(fetches, denotest.Fault{Pass: 1, Drop: denotest.After}), denotest.Fault{Route: connect, Times: 99, Status: 401}),
			code:   schemas.Interrupted, started: true, most: 1,
		},
		"a slow service": {
			faults:  []denotest.Fault{{Route: create, Slow: 200 * time.Millisecond}, {Route: spawn, Slow: 200 * time.Millisecond, Times: 3}},
			started: true, most: 1,
		},
		"the end of the sandbox is answered with an error": {faults: status(kill, http.StatusBadGateway, 0), started: true, most: 1},
		"the end of the sandbox is not answered": {
			faults: []denotest.Fault{{Route: kill, Drop: denotest.After}}, started: true, most: 1,
		},
		"the service's clock is an hour behind":      {clock: -time.Hour, started: true, most: 1},
		"the service's clock is an hour before ours": {clock: time.Hour, started: true, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			longtest.Sample(t, name, 3)
			t.Parallel()
			p, s := start(t, denotest.Options{Clock: c.clock}, func(o *deno.Options) { o.Start = 5 * time.Second })
			for _, f := range c.faults {
				s.Fail(f)
			}
			cmd := command("echo x >>ran; printf 'done\\0\\n'; echo err >&2")
			cmd.Stdin = make([]byte, c.stdin)
			res, err := p.Run(t.Context(), cmd)
			if schemas.CodeOf(err) != c.code && err != nil || (err == nil) != (c.code == "") || res.Started != c.started {
				t.Errorf("started %v, %v, want %v and code %q", res.Started, err, c.started, c.code)
			}
			if err == nil && (string(res.Stdout) != "done\x00\n" || string(res.Stderr) != "err\n") {
				t.Errorf("it printed %q and %q", res.Stdout, res.Stderr)
			}
			if n := ran(t, s); n > c.most || err == nil && n != 1 {
				t.Errorf("it ran %d times", n)
			}
			if err != nil && strings.Contains(err.Error(), denotest.Token) {
				t.Errorf("the token is shown: %v", err)
			}
		})
	}
}

// TestConnectionsBreak: all connections break again and again while a command prints. The command continues, and its output arrives whole
// and once.
func TestConnectionsBreak(t *testing.T) {
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo x >>ran; for i in 1 2 3 4; do echo $i; sleep 0.3; done; exit 7")
	cmd.Output = func(providers.Chunk) { s.CutSockets() }
	res, err := p.Run(t.Context(), cmd)
	if err != nil || res.ExitCode != 7 || string(res.Stdout) != "1\n2\n3\n4\n" || ran(t, s) != 1 {
		t.Errorf("%v, exit code %d, %q, ran %d times", err, res.ExitCode, res.Stdout, ran(t, s))
	}
}

// TestWayIsCut: the sandbox becomes unreachable while a command runs in a kept one. What the command has done is unknown then, and
// nothing of it keeps running.
func TestWayIsCut(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo x >>ran; echo ready; setsid sleep 600 & sleep 600")
	var once sync.Once
	cmd.Output = func(providers.Chunk) {
		once.Do(func() {
			s.Fail(denotest.Fault{Route: connect, Times: 3, Status: 404})
			s.CutSockets()
		})
	}
	res, err := p.Run(t.Context(), cmd)
	if schemas.CodeOf(err) != schemas.Interrupted || !res.Started || ran(t, s) != 1 {
		t.Errorf("%v, %+v, ran %d times", err, res, ran(t, s))
	}
}

// TestSandboxEnds: the sandbox ends while a command runs in it.
func TestSandboxEnds(t *testing.T) {
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo ready; sleep 600")
	cmd.Output = func(providers.Chunk) { go s.End(ref.ID) }
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
		t.Errorf("%v, %+v", err, res)
	}
	if res, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound || res.Started {
		t.Errorf("a run in a sandbox that is gone: %v", err)
	}
	if again := reserve(t, p); again.ID == ref.ID || again.Epoch == ref.Epoch {
		t.Errorf("it is %+v as before", again)
	}
}

// TestStartIsLost: the answer to the start of the program is lost in a kept sandbox. What waits for a word there is ended.
func TestStartIsLost(t *testing.T) {
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	ref := reserve(t, p)
	s.Fail(denotest.Fault{Route: spawn, Has: begins, Drop: denotest.After})
	if res, err := p.Run(t.Context(), in(ref, "echo x >>ran")); schemas.CodeOf(err) != schemas.Unavailable || res.Started {
		t.Errorf("%v, %+v", err, res)
	}
	// The answer was lost while the program was beginning, and the program ends when it finds that no worker wants it. A worker that finds
	// nothing of it removes its folder after two minutes: the test is over before.
	for end := time.Now().Add(testwait.Patience / 4); ; time.Sleep(200 * time.Millisecond) { // each check is a run
		left := ok(t, p, in(ref, folders))
		if len(strings.Fields(left)) == 1 { // its own
			break
		}
		if time.Now().After(end) {
			t.Fatalf("programs that nobody waits for are left: %s", left)
		}
	}
	if n := ran(t, s); n != 0 {
		t.Errorf("it ran %d times", n)
	}
}

// TestLostReserve: the answer to the create of a kept sandbox is lost. It is the one that is used, by this worker and by others.
func TestLostReserve(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	s.Fail(denotest.Fault{Route: create, Drop: denotest.After})
	ref := reserve(t, p)
	if got := ok(t, p, in(ref, "echo ran")); got != "ran" || s.Made() != 1 {
		t.Errorf("%q, and %d sandboxes were made", got, s.Made())
	}
}

// TestWorkersRace: several workers reserve one key at once, though lists lag behind, and get the same sandbox: with a workspace, which one
// alone can have, and without one.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	for name, mounts := range map[string][]providers.Mount{"with a workspace": spec().Mounts, "without one": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := denotest.Start(t, denotest.Options{ListLag: 2})
			want := spec()
			want.Mounts = mounts
			workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
			refs := cloudtest.Race(t, workers, "key", want)
			again, err := on(t, url, nil).Reserve(t.Context(), "key", want)
			testwait.OK(t, err)
			if len(refs) != 1 || refs[again] == 0 {
				t.Errorf("they got %v, and then %v", refs, again)
			}
			if left := s.Boxes(); len(left) != 1 {
				t.Errorf("sandboxes are left: %v", left)
			}
		})
	}
}

// TestLosesTheRace: another worker kills a sandbox of the key while this one looks at it, and the way to it is answered with what is neither
// tried again nor says that it is gone. It is gone then, and no failure of the service.
func TestLosesTheRace(t *testing.T) {
	t.Parallel()
	s, url := denotest.Start(t, denotest.Options{})
	want := spec()
	want.Mounts = nil
	ref, err := on(t, url, nil).Reserve(t.Context(), "key", want)
	testwait.OK(t, err)
	s.Fail(denotest.Fault{Route: connect, Status: http.StatusMisdirectedRequest, Hold: func() { s.End(ref.ID) }})
	other, err := on(t, url, nil).Reserve(t.Context(), "key", want)
	testwait.OK(t, err)
	if left := s.Boxes(); other == ref || len(left) != 1 || left[0] != other.ID {
		t.Errorf("got %v after %v; %v are left", other, ref, left)
	}
}

// TestWorkersTakeTurns: several workers have all asked for the sandbox of one key, and one has it before the next one's is made. They get
// the same, whatever the service says of when each was made.
func TestWorkersTakeTurns(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]time.Duration{"in their order": time.Second, "in the other order": -time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := denotest.Start(t, denotest.Options{ListLag: 2, Later: later})
			want := spec()
			want.Mounts = nil
			workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
			hold := func(held func()) { s.Fail(denotest.Fault{Route: create, Hold: held}) }
			refs := cloudtest.Turns(t, workers, hold, "key", want)
			if left := s.Boxes(); len(refs) != 1 || len(left) != 1 || s.Made() != len(workers) {
				t.Errorf("they got %v; %v are left of %d", refs, left, s.Made())
			}
		})
	}
}

// TestWorkspaceInOneSandbox: while a workspace is in a sandbox, calls of others that use it wait, and then have its files.
func TestWorkspaceInOneSandbox(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, denotest.Options{}, func(o *deno.Options) { o.Start = 2 * time.Second })
	ref, err := p.Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	ok(t, p, in(ref, "echo kept >file"))
	made := s.Made()
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Exhausted || res.Started || s.Made() != made {
		t.Errorf("got %v, %+v; %d sandboxes were made", err, res, s.Made())
	}
	testwait.OK(t, p.Release(t.Context(), ref))
	if got := ok(t, p, command("cat file")); got != "kept" {
		t.Errorf("the file has %q", got)
	}
}

// TestVolumeInUse: the service knows of a sandbox with the workspace that no list of ours has.
func TestVolumeInUse(t *testing.T) {
	t.Parallel()
	s, url := denotest.Start(t, denotest.Options{ListLag: 3})
	one, other := on(t, url, nil), on(t, url, func(o *deno.Options) { o.Start = 2 * time.Second })
	begun := make(chan struct{})
	cmd := command("echo ready; sleep 600")
	var once sync.Once
	cmd.Output = func(providers.Chunk) { once.Do(func() { close(begun) }) }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _, _ = one.Run(ctx, cmd) })
	<-begun
	if res, err := other.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Exhausted || res.Started || s.Made() != 1 {
		t.Errorf("got %v, %+v; %d sandboxes were made", err, res, s.Made())
	}
	cancel()
	running.Wait()
	testwait.OK(t, one.Close())
}

// TestLife: a kept sandbox is asked to live for half an hour with each use, by the service's clock. If the service does not let it live
// for as long as a run, it is created again.
func TestLife(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	const clock = -3 * time.Hour
	p, s := start(t, denotest.Options{Clock: clock}, nil)
	ref := reserve(t, p)
	left := func() time.Duration { return s.Stops(ref.ID).Sub(time.Now().Add(clock)) }
	if l := left(); l < 25*time.Minute || l > 31*time.Minute {
		t.Errorf("it lives for %s", l)
	}
	ok(t, p, in(ref, "true"))
	if l := left(); l < 25*time.Minute || l > 31*time.Minute {
		t.Errorf("after a run it lives for %s", l)
	}
	short, limited := start(t, denotest.Options{MaxLife: 5 * time.Minute}, nil)
	one, err := short.Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	cmd := in(one, "true")
	cmd.Timeout = 10 * time.Minute
	if res, err := short.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Unavailable || res.Started {
		t.Errorf("a run that may take longer than its sandbox lives: %v, %+v", err, res)
	}
	two, err := short.Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	if two == one || limited.Made() != 2 {
		t.Errorf("it is %+v as before; %d were made", two, limited.Made())
	}
	testwait.OK(t, short.Release(t.Context(), two))
}

// TestCaps: no more sandboxes are made than may be, by this worker's settings or by the organization's share.
func TestCaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ours, share int }{"of the worker": {1, 20}, "of the organization": {20, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, denotest.Options{MaxRunning: c.share}, func(o *deno.Options) { o.Sandboxes = c.ours })
			reserve(t, p)
			cmd := command("true")
			cmd.Mounts, cmd.Spec.Mounts = nil, nil
			if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Exhausted || res.Started {
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
	p, s := start(t, denotest.Options{}, nil)
	s.Fail(denotest.Fault{Route: create, Slow: 300 * time.Millisecond})
	cloudtest.CancelledCreate(t, p, command("true"))
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestDeadWorker: what a run of a worker that has died has started is found by its id and ended, in its own sandbox and in a kept one.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	s, url := denotest.Start(t, denotest.Options{})
	dead, alive := on(t, url, nil), on(t, url, nil)
	ref, err := dead.Reserve(t.Context(), "key", spec())
	testwait.OK(t, err)
	own := command("echo x >>ran; sleep 600")
	own.Mounts = []providers.Mount{{Namespace: "ws-2"}}
	own.Spec.Mounts = own.Mounts
	runs := map[string]providers.Command{"own": own, "kept": in(ref, "echo x >>ran; sleep 600")}
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
	p, _ := start(t, denotest.Options{}, nil)
	ref := reserve(t, p)
	cloudtest.RootProcess(t, p, t.Name(), account, func(script string) providers.Command { return in(ref, script) })
}

// TestCapLag: what a worker has started counts also while lists do not show it.
func TestCapLag(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, denotest.Options{ListLag: 20}, func(o *deno.Options) { o.Sandboxes = 1 })
	cloudtest.CapLag(t, p, func(script string) providers.Command {
		cmd := command(script)
		cmd.Mounts, cmd.Spec.Mounts = nil, nil
		return cmd
	})
}
