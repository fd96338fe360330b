//go:build linux

package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// patience is when a test fails.
const patience = 90 * time.Second

// workerDir is set for a process that is to be a worker that a test kills.
const workerDir = "SANDJET_TEST_WORKER"

// outsideAt is where such a worker's boxes find what they connect to.
const outsideAt = "SANDJET_TEST_OUTSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(egresstest.ProbeVariable) != "" {
		egresstest.BeProbe(os.Args[1:])
		os.Exit(0)
	}
	if dir := os.Getenv(workerDir); dir != "" {
		beWorker(dir)
	}
	longtest.SideBySide()
	os.Exit(m.Run())
}

// beWorker has a box with processes that want to stay, says so, and waits.
func beWorker(dir string) {
	o := local.Options{StateDir: dir + "/state", Workspaces: dir + "/workspaces", Pool: 2, AllowUnisolated: true}
	elsewhere := os.Getenv(outsideAt)
	if elsewhere != "" {
		o.Networks = []schemas.NetworkMode{schemas.Restricted}
		o.Dial = func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", elsewhere)
		}
	}
	p, err := local.NewAt(o, os.Getenv("SANDJET_TEST_LEVEL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("SANDJET_TEST_JOB") != "" {
		fmt.Fprintln(os.Stderr, "the worker ended:", jobOfAWorker(context.Background(), p))
		os.Exit(1)
	}
	cmd := command("trap '' TERM HUP; (setsid bash -c 'trap \"\" TERM HUP; echo ready; while :; do sleep 600; done' &); sleep 600")
	if elsewhere != "" {
		cmd = with(egresstest.Restricted(), "exec 3<>/dev/tcp/93.184.217.7/9000; read -r line <&3; "+cmd.Script)
	}
	cmd.Timeout = time.Minute
	cmd.Output = func(c providers.Chunk) { _, _ = os.Stdout.Write(c.Data) }
	_, err = p.Run(context.Background(), cmd)
	fmt.Fprintln(os.Stderr, "the run ended:", err)
	os.Exit(1)
}

func TestNothingOutlivesTheWorker(t *testing.T) {
	for _, level := range []string{"L3", "L2", "L0"} {
		t.Run(level, func(t *testing.T) { nothingOutlives(t, level) })
	}
}

func nothingOutlives(t *testing.T, level string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), workerDir+"="+t.TempDir(), "SANDJET_TEST_LEVEL="+level)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var family map[int]string
	until(t, "the spawner, the init, a shell and what it has left behind", func() bool {
		family = descendants(cmd.Process.Pid)
		return len(family) >= 4
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	until(t, "the end of all processes of the worker", func() bool {
		for pid, start := range family {
			if started(pid) == start {
				return false
			}
		}
		return true
	})
	t.Logf("%d processes were gone after %v", len(family), time.Since(killed))
}

// descendants returns what descends from a process and has not ended, with the times of start.
func descendants(root int) map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, start := map[int]int{}, map[int]string{}
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if fields := stat(pid); len(fields) > 1 {
			parent[pid], _ = strconv.Atoi(fields[1])
			start[pid] = startedBy(fields)
		}
	}
	for pid := range parent {
		for up := parent[pid]; up > 1; up = parent[up] {
			if up == root && start[pid] != "" {
				found[pid] = start[pid]
			}
			if up == root {
				break
			}
		}
	}
	return found
}

func stat(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	s := string(data)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// started returns when a process was started; empty when it has ended.
func started(pid int) string { return startedBy(stat(pid)) }

// startedBy is started of what stat has returned.
func startedBy(fields []string) string {
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// until waits for what has to come.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s did not come within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond) // what is waited for sends no signal
	}
}

