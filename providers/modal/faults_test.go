package modal_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/providers/modal/modaltest"
	"github.com/sandjet/sandjet/schemas"
)

// The methods that faults are for.
const (
	create    = "SandboxCreateV2"
	list      = "SandboxListV2"
	byName    = "SandboxGetFromNameV2"
	looks     = "SandboxWaitV2"
	terminate = "SandboxTerminateV2"
	access    = "SandboxGetCommandRouterAccess"
	begin     = "TaskExecStart"
	input     = "TaskExecStdinWrite"
	output    = "TaskExecStdioRead"
	waits     = "TaskExecWait"
	reload    = "TaskReloadVolumes"
	auth      = "AuthTokenGet"
)

// What requests of a kind have in them.
const (
	theProgram = "sandjet-run"
	theWord    = "go\n"
	theSync    = "sync"
)

// ran counts how often the script of [TestFaults] was carried out.
func ran(t *testing.T, s *modaltest.Service) int {
	t.Helper()
	return cloudtest.Ran(t, s.Folders())
}

func says(method string, code codes.Code) []modaltest.Fault {
	return []modaltest.Fault{{Method: method, Code: code}}
}

// TestFaults: each fault has one outcome, and whatever happens a command that was started is not started again, and no sandbox is left.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []modaltest.Fault
		code    schemas.Code // empty: it succeeds
		started bool
		most    int // how often it may have run
		stdin   int // bytes
	}{
		"no room, and when to come again": {
			faults: []modaltest.Fault{{Method: create, Code: codes.ResourceExhausted, After: 2}}, code: schemas.Exhausted,
		},
		"no room, and no word on when": {faults: says(create, codes.ResourceExhausted), code: schemas.Exhausted},
		"too many lists, and when to come again": {
			faults: []modaltest.Fault{{Method: list, Code: codes.ResourceExhausted, After: 0.1}}, started: true, most: 1,
		},
		"too many lists, and a wait that is too long": {
			faults: []modaltest.Fault{{Method: list, Code: codes.ResourceExhausted, After: 3600}}, code: schemas.Exhausted,
		},
		"the service is busy":                 {faults: says(create, codes.Unavailable), started: true, most: 1},
		"the service fails to make a sandbox": {faults: says(create, codes.Internal), code: schemas.Unavailable},
		"the token is not taken any more":     {faults: says(auth, codes.Unauthenticated), started: true, most: 1},
		"the token may not make sandboxes":    {faults: says(create, codes.PermissionDenied), code: schemas.Denied},
		"a setting that is not taken":         {faults: says(create, codes.InvalidArgument), code: schemas.Unsupported},
		"a create whose token has ended":      {faults: says(create, codes.Unauthenticated), started: true, most: 1},
		"the connection breaks before a sandbox is made": {
			faults: []modaltest.Fault{{Method: create, Drop: modaltest.Before}}, code: schemas.Unavailable,
		},
		"the answer is lost after a sandbox was made": {
			faults: []modaltest.Fault{{Method: create, Drop: modaltest.After}}, started: true, most: 1,
		},
		"the answer is lost, and so is the first look": {
			faults:  []modaltest.Fault{{Method: create, Drop: modaltest.After}, {Method: byName, Code: codes.NotFound}},
			started: true, most: 1,
		},
		"a look at the sandbox fails": {faults: says(looks, codes.Unavailable), started: true, most: 1},
		"the way to the sandbox is not said": {
			faults: []modaltest.Fault{{Method: access, Code: codes.FailedPrecondition}}, code: schemas.Unavailable,
		},
		"the connection breaks before the program starts": {
			faults: []modaltest.Fault{{Method: begin, Has: theProgram, Drop: modaltest.Before}}, started: true, most: 1,
		},
		"the answer to the start of the program is lost": {
			faults: []modaltest.Fault{{Method: begin, Has: theProgram, Drop: modaltest.After}}, started: true, most: 1,
		},
		"the machine is not ready for the program": {
			faults: []modaltest.Fault{{Method: begin, Has: theProgram, Code: codes.Unavailable, Times: 2}}, started: true, most: 1,
		},
		"the sandbox ends before the program starts": {
			faults: []modaltest.Fault{{Method: begin, Has: theProgram, Code: codes.NotFound}}, code: schemas.Unavailable,
		},
		"the machine's token has ended": {
			faults: []modaltest.Fault{{Method: begin, Has: theProgram, Code: codes.Unauthenticated}}, started: true, most: 1,
		},
		"the input arrives at the second try": {
			faults: []modaltest.Fault{{Method: input, Pass: 1, Drop: modaltest.After}}, started: true, most: 1, stdin: 600_000,
		},
		"the input does not arrive": {
			faults: []modaltest.Fault{{Method: input, Code: codes.FailedPrecondition}}, code: schemas.Unavailable, stdin: 600_000,
		},
		"the word to start arrives at the second try": {
			faults: []modaltest.Fault{{Method: input, Has: theWord, Drop: modaltest.Before}}, started: true, most: 1,
		},
		"the answer to the word to start is lost": {
			faults: []modaltest.Fault{{Method: input, Has: theWord, Drop: modaltest.After}}, started: true, most: 1,
		},
		"the word to start is refused": {
			faults: []modaltest.Fault{{Method: input, Has: theWord, Code: codes.NotFound}}, code: schemas.Interrupted, started: true,
		},
		"output is lost on its way": {faults: []modaltest.Fault{{Method: output, Drop: modaltest.Before}}, started: true, most: 1},
		"output breaks off":         {faults: []modaltest.Fault{{Method: output, Times: 2, Drop: modaltest.After}}, started: true, most: 1},
		"half of the output arrives": {
			faults: []modaltest.Fault{{Method: output, Times: 2, Drop: modaltest.Half}}, started: true, most: 1,
		},
		"the machine is busy while output comes": {
			faults: []modaltest.Fault{{Method: output, Times: 3, Code: codes.Unavailable}}, started: true, most: 1,
		},
		"the machine's token ends while the command runs": {
			faults: says(output, codes.Unauthenticated), started: true, most: 1,
		},
		"the output cannot be read": {
			faults: []modaltest.Fault{{Method: output, Code: codes.NotFound, Times: 2}}, code: schemas.Unavailable,
		},
		"a slow service": {
			faults: []modaltest.Fault{{Method: create, Slow: 200 * time.Millisecond}, {Method: begin, Slow: 200 * time.Millisecond},
				{Method: output, Slow: 200 * time.Millisecond}},
			started: true, most: 1,
		},
		"the files are kept at the second try": {
			faults: []modaltest.Fault{{Method: begin, Has: theSync, Drop: modaltest.After}}, started: true, most: 1,
		},
		"nobody says whether the files are kept": {
			faults: []modaltest.Fault{{Method: waits, Code: codes.NotFound}}, code: schemas.Interrupted, started: true, most: 1,
		},
		"the end of the sandbox is answered with an error": {faults: says(terminate, codes.Unavailable), started: true, most: 1},
		"the end of the sandbox is not answered": {
			faults: []modaltest.Fault{{Method: terminate, Drop: modaltest.After}}, started: true, most: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			longtest.Sample(t, name, 3)
			t.Parallel()
			p, s := start(t, modaltest.Options{App: modal.DefaultApp}, func(o *modal.Options) { o.Start = 5 * time.Second })
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
			showsNoSecret(t, err)
		})
	}
}

