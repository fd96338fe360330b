// Package cloudtest contains tests that the providers of vendors' services share: workers that race, die and are cancelled, on a test
// double of the service.
package cloudtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Provider is the interface of the providers under test.
type Provider interface {
	providers.Provider
	providers.Reserver
	providers.RunEnder
	Close() error
}

// Sleepers is a script that prints how many processes of a sandbox sleep long, as those of [DeadWorker] do.
const Sleepers = `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f && echo; done 2>/dev/null | grep -c '^sleep 600'; true`

// Ran returns how often a script "echo x >>ran" was executed in the directories.
func Ran(t *testing.T, dirs []string) int {
	t.Helper()
	n := 0
	for _, dir := range dirs {
		if b, err := os.ReadFile(filepath.Join(dir, "ran")); err == nil {
			n += strings.Count(string(b), "x")
		}
	}
	return n
}

// OK runs cmd, which must succeed, and returns what it printed.
func OK(t *testing.T, p providers.Provider, cmd providers.Command) string {
	t.Helper()
	res, err := p.Run(t.Context(), cmd)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("exit code %d, %v (stdout %.300q, stderr %.300q)", res.ExitCode, err, res.Stdout, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n")
}

// Race makes several workers reserve the sandbox of one key concurrently. It returns how many workers got each sandbox.
func Race(t *testing.T, workers []Provider, key string, spec providers.Spec) map[schemas.Ref]int {
	t.Helper()
	var mu sync.Mutex
	refs := map[schemas.Ref]int{}
	var racing sync.WaitGroup
	for _, p := range workers {
		racing.Go(func() {
			ref, err := p.Reserve(t.Context(), key, spec)
			mu.Lock()
			defer mu.Unlock()
			refs[ref]++
			if err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()
	for _, p := range workers { // the workers that lost end the sandboxes that they created
		testwait.OK(t, p.Close())
	}
	return refs
}

// Turns makes several workers reserve the sandbox of one key so that all of them have sent their create before any sandbox is made: hold
// makes the service call a function before it carries out each of the next creates. The first sandbox made is reserved before the second
// is made, and so on: each later worker must take the one chosen already. It returns how many workers got each sandbox.
func Turns(t *testing.T, workers []Provider, hold func(held func()), key string, spec providers.Spec) map[schemas.Ref]int {
	t.Helper()
	asked, next := make(chan bool, len(workers)), make(chan bool)
	t.Cleanup(func() { close(next) })
	for range workers {
		hold(func() {
			asked <- true
			<-next
		})
	}
	type reserved struct {
		ref schemas.Ref
		err error
	}
	done := make(chan reserved, len(workers))
	for _, p := range workers {
		go func() {
			ref, err := p.Reserve(t.Context(), key, spec)
			done <- reserved{ref, err}
		}()
	}
	for range workers {
		<-asked
	}
	refs := map[schemas.Ref]int{}
	for range workers {
		next <- true
		r := <-done
		testwait.OK(t, r.err)
		refs[r.ref]++
	}
	for _, p := range workers { // the workers that lost end the sandboxes that they created
		testwait.OK(t, p.Close())
	}
	return refs
}

// CapRace checks a limit of one running sandbox: two workers run a command in a fresh sandbox each, and both have sent their create before
// any sandbox is made (hold as for [Turns]). One command runs until the other was refused, which must not be started. The script of cmd is
// not used.
func CapRace(t *testing.T, workers [2]Provider, hold func(held func()), cmd providers.Command) {
	t.Helper()
	asked, next := make(chan bool, len(workers)), make(chan bool)
	for range workers {
		hold(func() {
			asked <- true
			<-next
		})
	}
	ctx, decided := context.WithCancel(t.Context())
	defer decided()
	var running sync.WaitGroup
	var ran, refused atomic.Int32 // atomic, so that the later of the two sees both
	cmd.Script = "echo running; sleep 600"
	for _, p := range workers {
		running.Go(func() {
			mine := cmd
			var once sync.Once
			mine.Output = func(providers.Chunk) {
				once.Do(func() {
					if ran.Add(1)+refused.Load() >= 2 {
						decided()
					}
				})
			}
			res, err := p.Run(ctx, mine)
			switch {
			case schemas.CodeOf(err) == schemas.Exhausted && !res.Started:
				if refused.Add(1)+ran.Load() >= 2 {
					decided()
				}
			case ctx.Err() == nil:
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	for range workers {
		<-asked
	}
	close(next)
	running.Wait()
	if ran.Load() != 1 || refused.Load() != 1 {
		t.Errorf("%d ran, and %d were refused", ran.Load(), refused.Load())
	}
	for _, p := range workers {
		testwait.OK(t, p.Close())
	}
}

// CapLag checks a limit of one running sandbox on a service whose lists lag: while one command runs a second is not started; after the
// first has ended another one runs.
func CapLag(t *testing.T, p Provider, command func(script string) providers.Command) {
	t.Helper()
	running := make(chan bool, 1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	first := command("echo running; sleep 600")
	first.Output = func(providers.Chunk) { running <- true }
	var commands sync.WaitGroup
	commands.Go(func() { _, _ = p.Run(ctx, first) }) // it is cancelled
	<-running
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Exhausted || res.Started {
		t.Errorf("beside another: %+v, %v", res, err)
	}
	end()
	commands.Wait()
	testwait.Eventually(t, "there is room", func() bool {
		_, err := p.Run(t.Context(), command("true"))
		return err == nil
	})
}

// CapWake checks a limit of one running sandbox with two kept sandboxes, one of them paused: reserving the other key is refused until the
// first sandbox is paused.
func CapWake(t *testing.T, p interface {
	Provider
	providers.Pauser
}, other Provider, spec providers.Spec) {
	t.Helper()
	for _, key := range []string{"a", "b"} {
		ref, err := p.Reserve(t.Context(), key, spec)
		testwait.OK(t, err)
		testwait.OK(t, p.Pause(t.Context(), ref))
	}
	first, err := p.Reserve(t.Context(), "a", spec)
	testwait.OK(t, err)
	for name, worker := range map[string]Provider{"the same": p, "another": other} {
		if ref, err := worker.Reserve(t.Context(), "b", spec); schemas.CodeOf(err) != schemas.Exhausted {
			t.Errorf("%s worker: %v, %v", name, ref, err)
		}
	}
	again, err := p.Reserve(t.Context(), "a", spec)
	if testwait.OK(t, err); again != first {
		t.Errorf("what runs is %v, want %v", again, first)
	}
	testwait.OK(t, p.Pause(t.Context(), first))
	second, err := other.Reserve(t.Context(), "b", spec)
	testwait.OK(t, err)
	testwait.OK(t, p.Release(t.Context(), second))
	first, err = p.Reserve(t.Context(), "a", spec)
	testwait.OK(t, err)
	testwait.OK(t, p.Release(t.Context(), first))
}

// CancelledCreate cancels a run while its sandbox is being made, which must take the service longer than 100 ms, and closes the provider.
func CancelledCreate(t *testing.T, p Provider, cmd providers.Command) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(100*time.Millisecond, cancel)
	if res, err := p.Run(ctx, cmd); err == nil || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
	testwait.OK(t, p.Close())
}

// RootProcess runs a command in a kept sandbox that becomes root, so that the sandbox's user cannot kill it, and ends it by its run id. In
// must return a command in the sandbox with the script. The sandbox and its files must survive.
func RootProcess(t *testing.T, p Provider, key string, account schemas.AccountID, in func(script string) providers.Command) {
	t.Helper()
	OK(t, p, in("echo kept >/tmp/kept"))
	running := make(chan bool, 1)
	cmd := in("echo root; sudo -n sleep 600")
	cmd.ID = "root"
	cmd.Output = func(providers.Chunk) { running <- true }
	var commands sync.WaitGroup
	commands.Go(func() {
		if res, err := p.Run(t.Context(), cmd); err == nil && res.ExitCode == 0 {
			t.Errorf("it went on to its end: %+v", res)
		}
	})
	<-running
	testwait.Eventually(t, "it is root's", func() bool { return OK(t, p, in(Sleepers)) != "0" })
	testwait.OK(t, p.EndRun(t.Context(), key, account, cmd.ID))
	commands.Wait()
	if got := OK(t, p, in(Sleepers+"; cat /tmp/kept")); got != "0\nkept" {
		t.Errorf("the sandbox has %q afterwards, want no process, and the file", got)
	}
}

// DeadWorker makes one worker start commands, by run id, that create a file and sleep, and another worker end them by the kept sandbox's
// key and the run ids, as if the first had died. It also ends a run that never existed. Running is called until all commands have created
// their files.
func DeadWorker(
	t *testing.T, dead, alive Provider, key string, account schemas.AccountID, runs map[string]providers.Command, running func() int,
) {
	t.Helper()
	var all sync.WaitGroup
	for id, cmd := range runs {
		cmd.ID = id
		all.Go(func() {
			if res, err := dead.Run(t.Context(), cmd); err == nil && res.ExitCode == 0 {
				t.Errorf("it went on to its end: %+v", res)
			}
		})
	}
	testwait.Eventually(t, "all run", func() bool { return running() == len(runs) })
	for id := range runs {
		testwait.OK(t, alive.EndRun(t.Context(), key, account, id))
	}
	testwait.OK(t, alive.EndRun(t.Context(), key, account, "none"))
	all.Wait()
}

// ListsEnd checks that a provider stops reading lists on a service whose every page refers to another one: the error names the limit, and
// no sandboxes of the pages read are returned.
func ListsEnd(t *testing.T, page func(w http.ResponseWriter, n int64), open func(url string) providers.Lister) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { page(w, asked.Add(1)) }))
	t.Cleanup(s.Close)
	boxes, err := open(s.URL).ListKept(t.Context(), "dep-1")
	if schemas.CodeOf(err) != schemas.Unavailable || len(boxes) > 0 || !strings.Contains(err.Error(), "the list of sandboxes has more than") {
		t.Errorf("it lists %d sandboxes, %v", len(boxes), err)
	}
	if n := asked.Load(); n > 1001 {
		t.Errorf("%d pages were read", n)
	}
}
