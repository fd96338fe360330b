//go:build linux

package local_test

import (
	"os/exec"
	"testing"

	"github.com/sandjet/sandjet/providers/local"
)

// BenchmarkRun compares a run of `true` in bash: on the host, under bubblewrap with about the same
// view (no seccomp, no landlock, no limits), and in boxes that are cold, of the pool, and kept; each with
// the box binary of its own ("own") and with this program in its place ("self").
func BenchmarkRun(b *testing.B) {
	b.Run("bash", func(b *testing.B) {
		for b.Loop() {
			if err := exec.CommandContext(b.Context(), "/bin/bash", "-c", "true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bwrap", func(b *testing.B) {
		bwrap, err := exec.LookPath("bwrap")
		if err != nil {
			b.Skip("bubblewrap is not installed: nothing to compare with")
		}
		work := b.TempDir()
		args := []string{
			"--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin", "--ro-bind", "/etc/ssl", "/etc/ssl",
			"--ro-bind", "/etc/alternatives", "/etc/alternatives", "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache",
			"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home", "--bind", work, "/mnt/work",
			"--chdir", "/mnt/work", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--die-with-parent", "--", "/bin/bash", "-c", "true",
		}
		for b.Loop() {
			if out, err := exec.CommandContext(b.Context(), bwrap, args...).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
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

// benchRun measures runs one after the other. Between runs of the pool time stands still until it is
// full again: that is what a pool is for.
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
	for b.Loop() {
		if pool > 0 {
			b.StopTimer()
			p.Filled(b, cmd.Spec)
			b.StartTimer()
		}
		if res, err := p.Run(b.Context(), cmd); err != nil || res.ExitCode != 0 {
			b.Fatal(res, err)
		}
	}
}