func TestCloseLeavesNothingLeak(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := descendants(os.Getpid())
	files := openFiles(t)
	dir := t.TempDir()
	p, err := local.New(local.Options{StateDir: dir + "/state", Workspaces: dir + "/workspaces", Pool: 3})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := p.Reserve(t.Context(), "kept", command("").Spec)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			cmd := command("sleep 600 & echo x")
			if i%2 == 0 {
				cmd.Sandbox = ref
			}
			if res, err := p.Run(t.Context(), cmd); err != nil || string(res.Stdout) != "x\n" {
				t.Errorf("%q, %v", res.Stdout, err)
			}
		})
	}
	all.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for pid := range descendants(os.Getpid()) {
		if _, ok := before[pid]; !ok && started(pid) != "" {
			t.Errorf("process %d is left", pid)
		}
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d files are open, %d were", n, files)
	}
	if _, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("a closed provider ran something: %v", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestLifeContinuesWithoutSpawnerPool(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.Pool = -1 })
	ref, err := p.Reserve(t.Context(), "kept", command("").Spec)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range descendants(os.Getpid()) {
		if data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); string(data) == "sandjet-box\x00spawn\x00" {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, "the spawner's end", func() bool { return started(pid) == "" })
		}
	}
	cmd := command("echo kept")
	cmd.Sandbox = ref
	if res, err := p.Run(t.Context(), cmd); err != nil || string(res.Stdout) != "kept\n" {
		t.Errorf("in the kept box: %q, %v", res.Stdout, err)
	}
	// The first box may meet the spawner's end; it says that nothing was started.
	until(t, "a fresh box", func() bool {
		res, err := p.Run(t.Context(), command("echo fresh"))
		return err == nil && string(res.Stdout) == "fresh\n"
	})
}

func TestPooledBoxesAreNotSharedPool(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.Pool = 2 })
	seen := map[string]bool{}
	for range 12 {
		res := run(t, p, "cat /run/boot_id; ls -A /tmp /home/sandbox | grep -c left; touch /tmp/left ~/left")
		fields := strings.Fields(string(res.Stdout))
		if len(fields) != 2 || fields[1] != "0" || seen[fields[0]] {
			t.Errorf("a box was used twice: %q", fields)
		}
		seen[fields[0]] = true
	}
}

func TestRulesOfAKeptBoxChangePool(t *testing.T) {
	p := open(t, "L3", nil)
	spec := command("").Spec
	first, err := p.Reserve(t.Context(), "kept", spec)
	if err != nil {
		t.Fatal(err)
	}
	spec.MemoryLimit = 64 << 20
	second, err := p.Reserve(t.Context(), "kept", spec)
	if err != nil || first.Epoch == second.Epoch {
		t.Errorf("%v, %v, %v: the limit is not in force", first, second, err)
	}
	cmd := command("echo ran")
	cmd.Sandbox, cmd.Mounts = second, nil
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.NotFound || res.Started {
		t.Errorf("a run with other mounts: %v", err)
	}
}

// TestAnOldLandlockEmptiesNoFiles: rules of Landlock before ABI 3 let a command empty every file that its user may write, by the file's path
// alone or by an open to read. Where a box has the host's view the filter of system calls keeps it from that.
func TestAnOldLandlockEmptiesNoFiles(t *testing.T) {
	dir, err := os.MkdirTemp("", "outside") // the user of boxes may enter it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "x")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte("whole"), 0o600), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, abi := range []int{1, 2, 0} {
		t.Run(strconv.Itoa(abi), func(t *testing.T) {
			p := open(t, "L2", nil)
			p.LimitLandlock(abi)
			res := run(t, p, `perl -e 'use Fcntl; my $f = shift; print "cut " if truncate($f, 0);
for my $flags (O_RDONLY|O_TRUNC, 3|O_TRUNC) { print "opened " if sysopen(my $h, $f, $flags); }' `+file+
				`; echo more >mine; : >mine; echo less >mine; cat mine`)
			if data, err := os.ReadFile(file); err != nil || string(data) != "whole" || string(res.Stdout) != "less\n" {
				t.Errorf("the file outside is %q, %v; the command printed %q", data, err, res.Stdout)
			}
		})
	}
}
