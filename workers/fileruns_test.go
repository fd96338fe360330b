package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// volumes is a provider of real commands whose files no worker reaches.
type volumes struct {
	bare *providertest.Bare
	dir  string
	hold func(providers.Command) // before each run; nil: nothing

	mu   sync.Mutex
	runs []providers.Command
}

func newVolumes(t *testing.T) *volumes {
	t.Helper()
	dir := t.TempDir()
	v := &volumes{bare: providertest.NewBare(dir), dir: dir}
	t.Cleanup(func() { testwait.OK(t, v.bare.Close()) })
	return v
}

func (v *volumes) Profile() providers.Profile { return v.bare.Profile() }

func (v *volumes) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	v.mu.Lock()
	v.runs = append(v.runs, cmd)
	v.mu.Unlock()
	if v.hold != nil {
		v.hold(cmd)
	}
	return v.bare.Run(ctx, cmd)
}

func (v *volumes) Reserve(ctx context.Context, key string, s providers.Spec) (schemas.Ref, error) {
	return v.bare.Reserve(ctx, key, s)
}

func (v *volumes) Release(ctx context.Context, r schemas.Ref) error { return v.bare.Release(ctx, r) }

// ran returns the runs since it was last asked.
func (v *volumes) ran() []providers.Command {
	v.mu.Lock()
	defer v.mu.Unlock()
	runs := v.runs
	v.runs = nil
	return runs
}

// of is the folder of an account's workspace.
func (v *volumes) of(a schemas.AccountID) string {
	return filepath.Join(v.dir, "workspaces", schemas.Namespace(a, "ws_1"))
}

// shy is volumes with a Filer that reaches none of them.
type shy struct{ *volumes }

func (shy) OpenWorkspace(context.Context, schemas.AccountID, providers.Mount) (workspacefs.FS, error) {
	return nil, schemas.OpErrorf(schemas.Unsupported, "workspace", "the engine has its files")
}

// inFileWorld runs f beside a worker of p.
func inFileWorld(t *testing.T, p providers.Provider, f func(w *world)) {
	t.Helper()
	l := natstest.Start(t)
	w := &world{t: t, bus: l.Bus, specs: &specs{persistent: true}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	worker := &Worker{Bus: l.Open(), Provider: p, Name: "fake", Specs: w.specs}
	go func() { ended <- worker.Run(ctx) }()
	defer func() {
		stop()
		testwait.OK(t, <-ended)
	}()
	testwait.Eventually(t, "the worker answers", func() bool {
		_, _, err := w.files("acct_0", schemas.FileRequest{Op: schemas.FileList, Path: ".", Limit: 1}, "")
		return err == nil
	})
	f(w)
}

// files asks about files of an account's workspace.
func (w *world) files(a schemas.AccountID, q schemas.FileRequest, data string) (r schemas.FileReply, body string, err error) {
	w.t.Helper()
	q.Account, q.Workspace = a, "ws_1"
	message, err := schemas.EncodeFileMessage(q, []byte(data))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	answer, err := w.bus.AskAboutFiles(ctx, a, streams.FilesInFolders("fake"), message)
	if err != nil {
		return r, "", err
	}
	b, err := schemas.DecodeFileMessage(answer, &r)
	return r, string(b), err
}

// Files come and go by runs in fresh sandboxes that reach nothing, also where the provider reaches other files itself.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesByRuns(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(*volumes) providers.Provider{
		"no Filer":        func(v *volumes) providers.Provider { return v },
		"a Filer of none": func(v *volumes) providers.Provider { return shy{v} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVolumes(t)
			inFileWorld(t, wrap(v), func(w *world) { filesByRuns(t, v, w) })
		})
	}
}

