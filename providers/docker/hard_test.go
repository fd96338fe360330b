//go:build linux

package docker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/schemas"
)

// reserve keeps a container until the end of the test.
func reserve(t *testing.T, p docker.Backend, s providers.Spec) schemas.Ref {
	t.Helper()
	ref, err := p.Reserve(t.Context(), t.Name(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Release(context.WithoutCancel(t.Context()), ref); err != nil {
			t.Error(err)
		}
	})
	return ref
}

// TestManyWorkersRaceForOneContainer: the engine decides, and all get what it has.
func TestManyWorkersRaceForOneContainer(t *testing.T) {
	t.Parallel()
	const workers, calls = 5, 10
	var o docker.Options
	backends := []docker.Backend{open(t, func(given *docker.Options) { o = *given })}
	for range workers - 1 {
		p, err := docker.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		backends = append(backends, p)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	refs := map[schemas.Ref]int{}
	for i := range workers * calls {
		all.Go(func() {
			ref, err := backends[i%workers].Reserve(t.Context(), t.Name(), spec())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			refs[ref]++
		})
	}
	all.Wait()
	if len(refs) != 1 {
		t.Errorf("%d refs: %v", len(refs), refs)
	}
	for ref := range refs {
		if err := backends[0].Release(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	p := open(t, nil)
	small := spec()
	small.MemoryLimit, small.Pids = 64<<20, 64
	ref := reserve(t, p, small)
	limited := func(script string) providers.Command {
		cmd := in(ref, script)
		cmd.Spec = small
		return cmd
	}
	t.Run("memory", func(t *testing.T) {
		res := run(t, p, limited("cat /dev/zero | tail -c 4G | wc -c"))
		if !res.OOMKilled || res.TimedOut {
			t.Errorf("killed for memory %v, timed out %v, exit code %d", res.OOMKilled, res.TimedOut, res.ExitCode)
		}
	})
	t.Run("processes", func(t *testing.T) {
		cmd := limited(`bomb() { bomb | bomb & }; bomb; echo lit; sleep 1000`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd.Output = func(c providers.Chunk) {
			if !c.Stderr {
				cancel()
			}
		}
		if _, err := p.Run(ctx, cmd); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the container, or the next one, works", func(t *testing.T) {
		if again, err := p.Reserve(t.Context(), "TestWhatIsTooMuch", small); err != nil {
			t.Fatal(err)
		} else if ref = again; ok(t, p, limited("echo fine")) != "fine" {
			t.Error("it does not")
		}
	})
	t.Run("a script that kills its own group", func(t *testing.T) {
		if res := run(t, p, limited("kill -9 0; sleep 5; echo no")); res.ExitCode != 137 || len(res.Stdout) > 0 {
			t.Errorf("exit code %d, %q", res.ExitCode, res.Stdout)
		}
	})
	t.Run("a script that kills who watches over it", func(t *testing.T) {
		res, err := p.Run(t.Context(), limited("echo x >began; kill -9 $PPID; sleep 1000"))
		if schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
			t.Errorf("started %v, %v", res.Started, err)
		}
		if left := ok(t, p, limited("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 1000'; true")); left != "0" {
			t.Errorf("%s processes of it are left", left)
		}
	})
}

func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	e := dockertest.Get(t)
	for name, c := range map[string]struct {
		change func(*docker.Options)
		code   schemas.Code
		says   string
	}{
		"the image":   {func(o *docker.Options) { o.Image = "sandjet-test/none" }, schemas.NotFound, "docker build"},
		"the engine":  {func(o *docker.Options) { o.Host = "unix:///no/such/socket" }, schemas.Unavailable, "--docker-host"},
		"the runtime": {func(o *docker.Options) { o.Runtime = "none" }, schemas.Unsupported, "daemon.json"},
		"a shell in the image": {func(o *docker.Options) {
			o.Image = "sandjet-test/empty"
		}, schemas.Unsupported, "no command runs"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, e)
			c.change(&o)
			if o.Image == "sandjet-test/empty" {
				if _, err := e.Docker(make([]byte, 1024), "import", "-", o.Image); err != nil {
					t.Fatal(err)
				}
			}
			p, err := docker.Open(t.Context(), o)
			if err == nil {
				_ = p.Close()
				t.Fatal("it was opened")
			}
			if schemas.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("code %s: %v", schemas.CodeOf(err), err)
			}
			if name != "the engine" {
				testwait.Eventually(t, "the end of what was tried", func() bool {
					return e.Run(t, "ps", "-aq", "--filter", "label=sandjet.installation="+o.Installation) == ""
				})
			}
		})
	}
}

// TestTheEngineIsStartedAgain while commands run: these are interrupted, and the kept container comes back with its files.
func TestTheEngineIsStartedAgain(t *testing.T) {
	t.Parallel()
	e := dockertest.Private(t)
	p := openOn(t, e, nil)
	ref, err := p.Reserve(t.Context(), t.Name(), spec())
	if err != nil {
		t.Fatal(err)
	}
	ok(t, p, in(ref, `echo kept >"$HOME/file"`))
	const n = 4
	var all, begun sync.WaitGroup
	begun.Add(2 * n)
	for i := range 2 * n {
		cmd := command("echo begun; sleep 1000")
		if i < n {
			cmd.Sandbox = ref
		}
		var once sync.Once
		cmd.Output = func(providers.Chunk) { once.Do(begun.Done) }
		all.Go(func() {
			if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
				t.Errorf("started %v, %v", res.Started, err)
			}
		})
	}
	begun.Wait()
	if err := e.Stop("TERM"); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unavailable || res.Started {
		t.Errorf("without an engine: started %v, %v", res.Started, err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), in(ref, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("in the container that was stopped: %v", err)
	}
	again, err := p.Reserve(t.Context(), t.Name(), spec())
	if err != nil || again.Epoch == ref.Epoch {
		t.Fatalf("%+v after %+v: %v", again, ref, err)
	}
	if got := ok(t, p, in(again, `cat "$HOME/file"`)); got != "kept" {
		t.Errorf("the file: %q", got)
	}
	if err := p.Release(t.Context(), again); err != nil {
		t.Error(err)
	}
	filter := []string{"ps", "-aq", "--filter", "label=sandjet.kind=call"}
	if ids := strings.Fields(e.Run(t, filter...)); len(ids) > 0 { // what could not be removed while there was no engine
		e.Run(t, append([]string{"rm", "-f"}, ids...)...)
	}
}
