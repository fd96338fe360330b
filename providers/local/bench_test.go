//go:build linux

package local_test

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// BenchmarkRun compares a run of `true` in bash: on the host, under bubblewrap with about the same
// view (no seccomp, no landlock, no limits), and in boxes that are cold, of the pool, and kept; each with
// the box binary of its own ("own") and with this program in its place ("self").
func BenchmarkRun(b *testing.B) {
	b.Run("bash", func(b *testing.B) {
		medians(b, nil, func() error { return exec.CommandContext(b.Context(), "/bin/bash", "-c", "true").Run() })
	})
	b.Run("bwrap", func(b *testing.B) {
		bwrap, err := exec.LookPath("bwrap")
		if err != nil {
			longtest.Missing(b, "bubblewrap is not installed: nothing to compare with")
		}
		work := b.TempDir()
		args := []string{
			"--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin", "--ro-bind", "/etc/ssl", "/etc/ssl",
			"--ro-bind", "/etc/alternatives", "/etc/alternatives", "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache",
			"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home", "--bind", work, "/mnt/work",
			"--chdir", "/mnt/work", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--die-with-parent", "--", "/bin/bash", "-c", "true",
		}
		medians(b, nil, func() error { return exec.CommandContext(b.Context(), bwrap, args...).Run() })
	})
	for _, rung := range []string{"self", "own"} {
		b.Run(rung, func(b *testing.B) {
			program := ""
			if rung == "own" {
				program = boxProgram(b)
			}
			b.Run("cold", func(b *testing.B) { benchRun(b, program, -1, false) })
			b.Run("pool", func(b *testing.B) { benchRun(b, program, 4, false) })
			b.Run("kept", func(b *testing.B) { benchRun(b, program, -1, true) })
		})
	}
}

// benchRun measures runs one after the other. With a pool, the time until the pool is full again is not measured: that is what
// a pool is for.
func benchRun(b *testing.B, program string, pool int, kept bool) {
	b.Helper()
	p := open(b, "L3", func(o *local.Options) { o.Box, o.Pool = program, pool })
	cmd := command("true")
	if kept {
		ref, err := p.Reserve(b.Context(), "bench", cmd.Spec)
		if err != nil {
			b.Fatal(err)
		}
		cmd.Sandbox = ref
	}
	if _, err := p.Run(b.Context(), cmd); err != nil {
		b.Fatal(err)
	}
	fill := func() {
		if pool > 0 {
			p.Filled(b, cmd.Spec)
		}
	}
	medians(b, fill, func() error {
		res, err := p.Run(b.Context(), cmd)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", res.ExitCode)
		}
		return err
	})
}

// BenchmarkJob measures a job of `true` in a kept box from its start until its end is reported, which is on disk then; "start" is until
// it runs.
func BenchmarkJob(b *testing.B) {
	program := boxProgram(b)
	for _, whole := range []bool{false, true} {
		name := "start"
		if whole {
			name = "end"
		}
		b.Run(name, func(b *testing.B) {
			p := open(b, "L3", func(o *local.Options) { o.Box, o.Pool = program, -1 })
			cmd := command("true")
			ref, err := p.Reserve(b.Context(), "bench", cmd.Spec)
			if err != nil {
				b.Fatal(err)
			}
			cmd.Sandbox = ref
			ended := make(chan providers.JobEnd, 1)
			running := false
			await := func() {
				if e := <-ended; e.ExitCode != 0 || e.Lost {
					b.Fatalf("%+v", e)
				}
				running = false
			}
			before := func() {
				if running {
					await()
				}
			}
			medians(b, before, func() error {
				_, err := p.StartJob(b.Context(), schemas.NewJobID(), cmd, providers.JobOptions{Notify: func(e providers.JobEnd) { ended <- e }})
				running = err == nil
				if whole && running {
					await()
				}
				return err
			})
			before()
		})
	}
}

// medians measures f, after prepare, which does not count, and reports the median and the 95th
// percentile: on a busy machine a mean says little.
func medians(b *testing.B, prepare func(), f func() error) {
	b.Helper()
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		if prepare != nil {
			prepare()
		}
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
}