// showsNoSecret: an error repeats what the service says, which has secrets in it.
func showsNoSecret(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, secret := range []string{modaltest.TokenID, modaltest.TokenSecret, "eyJ"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("a secret is shown: %v", err)
		}
	}
}

// TestStartedTwice: a service that starts a process again, because it has forgotten its id, does not start a command again: what was
// started only waits for a word.
func TestStartedTwice(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{StartTwice: true}, nil)
	ref := reserve(t, p)
	before := s.Starts()
	s.Fail(modaltest.Fault{Method: begin, Has: theProgram, Drop: modaltest.After})
	ok(t, p, in(ref, "echo x >>ran"))
	if n, programs := ran(t, s), s.Starts()-before; n != 1 || programs != 3 { // two programs, and sync
		t.Errorf("it ran %d times, and %d processes were started", n, programs)
	}
}

// TestTokens: the tokens end, or are ended, while sandboxes are used, and the service's clock may be another.
func TestTokens(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]modaltest.Options{
		"short":          {TokenLife: 300 * time.Millisecond},
		"a clock ahead":  {ClockAhead: 26 * time.Hour},
		"a clock behind": {ClockAhead: -26 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, o, nil)
			ref := reserve(t, p)
			cmd := in(ref, "echo x >>ran; echo begun; sleep 1; echo done")
			cmd.Output = func(c providers.Chunk) {
				if strings.Contains(string(c.Data), "begun") {
					s.Revoke()
				}
			}
			if got := ok(t, p, cmd); got != "begun\ndone" || ran(t, s) != 1 {
				t.Errorf("got %q, and it ran %d times", got, ran(t, s))
			}
			if again, err := p.Reserve(t.Context(), t.Name(), spec()); err != nil || again != ref {
				t.Errorf("reserved again: %v, %v; was %v", again, err, ref)
			}
		})
	}
}

