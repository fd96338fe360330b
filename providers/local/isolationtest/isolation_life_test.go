//go:build linux

package isolationtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// lives are attacks on the order of life and death of boxes.
func lives(t *testing.T, h *host) {
	t.Run("processes outside were left alone", func(t *testing.T) {
		if !alive(h.canary.Process) {
			t.Error("the canary process is gone")
		}
	})
	t.Run("orphans are reaped", func(t *testing.T) { orphans(t, h) })
	t.Run("tenants are different users", func(t *testing.T) { tenants(t, h) })
	t.Run("the worker keeps no file open", func(t *testing.T) { openFiles(t, h) })
	t.Run("a killed worker leaves nothing", killedWorker)
}

func orphans(t *testing.T, h *host) {
	spec := h.command("").Spec
	ref, err := h.provider.Reserve(t.Context(), "orphans", spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.provider.Release(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}()
	in := func(script string) providers.Command {
		cmd := h.command(script)
		cmd.Sandbox = ref
		return cmd
	}
	// Children of processes that have ended belong to the first process of the box.
	if got := h.ok(t, in(fmt.Sprintf(`for i in $(seq %d); do ( (true; exit 7) & (sleep 0.01 &) ); done; (exit 5); echo $?`, longtest.Scale(100, 300)))); got != "5" {
		t.Errorf("an exit code was lost among the orphans: %q", got)
	}
	count := in(`for i in $(seq 200); do n=$(cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | grep -c '^Z'); [ "$n" -le 1 ] && break; sleep 0.02; done; echo $n`)
	if level() != "L3" {
		return // without a pid namespace the host's own are seen too
	}
	if got := h.ok(t, count); got != "0" && got != "1" {
		t.Errorf("%s dead processes were not reaped", got)
	}
}

func tenants(t *testing.T, h *host) {
	if level() != "L3" || os.Getuid() != 0 {
		t.Skip("only root can give each tenant a user of its own, and only with user namespaces")
	}
	outside := func(account schemas.AccountID) int {
		cmd := h.command("awk '{print $2}' /proc/self/uid_map")
		cmd.Mounts = []providers.Mount{mountOf(account, "tenants")}
		cmd.Spec.Account, cmd.Spec.Mounts = account, cmd.Mounts
		id, err := strconv.Atoi(h.ok(t, cmd))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, again, two := outside("acct_one"), outside("acct_one"), outside("acct_two")
	if one != again || one == two || one < 165536 || two < 165536 {
		t.Errorf("users %d, %d and %d", one, again, two)
	}
}

func openFiles(t *testing.T, h *host) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	h.ok(t, h.command("true"))
	before := testwait.Rested(t, "open files", count) // boxes that are made in advance have files too
	for range longtest.Scale(12, 30) {
		h.run(t, h.command("exit 3"))
	}
	eventually(t, "files are closed", func() bool { return count() <= before+2 })
}

// beating appends to the workspace's file "beats" for as long as it lives, whatever signals it gets.
const beating = `export -f beat 2>/dev/null
beat() { trap '' TERM HUP INT; while :; do echo x >>beats; sleep 0.05; done; }
export -f beat
( setsid bash -c beat >/dev/null 2>&1 </dev/null & )
until [ -s beats ]; do sleep 0.01; done
echo beating
sleep 600`

// worker is a process that runs a box until it is killed.
func worker() int {
	p, err := newProvider(os.Getenv("WORKER_DIR"), os.Getenv("WORKER_BOX"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	mounts := []providers.Mount{mountOf("acct_killed", "killed")}
	spec := providers.Spec{Account: "acct_killed", Mounts: mounts}
	ref, err := p.Reserve(context.Background(), "kept", spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, sandbox := range []schemas.Ref{{}, ref} {
		go func() {
			_, err := p.Run(context.Background(), providers.Command{
				Script: beating, Mounts: mounts, Spec: spec, Sandbox: sandbox, Timeout: schemas.MaxTimeout,
				Output: func(c providers.Chunk) { _, _ = os.Stdout.Write(c.Data) },
			})
			fmt.Fprintln(os.Stderr, "the run ended:", err)
		}()
	}
	select {}
}

func killedWorker(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), stageVariable+"=worker", "WORKER_DIR="+dir, "WORKER_BOX="+box(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := "beating\nbeating\n"
	if _, err := io.ReadFull(out, make([]byte, len(want))); err != nil {
		t.Fatalf("the worker did not get that far: %v", err)
	}
	family := descendants(cmd.Process.Pid)
	if len(family) < 4 {
		t.Errorf("only %d processes below the worker: the test looks in the wrong place", len(family))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "all processes of the worker are gone", func() bool {
		return !slices.ContainsFunc(family, running)
	})
	beats := filepath.Join(dir, "workspaces", mountOf("acct_killed", "killed").Namespace, "beats")
	size := func() int64 {
		info, err := os.Stat(beats)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	testwait.Rested(t, "what the worker's boxes wrote to", size)
}

// descendants lists the processes below pid.
func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// running reports whether pid is there and not just waiting to be reaped.
func running(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
