//go:build unix

package providertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// bareLevel is what a profile says of a bare process.
const bareLevel = "L0"

// killPatience is how long killed processes may take to be gone.
const killPatience = 30 * time.Second

// Bare is a provider for tests: it runs bash in temporary directories and isolates nothing. It accepts deny-all but does not enforce it.
// The workspace is the working directory, not a path below /mnt/workspaces; otherwise it fulfils the interface and is tested by the same
// suite as real providers. It is safe for concurrent use.
type Bare struct {
	dir string

	mu    sync.Mutex
	boxes map[string]*bareBox // by key; also the id of their Ref
	runs  int
}

// bareBox is a kept box: its home and temporary directory and a context that ends with it.
type bareBox struct {
	ref     schemas.Ref
	dir     string
	spec    providers.Spec
	gone    context.Context //nolint:containedctx // it is the box's life, not a call's
	release context.CancelFunc
	running sync.WaitGroup
}

var (
	_ providers.Provider = (*Bare)(nil)
	_ providers.Reserver = (*Bare)(nil)
	_ providers.Filer    = (*Bare)(nil)
	_ providers.Profiler = (*Bare)(nil)
)

// NewBare returns a provider that keeps everything below dir, which must exist.
func NewBare(dir string) *Bare { return &Bare{dir: dir, boxes: map[string]*bareBox{}} }

// Profile is honest about what is enforced: nothing.
func (b *Bare) Profile() providers.Profile {
	return providers.Profile{
		Name:       "bare",
		Networks:   []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll},
		Isolation:  schemas.Isolation{Level: bareLevel},
		Persistent: true,
		MaxTimeout: schemas.Duration(schemas.MaxTimeout),
		MaxMemory:  schemas.MaxMemoryLimit << 20,
		Jobs:       true,
		MaxOutput:  schemas.MaxOutputLimit,
		Shell:      "bash",
	}
}

// Reserve keeps a box under key.
func (b *Bare) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	if err := ctx.Err(); err != nil {
		return schemas.Ref{}, err
	}
	if err := refuse(spec, spec.Network); err != nil {
		return schemas.Ref{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if box, ok := b.boxes[key]; ok {
		return box.ref, nil
	}
	dir, err := b.makeBox("kept")
	if err != nil {
		return schemas.Ref{}, err
	}
	box := &bareBox{ref: schemas.Ref{ID: key, Epoch: rand.Text()}, dir: dir, spec: spec}
	box.gone, box.release = context.WithCancel(context.Background())
	b.boxes[key] = box
	return box.ref, nil
}

// Release ends a box and what runs in it.
func (b *Bare) Release(_ context.Context, ref schemas.Ref) error {
	b.mu.Lock()
	box, ok := b.boxes[ref.ID]
	if ok && box.ref == ref {
		delete(b.boxes, ref.ID)
	}
	b.mu.Unlock()
	if !ok || box.ref != ref {
		return nil
	}
	box.release()
	box.running.Wait()
	return errors.Join(killMarked(box.mark()), removeAll(box.dir))
}

// removeAll removes a box's directory. It retries, because processes that were just killed may still create a file.
func removeAll(dir string) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil || time.Since(began) > killPatience {
			return err
		}
	}
}

// Close releases every box.
func (b *Bare) Close() error {
	b.mu.Lock()
	refs := make([]schemas.Ref, 0, len(b.boxes))
	for _, box := range b.boxes {
		refs = append(refs, box.ref)
	}
	b.mu.Unlock()
	errs := make([]error, 0, len(refs))
	for _, ref := range refs {
		errs = append(errs, b.Release(context.Background(), ref))
	}
	return errors.Join(errs...)
}

// makeBox makes the directories of a box.
func (b *Bare) makeBox(kind string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, kind+"-")
	if err != nil {
		return "", schemas.Wrap(schemas.Unavailable, "make box", "the box's directory cannot be made", err)
	}
	for _, sub := range []string{"home", "tmp", "bin"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return "", schemas.Wrap(schemas.Unavailable, "make box", "the box's directory cannot be made", err)
		}
	}
	return dir, nil
}