// TestBadToken: credentials that are not taken, and are not shown though the service repeats them.
func TestBadToken(t *testing.T) {
	t.Parallel()
	_, url := modaltest.Start(t, modaltest.Options{})
	p := on(t, url, func(o *modal.Options) { o.TokenSecret = "as-another-secret" })
	res, err := p.Run(t.Context(), command("true"))
	if schemas.CodeOf(err) != schemas.Denied || res.Started || strings.Contains(err.Error(), "as-another-secret") {
		t.Errorf("got %v, %+v", err, res)
	}
	showsNoSecret(t, err)
	testwait.OK(t, p.Close())
}

// TestWayIsCut: the sandbox becomes unreachable while a command runs in a kept one. What the command has done is unknown then, and
// nothing of it keeps running.
func TestWayIsCut(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{}, nil)
	ref := reserve(t, p)
	cmd := in(ref, "echo x >>ran; echo ready; setsid sleep 600 & sleep 600")
	cmd.Output = func(c providers.Chunk) {
		if strings.Contains(string(c.Data), "ready") {
			s.Fail(modaltest.Fault{Method: output, Code: codes.NotFound})
			s.Fail(modaltest.Fault{Method: input, Has: "kill\n", Code: codes.NotFound})
			s.Cut()
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

// TestSandboxEnds: the sandbox ends while a command runs in it, whyever.
func TestSandboxEnds(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(*modaltest.Service, string){
		"its machine fails": (*modaltest.Service).Break, "its time is over": (*modaltest.Service).Expire,
		"nobody uses it": (*modaltest.Service).Idle,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, modaltest.Options{}, nil)
			ref := reserve(t, p)
			cmd := in(ref, "echo ready; sleep 600")
			cmd.Output = func(providers.Chunk) { go ends(s, ref.ID) }
			if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
				t.Errorf("%v, %+v", err, res)
			}
			if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
				t.Errorf("a run in a sandbox that is gone: %v", err)
			}
			if again := reserve(t, p); again.ID == ref.ID || again.Epoch == ref.Epoch {
				t.Errorf("made anew is %v, was %v", again, ref)
			}
		})
	}
}

// TestLostReserve: the answer to the create of a kept sandbox is lost. It is the one that is used.
func TestLostReserve(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{}, nil)
	s.Fail(modaltest.Fault{Method: create, Drop: modaltest.After})
	ref := reserve(t, p)
	if got := ok(t, p, in(ref, "echo ran")); got != "ran" || s.Made() != 1 {
		t.Errorf("%q, and %d sandboxes were made", got, s.Made())
	}
}

// TestWorkersRace: several workers reserve one key at once, though lists lag behind, and get the same sandbox.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	s, url := modaltest.Start(t, modaltest.Options{ListLag: 2})
	workers := []cloudtest.Provider{on(t, url, nil), on(t, url, nil), on(t, url, nil)}
	refs := cloudtest.Race(t, workers, "key", spec())
	if left := s.Boxes(); len(refs) != 1 || len(left) != 1 || s.Made() != 1 {
		t.Errorf("they got %v; %v are left of %d", refs, left, s.Made())
	}
}

// TestCaps: no more sandboxes are made than may be, by this worker's settings or by the workspace's share.
func TestCaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ours, share int }{"of the worker": {1, 20}, "of the workspace": {20, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t, modaltest.Options{MaxRunning: c.share}, func(o *modal.Options) { o.Sandboxes = c.ours })
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
	p, s := start(t, modaltest.Options{}, nil)
	s.Fail(modaltest.Fault{Method: create, Slow: 300 * time.Millisecond})
	cloudtest.CancelledCreate(t, p, command("true"))
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestDeadWorker: what a run of a worker that has died has started is found by its id and ended, in its own sandbox and in a kept one.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	s, url := modaltest.Start(t, modaltest.Options{})
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
	testwait.OK(t, alive.Close())
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestCapLag: what a worker has started counts also while lists do not show it.
func TestCapLag(t *testing.T) {
	t.Parallel()
	p, _ := start(t, modaltest.Options{ListLag: 20}, func(o *modal.Options) { o.Sandboxes = 1 })
	cloudtest.CapLag(t, p, func(script string) providers.Command {
		cmd := command(script)
		cmd.Mounts, cmd.Spec.Mounts = nil, nil
		return cmd
	})
}