func filesByRuns(t *testing.T, v *volumes, w *world) {
	t.Helper()
	v.ran()
	content := "a\x00\xff\nb"
	for a, text := range map[schemas.AccountID]string{"acct_1": content, "acct_2": "another's"} {
		if r, _, err := w.files(a, schemas.FileRequest{Op: schemas.FileWrite, Path: "dir/f"}, text); err != nil || !r.Created {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	r, body, err := w.files("acct_1", schemas.FileRequest{Op: schemas.FileRead, Path: "dir/f", Length: 100}, "")
	if err != nil || body != content || r.File.Size != int64(len(content)) {
		t.Errorf("%q, %v", body, err)
	}
	if got, err := os.ReadFile(filepath.Join(v.of("acct_2"), "dir/f")); err != nil || string(got) != "another's" {
		t.Errorf("%q, %v", got, err)
	}
	for _, c := range v.ran() {
		if !c.Sandbox.IsZero() || c.Network.Mode != schemas.DenyAll || c.Spec.Network.Mode != schemas.DenyAll || c.Spec.Sandbox != "" ||
			c.ID == "" || c.Begin == nil || len(c.Mounts) != 1 || c.Mounts[0].Namespace != schemas.Namespace(c.Spec.Account, "ws_1") {
			t.Errorf("it ran in %+v", c)
		}
	}
	outside := t.TempDir()
	testwait.OK(t, errors.Join(
		os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(v.of("acct_1"), "out")),
		os.Symlink("../"+schemas.Namespace("acct_2", "ws_1"), filepath.Join(v.of("acct_1"), "beside")),
		syscall.Mkfifo(filepath.Join(v.of("acct_1"), "fifo"), 0o600)))
	for _, path := range []string{"out", "beside/dir/f", "fifo"} {
		for _, q := range []schemas.FileRequest{{Op: schemas.FileRead, Path: path, Length: 10}, {Op: schemas.FileWrite, Path: path}} {
			if r, body, err := w.files("acct_1", q, "written"); schemas.CodeOf(err) != schemas.Invalid {
				t.Errorf("%s of %s: %+v %q %v", q.Op, path, r, body, err)
			}
		}
	}
}

// A persistent sandbox of the workspace that is up is used; nothing is made, and what has ended is no reason to fail.
func TestFilesUseASandboxThatIsUp(t *testing.T) {
	t.Parallel()
	v := newVolumes(t)
	inFileWorld(t, v, func(w *world) {
		w.want(w.publish(w.call("one", schemas.ToolBash)), schemas.StatusCompleted)
		v.ran()
		stat := func() providers.Command {
			t.Helper()
			if _, _, err := w.files(testAccount, schemas.FileRequest{Op: schemas.FileStat, Path: "."}, ""); err != nil {
				t.Fatal(err)
			}
			runs := v.ran()
			return runs[len(runs)-1]
		}
		in := stat()
		if in.Sandbox.IsZero() || in.Spec.Sandbox != "sb_1" || len(in.Env) > 0 {
			t.Errorf("it ran in %+v", in)
		}
		if _, _, err := w.files("acct_2", schemas.FileRequest{Op: schemas.FileStat, Path: "."}, ""); err != nil {
			t.Error(err)
		}
		if c := v.ran()[0]; !c.Sandbox.IsZero() {
			t.Errorf("another account's ran in %+v", c)
		}
		testwait.OK(t, v.Release(t.Context(), in.Sandbox))
		if c := stat(); !c.Sandbox.IsZero() {
			t.Errorf("it ran in %+v once that was gone", c)
		}
	})
}

// A worker makes few sandboxes for files at a time, fewer for one account, and the others get their turn.
//
//guarantee:bounds
//guarantee:what-one-tenant-can-do-to-another
func TestFewSandboxesAreMadeForFiles(t *testing.T) {
	t.Parallel()
	for accounts, want := range map[int]int{1: FileSandboxesOfAccount, 3: FileSandboxes} {
		t.Run(fmt.Sprint(accounts), func(t *testing.T) {
			t.Parallel()
			v := newVolumes(t)
			var now, most atomic.Int32
			held := make(chan struct{})
			v.hold = func(c providers.Command) {
				if c.Spec.Account == "acct_0" {
					return
				}
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-held
			}
			inFileWorld(t, v, func(w *world) {
				var asking sync.WaitGroup
				for n := range 12 {
					asking.Go(func() {
						a := schemas.AccountID(fmt.Sprint("acct_", 1+n%accounts))
						if _, _, err := w.files(a, schemas.FileRequest{Op: schemas.FileStat, Path: "."}, ""); err != nil {
							t.Errorf("%s: %v", a, err)
						}
					})
				}
				testwait.Eventually(t, "sandboxes are made", func() bool { return now.Load() > 0 })
				if n := testwait.Rested(t, "no more are made", now.Load); int(n) != want {
					t.Errorf("%d at a time, want %d", n, want)
				}
				close(held)
				asking.Wait()
				if n := int(most.Load()); n > want {
					t.Errorf("%d at a time, want %d", n, want)
				}
			})
		})
	}
}

// What a run prints above what its provider keeps is asked for again in smaller pieces.
func TestFilesOfAProviderThatKeepsLittleOutput(t *testing.T) {
	t.Parallel()
	v := newVolumes(t)
	inFileWorld(t, terse{v}, func(w *world) {
		content := bytes.Repeat([]byte("0123456789abcdef"), schemas.MaxFileChunk/16)
		if _, _, err := w.files(testAccount, schemas.FileRequest{Op: schemas.FileWrite, Path: "f"}, string(content)); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for tries := 0; len(got) < len(content) && tries < 10; tries++ {
			_, body, err := w.files(testAccount,
				schemas.FileRequest{Op: schemas.FileRead, Path: "f", Offset: int64(len(got)), Length: schemas.MaxFileChunk}, "")
			if err != nil && (tries > 0 || schemas.CodeOf(err) != schemas.Unavailable) {
				t.Fatal(err)
			}
			got = append(got, body...)
		}
		if !bytes.Equal(got, content) {
			t.Errorf("%d bytes came", len(got))
		}
	})
}

// terse keeps no more of a run's output than every provider does.
type terse struct{ *volumes }

func (p terse) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	limit := min(cmd.OutputLimit, schemas.MaxOutputLimit)
	r, err := p.volumes.Run(ctx, cmd)
	if len(r.Stdout) > limit {
		r.Stdout, r.Truncated = r.Stdout[:limit], true
	}
	return r, err
}

