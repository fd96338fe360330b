package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// plainBash is the lower bound: a shell on the host, without isolation.
func plainBash(ctx context.Context) error {
	if err := exec.CommandContext(ctx, "bash", "-c", "true").Run(); err != nil {
		return fmt.Errorf("bash -c true: %w", err)
	}
	return nil
}

// bubblewrap runs the same command in a bubblewrap sandbox with the same files, without seccomp and Landlock, which bubblewrap does not
// set up itself.
func bubblewrap(workspace string) func(context.Context) error {
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/sbin", "/sbin", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home",
		"--bind", workspace, "/mnt/workspaces/w", "--chdir", "/mnt/workspaces/w",
		"--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/home", "--hostname", "sandbox",
		"bash", "-c", "true",
	}
	return func(ctx context.Context) error {
		if out, err := exec.CommandContext(ctx, "bwrap", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("bwrap: %w: %s", err, out)
		}
		return nil
	}
}

func haveBubblewrap() bool {
	_, err := exec.LookPath("bwrap")
	return err == nil
}

func tempDir(pattern string) (string, func(), error) {
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", nil, fmt.Errorf("make a directory: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// Local measures benchmark (b): `true` in the local provider, compared with a plain shell and with bubblewrap, one after the other in each
// round.
func Local(ctx context.Context, rounds int, o local.Options) (Report, error) {
	dir, remove, err := tempDir("sandjet-bench-local-")
	if err != nil {
		return Report{}, err
	}
	defer remove()
	r := Report{Title: "`true` in the local provider", Machine: machine()}
	ways := []way{{"plain `bash -c true` on the host, no isolation", plainBash}}
	if haveBubblewrap() {
		ways = append(ways, way{"bubblewrap, same view, without seccomp and landlock", bubblewrap(dir)})
	} else {
		r.Notes = append(r.Notes, "bubblewrap is not installed here: its row is missing.")
	}
	more, level, closeAll, err := localWays(ctx, dir, o)
	if err != nil {
		return Report{}, err
	}
	defer closeAll()
	ways = append(ways, more...)
	times := make([][]time.Duration, len(ways))
	const warm = 3
	for i := range rounds + warm {
		for n, w := range ways {
			start := time.Now()
			if err := w.run(ctx); err != nil {
				return Report{}, fmt.Errorf("%s: %w", w.name, err)
			}
			if i >= warm {
				times[n] = append(times[n], time.Since(start))
			}
		}
	}
	for n, w := range ways {
		r.Rows = append(r.Rows, durations(w.name, time.Millisecond, times[n]))
	}
	plain := r.Rows[0].Median
	for n, w := range ways[1:] {
		x := Ratio{Name: w.name + " / plain bash", Median: r.Rows[n+1].Median / plain, Min: r.Rows[n+1].Min / r.Rows[0].Min,
			Max: r.Rows[n+1].P95 / r.Rows[0].P95}
		if w.name == wayPool {
			x.Aim = "≤ 2.2"
		}
		if w.name == wayKept {
			x.Aim = "≤ 1.3"
		}
		r.Ratios = append(r.Ratios, x)
	}
	r.Notes = append(r.Notes, "Isolation of the local provider here: "+level+
		". Ratios are of minima, medians and 95th percentiles. Aim for a cold box: not above bubblewrap.")
	return r, nil
}

type way struct {
	name string
	run  func(context.Context) error
}

// The kinds of boxes of the local provider.
const (
	wayCold = "Sandjet local, cold box"
	wayPool = "Sandjet local, box from the warm pool"
	wayKept = "Sandjet local, kept box"
)

func localWays(ctx context.Context, dir string, o local.Options) ([]way, string, func(), error) {
	var opened []*local.Provider
	closeAll := func() {
		for _, p := range opened {
			_ = p.Close()
		}
	}
	open := func(name string, pool int) (*local.Provider, error) {
		o.StateDir, o.Workspaces, o.Pool = filepath.Join(dir, name, "state"), filepath.Join(dir, name, "workspaces"), pool
		p, err := local.New(o)
		if err != nil {
			return nil, err
		}
		opened = append(opened, p)
		return p, nil
	}
	const boxes = 4
	cold, err := open("cold", -1)
	if err != nil {
		return nil, "", closeAll, err
	}
	pooled, err := open("pool", boxes)
	if err != nil {
		return nil, "", closeAll, err
	}
	mounts := []providers.Mount{{Namespace: schemas.Namespace(benchAccount, benchWorkspace)}}
	ref, err := pooled.Reserve(ctx, "bench", providers.Spec{Account: benchAccount, Mounts: mounts})
	if err != nil {
		return nil, "", closeAll, err
	}
	run := func(p providers.Provider, ref schemas.Ref) func(context.Context) error {
		return func(ctx context.Context) error {
			res, err := p.Run(ctx, providers.Command{Script: "true", Mounts: mounts, Sandbox: ref,
				Spec: providers.Spec{Account: benchAccount, Mounts: mounts}})
			if err == nil && res.ExitCode != 0 {
				err = schemas.OpErrorf(schemas.Internal, "bench", "true exits with %d", res.ExitCode)
			}
			return err
		}
	}
	// The pool is refilled between the rounds, as between calls: only the claim of a box is timed.
	claim := run(pooled, schemas.Ref{})
	return []way{{wayCold, run(cold, schemas.Ref{})}, {wayPool, claim}, {wayKept, run(pooled, ref)}},
		providers.ProfileOf(cold).Isolation.Level, closeAll, nil
}