// box returns the box in which cmd runs. The caller calls done when the run has ended.
func (b *Bare) box(cmd providers.Command) (box *bareBox, done func() error, err error) {
	if cmd.Sandbox.IsZero() {
		dir, err := b.makeBox("fresh")
		if err != nil {
			return nil, nil, err
		}
		spec := cmd.Spec
		if len(cmd.Mounts) > 0 {
			spec.Mounts = cmd.Mounts
		}
		box = &bareBox{dir: dir, spec: spec, gone: context.Background()}
		return box, func() error { return errors.Join(killMarked(box.mark()), removeAll(dir)) }, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	box, ok := b.boxes[cmd.Sandbox.ID]
	if !ok || box.ref != cmd.Sandbox {
		return nil, nil, schemas.OpErrorf(schemas.NotFound, "run", "the sandbox is gone: reserve it again")
	}
	box.running.Add(1)
	return box, func() error { box.running.Done(); return nil }, nil
}

// refuse returns an error for rules that the profile cannot enforce.
func refuse(spec providers.Spec, network schemas.Network) error {
	switch {
	case network.Mode != "" && network.Mode != schemas.DenyAll && network.Mode != schemas.AllowAll:
		return schemas.OpErrorf(schemas.Unsupported, "run", "a bare process cannot be kept to network mode %q", network.Mode)
	case spec.MinIsolation != "" && spec.MinIsolation != bareLevel:
		return schemas.OpErrorf(schemas.Unsupported, "run", "isolation %s was asked for, a bare process has %s", spec.MinIsolation, bareLevel)
	case spec.MemoryLimit > 0 || spec.Pids > 0 || spec.CPUs > 0:
		return schemas.OpErrorf(schemas.Unsupported, "run", "a bare process cannot be limited in memory, processes or processors")
	default:
		return nil
	}
}

// mark returns the text that the environment of all processes of the box contains, followed by the run's own mark.
func (box *bareBox) mark() string { return filepath.Join(box.dir, "bin") + "/" }

// environment returns cmd's environment, with only declared variables. The mark is at the end of PATH: by it the run's processes are
// found, whatever process group they are in.
func (box *bareBox) environment(cmd providers.Command, mark string) []string {
	env := maps.Clone(box.spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, cmd.Env)
	maps.Copy(env, map[string]string{
		"PATH":   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + mark,
		"HOME":   filepath.Join(box.dir, "home"),
		"TMPDIR": filepath.Join(box.dir, "tmp"),
		"LANG":   "C.UTF-8",
	})
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// workspace returns the directory of a mount's files, made when absent.
func (b *Bare) workspace(m providers.Mount) (string, error) {
	if m.Namespace == "" || m.Namespace == "." || m.Namespace == ".." || strings.ContainsAny(m.Namespace, "/\x00") {
		return "", schemas.Invalidf("mount", "a namespace is one path component, not %q", m.Namespace)
	}
	dir := filepath.Join(b.dir, "workspaces", m.Namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's directory cannot be made", err)
	}
	return dir, nil
}

// OpenWorkspace opens a mount's files.
func (b *Bare) OpenWorkspace(ctx context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := b.workspace(m)
	if err != nil {
		return nil, err
	}
	root, err := safefs.Open(dir, safefs.Options{ReadOnly: m.ReadOnly})
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace cannot be opened", err)
	}
	return root, nil
}

// workingDir translates cmd.Dir, a path in a box, to a path on this host.
func (b *Bare) workingDir(cmd providers.Command, box *bareBox) (string, error) {
	dir, found := filepath.Join(box.dir, "tmp"), cmd.Dir == ""
	for i, m := range box.spec.Mounts {
		files, err := b.workspace(m)
		if err != nil {
			return "", err
		}
		if cmd.Dir == "" {
			if i == 0 {
				dir = files
			}
			continue
		}
		if rel, err := filepath.Rel(m.Path(), cmd.Dir); err == nil && filepath.IsLocal(rel) {
			dir, found = filepath.Join(files, rel), true
		}
	}
	switch rel, err := filepath.Rel("/tmp", cmd.Dir); {
	case found:
		return dir, nil
	case err == nil && filepath.IsLocal(rel):
		return filepath.Join(box.dir, "tmp", rel), nil
	default:
		return cmd.Dir, nil
	}
}

// script returns bash's arguments. A long script is put into a file, because the kernel limits arguments.
func (b *Bare) script(cmd providers.Command, box *bareBox) ([]string, error) {
	const longest = 64 << 10
	if len(cmd.Script) <= longest {
		return []string{"-c", "--", cmd.Script}, nil
	}
	b.mu.Lock()
	b.runs++
	name := filepath.Join(box.dir, fmt.Sprintf("script-%d", b.runs))
	b.mu.Unlock()
	if err := os.WriteFile(name, []byte(cmd.Script), 0o600); err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "run", "the script cannot be stored", err)
	}
	return []string{name}, nil
}