// A run that was lost sight of is ended, its question may be asked again, and a run that cannot be carried out says why.
func TestALostRunForFilesIsEnded(t *testing.T) {
	t.Parallel()
	v := newVolumes(t)
	p := &forgetful{volumes: v}
	inFileWorld(t, p, func(w *world) {
		p.fail.Store(&schemas.Error{Code: schemas.Interrupted, Message: "the outcome is unknown"})
		q := schemas.FileRequest{Op: schemas.FileMkdir, Path: "d"}
		if _, _, err := w.files(testAccount, q, ""); schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("lost: %v", err)
		}
		p.fail.Store(&schemas.Error{Code: schemas.Unsupported, Message: "there are no volumes"})
		if _, _, err := w.files(testAccount, q, ""); schemas.CodeOf(err) != schemas.Unsupported {
			t.Errorf("refused: %v", err)
		}
		p.fail.Store(nil)
		if _, _, err := w.files(testAccount, q, ""); err != nil {
			t.Error(err)
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ended) != 1 || p.ended[0] != p.lost || p.lost == "" {
		t.Errorf("ended %q, lost %q", p.ended, p.lost)
	}
}

// forgetful loses sight of runs.
type forgetful struct {
	*volumes

	fail  atomic.Pointer[schemas.Error]
	mu    sync.Mutex
	lost  string
	ended []string
}

func (p *forgetful) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	err := p.fail.Load()
	if err == nil {
		return p.volumes.Run(ctx, cmd)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err.Code == schemas.Interrupted {
		p.lost = cmd.ID
	}
	return providers.Result{}, err
}

func (p *forgetful) EndRun(_ context.Context, _ string, _ schemas.AccountID, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, id)
	return nil
}
