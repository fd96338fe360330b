//go:build linux

package isolationtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// workspace is where the probe's files lie outside of the box.
func (h *host) workspace() string { return filepath.Join(h.workspaces, h.mount.Namespace) }

// plantedAttacks are files that got into a workspace with rights that no box could give them.
func plantedAttacks(t *testing.T, h *host) {
	if os.Getuid() == 0 {
		plantedByRoot(t, h)
	}
	t.Run("a workspace that is a link", func(t *testing.T) {
		mount := mountOf("acct_probe", "linked")
		if err := os.Symlink(filepath.Dir(h.env["OUTSIDE"]), filepath.Join(h.workspaces, mount.Namespace)); err != nil {
			t.Fatal(err)
		}
		cmd := h.command("cat outside; ls; echo x >new")
		cmd.Mounts, cmd.Spec.Mounts = []providers.Mount{mount}, []providers.Mount{mount}
		res, err := h.provider.Run(t.Context(), cmd)
		if err == nil || res.Started {
			t.Errorf("it ran: %q, %v", res.Stdout, err)
		}
		if strings.Contains(string(res.Stdout), secret) {
			t.Error("it left its workspace")
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(h.env["OUTSIDE"]), "new")); err == nil {
			t.Error("it wrote outside")
		}
	})
	t.Run("a workspace that is exchanged for a link meanwhile", func(t *testing.T) { exchanged(t, h) })
}

func plantedByRoot(t *testing.T, h *host) {
	plant := func(t *testing.T, name, from string, mode os.FileMode) string {
		t.Helper()
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(h.workspace(), name)
		if err := errors.Join(os.WriteFile(file, data, 0o755), os.Chown(file, 0, 0), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	probe, err := probeProgram()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a program that sets its user to root", func(t *testing.T) {
		plant(t, "setuid", probe, 0o755|os.ModeSetuid|os.ModeSetgid)
		got := h.ok(t, h.command("./setuid syscall setuid; ./setuid status; ./setuid open /proc/self/status r >/dev/null; cp ./setuid own; id -u"))
		if strings.HasPrefix(got, "ok") || !strings.Contains(got, "CapEff= ") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a program with file capabilities", func(t *testing.T) {
		file := plant(t, "capable", probe, 0o755)
		// struct vfs_cap_data, revision 2, effective: all of the first 32 for permitted.
		data := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		if err := unix.Setxattr(file, "security.capability", data, 0); err != nil {
			t.Skipf("this file system keeps no capabilities: %v", err)
		}
		res := h.run(t, h.command("./capable status"))
		if got := string(res.Stdout); got != "" && !strings.Contains(got, "CapPrm= CapEff= ") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a device", func(t *testing.T) {
		file := filepath.Join(h.workspace(), "device")
		if err := errors.Join(unix.Mknod(file, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Chmod(file, 0o666)); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(file)
		if got := h.ok(t, h.command("./probe open device r; ./probe open device w")); got != "EACCES\nEACCES" {
			t.Errorf("got %q", got)
		}
	})
}

// exchanged swaps a workspace's directory and a link to the outside as fast as it can while boxes are
// made for it. Each run either fails or sees its own files.
func exchanged(t *testing.T, h *host) {
	mount := mountOf("acct_probe", "exchanged")
	dir := filepath.Join(h.workspaces, mount.Namespace)
	first := h.command("echo own >file")
	first.Mounts, first.Spec.Mounts = []providers.Mount{mount}, []providers.Mount{mount}
	h.ok(t, first)
	link := dir + ".link"
	if err := os.Symlink(filepath.Dir(h.env["OUTSIDE"]), link); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	defer func() { close(stop); swapping.Wait(); _ = os.Remove(link); _ = os.Remove(dir) }()
	ran := 0
	for range 60 {
		script := "cat outside file; ls; true"
		if level() != "L3" { // landlock keeps nobody from asking whether a name exists
			script = "cat outside file; ls | grep -v '^file$'; true"
		}
		cmd := h.command(script)
		cmd.Mounts, cmd.Spec.Mounts = []providers.Mount{mount}, []providers.Mount{mount}
		res, err := h.provider.Run(t.Context(), cmd)
		switch out := string(res.Stdout); {
		case strings.Contains(out, secret), err == nil && level() == "L3" && out != "own\nfile\n", err == nil && out != "" && !strings.HasPrefix(out, "own\n"):
			t.Fatalf("it left its workspace: %q, %v", out, err)
		case err == nil && out != "":
			ran++
		}
	}
	t.Logf("%d of 60 runs found their own files, the others were refused", ran)
}

// bombs use up what a machine has. Each ends in bounded time, and the next run is fine.
func bombs(t *testing.T, h *host) {
	for _, b := range []struct {
		name, script string
		timeout      time.Duration
		check        func(t *testing.T, res providers.Result)
	}{
		{"forks", "ulimit -Su 5000; bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 60", 3 * time.Second, nil},
		{"forks that leave", `for i in $(seq 700); do (setsid sleep 60 >/dev/null 2>&1 &) 2>/dev/null; done; echo end`, 3 * time.Second, nil},
		{"threads", `python3 -c 'import threading,time
n=0
try:
  while n < 20000: threading.Thread(target=time.sleep,args=(60,),daemon=True).start(); n+=1
except BaseException: pass
print("bounded" if n < 20000 else "unbounded", flush=True)
import os; os._exit(0)' 2>/dev/null`, 20 * time.Second, func(t *testing.T, res providers.Result) {
			t.Helper()
			if strings.Contains(string(res.Stdout), "unbounded") {
				t.Error("20,000 threads were made")
			}
		}},
		{"private memory", "./probe memory private 8192", patience, notSurvived},
		{"memory of many", "for i in 1 2 3 4 5 6 7 8; do ./probe memory private 1024 & done; wait", patience, notSurvived},
		{"memory in unmapped files", "./probe memory memfd 8192", patience, notSurvived},
		{"shared memory that nobody holds", "./probe memory shm 8192", patience, notSurvived},
		{"semaphores", "./probe semaphores 300", patience, func(t *testing.T, res providers.Result) {
			t.Helper()
			if strings.Contains(string(res.Stdout), "survived") {
				t.Errorf("it got 600 MiB of the kernel's memory: %q", res.Stdout)
			}
		}},
		{"files in memory", `head -c 250M /dev/zero >/tmp/x; head -c 60M /dev/zero >/home/.sandjet/x; head -c 60M /dev/zero >/dev/shm/x; sleep 2; df --output=used -m /tmp /home /dev/shm | awk '{n += $1} END {print "used", n}'`, patience, func(t *testing.T, res providers.Result) {
			t.Helper()
			var used int
			if _, err := fmt.Sscanf(strings.TrimSpace(string(res.Stdout)), "used %d", &used); err == nil && used > 256+16 && level() == "L3" {
				t.Errorf("%d MiB lie in memory", used)
			}
		}},
		{"buffers of connections", "./probe memory tcp 700", patience, func(t *testing.T, res providers.Result) {
			t.Helper()
			counted := slices.Contains(h.profile.Isolation.Enforced, "cgroup.memory") // else see the document of guarantees
			if counted && strings.Contains(string(res.Stdout), "survived") {
				t.Errorf("it got more than its memory: %q", res.Stdout)
			}
		}},
		{"many files", `cd "$TMPDIR"; for i in $(seq 40); do (mkdir d$i; cd d$i; : >f; for j in $(seq 500); do echo x >$j; done); done 2>/dev/null; echo end`, patience, nil},
		{"a fifo that nobody writes", "mkfifo f; cat f", time.Second, func(t *testing.T, res providers.Result) {
			t.Helper()
			if !res.TimedOut {
				t.Error("it did not time out")
			}
		}},
		{"odd bytes", `printf 'a\0b\033[31m\377\376\xc3'; head -c 100000 /dev/urandom; printf 'end'`, patience, func(t *testing.T, res providers.Result) {
			t.Helper()
			if !strings.HasPrefix(string(res.Stdout), "a\x00b\x1b[31m") || !strings.HasSuffix(string(res.Stdout), "end") {
				t.Errorf("got %.20q", res.Stdout)
			}
		}},
		{"a deaf family holding the output", `trap '' TERM HUP INT; for i in 1 2 3; do (setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 1; done' &); done; sleep 60`, time.Second, func(t *testing.T, res providers.Result) {
			t.Helper()
			if !res.TimedOut || res.ExitCode != 124 {
				t.Errorf("%+v", res)
			}
		}},
	} {
		t.Run(b.name, func(t *testing.T) {
			cmd := h.command(b.script)
			cmd.Timeout, cmd.Grace = b.timeout, 100*time.Millisecond
			if h.profile.MemoryLimit {
				cmd.Spec.MemoryLimit = 256 << 20
			}
			ctx, cancel := context.WithTimeout(t.Context(), b.timeout+patience)
			defer cancel()
			res, err := h.provider.Run(ctx, cmd)
			if err != nil {
				t.Fatalf("%v: %+v", err, res)
			}
			if b.check != nil {
				b.check(t, res)
			}
			if got := h.ok(t, h.command("echo fine")); got != "fine" {
				t.Errorf("the next run: %q", got)
			}
		})
	}
	t.Run("endless output", func(t *testing.T) { endlessOutput(t, h) })
}

// notSurvived: the limit ended it, be it by killing or by refusing memory.
func notSurvived(t *testing.T, res providers.Result) {
	t.Helper()
	if strings.Contains(string(res.Stdout), "8192 survived") || strings.Count(string(res.Stdout), "survived") == 8 {
		t.Errorf("it got all its memory: %q", res.Stdout)
	}
	if res.TimedOut {
		t.Error("it ended by its timeout, not by its limit")
	}
}

// endlessOutput prints 10 GiB and watches the worker's own memory meanwhile.
func endlessOutput(t *testing.T, h *host) {
	size := int64(10 << 30)
	if testing.Short() {
		size = 1 << 30
	}
	before := residentMemory(t)
	peak, stop := before, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				peak = max(peak, residentMemory(t))
			}
		}
	})
	cmd := h.command(fmt.Sprintf("echo begin; head -c %d /dev/zero; echo end", size))
	cmd.Timeout = 5 * time.Minute
	var seen int64
	cmd.Output = func(c providers.Chunk) { seen += int64(len(c.Data)) }
	res := h.run(t, cmd)
	close(stop)
	watching.Wait()
	total := size + int64(len("begin\nend\n"))
	if !res.Truncated || res.StdoutBytes != total || seen != total || res.ExitCode != 0 || len(res.Stdout) > schemas.DefaultOutputLimit+1024 {
		t.Errorf("truncated %v, %d bytes counted, %d seen, %d kept, exit code %d, timed out %v", res.Truncated, res.StdoutBytes, seen, len(res.Stdout), res.ExitCode, res.TimedOut)
	}
	if grown := peak - before; grown > 64<<20 {
		t.Errorf("the worker grew by %d MiB", grown>>20)
	}
	t.Logf("%d MiB in %v, worker grew by %d KiB", size>>20, res.Duration, (peak-before)>>10)
}

func residentMemory(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Error(err)
		return 0
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Error(err)
	}
	return pages * int64(os.Getpagesize())
}

// fileToolAttacks go against the files that the worker opens itself, beside the box.
func fileToolAttacks(t *testing.T, h *host) {
	root, err := h.provider.OpenWorkspace(t.Context(), "acct_probe", h.mount)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h.ok(t, h.command(`mkdir tools && cd tools && ln -s "$OUTSIDE" absolute && ln -s "../../../../../../../../../..$OUTSIDE" climbing &&
ln -s "$(dirname "$OUTSIDE")" dirlink && ln -s / all && ln -s .. up && ln -s ../.. up2 && ln -s "/proc/self/root$OUTSIDE" magic && ln -s /proc/$WORKER/environ environ &&
ln -s /proc/self/fd fds && ln -s loop loop && ln -s dangling/x dangling && mkfifo fifo && mkdir dir && ln -s "$WORKSPACES/$OTHER/file" other && ln -s ../"$OTHER"/file other2 && ln -s /dev/zero zero`))
	outside := h.env["OUTSIDE"]
	for _, name := range []string{
		"absolute", "climbing", "dirlink/outside", "all" + outside, "up/../../outside", "up2/../outside", "magic", "environ", "fds/0", "loop", "dangling",
		"fifo", "dir", "other", "other2", "zero", "../../outside", "/../../outside", "dir/../../../outside", "./.././../outside", outside, "//" + outside,
		"absolute/", "dirlink/outside/", "absolute/.", "\x00" + outside, "..\\..\\outside", "all/./" + outside, "up/up/up", "dir/" + strings.Repeat("../", 40) + outside,
	} {
		if name == "up/up/up" {
			continue // stays inside: a directory, not a file
		}
		t.Run("read "+strconv.Quote(name), func(t *testing.T) {
			// What a write below made inside of the root may be read.
			if got, _, err := root.ReadFile("tools/"+name, 1<<20); err == nil && string(got) != "overwritten" {
				t.Errorf("it was read: %.60q", got)
			}
		})
		t.Run("write "+strconv.Quote(name), func(t *testing.T) {
			_ = root.Write("tools/"+name, []byte("overwritten"), safefs.InPlace, nil)
			_ = root.Write("tools/"+name, []byte("overwritten"), safefs.Replace, nil)
			if got, err := os.ReadFile(outside); err != nil || string(got) != secret {
				t.Fatalf("the file outside is now %q, %v", got, err)
			}
		})
	}
	t.Run("walking does not leave", func(t *testing.T) {
		err := root.Walk(t.Context(), "tools", safefs.Bounds{Entries: 10_000, Bytes: 1 << 20}, func(e safefs.Entry) error {
			for _, link := range []string{"dirlink/", "all/", "up/", "up2/", "fds/", "loop/"} {
				if strings.HasPrefix(e.Path, link) {
					return fmt.Errorf("walked through a link to %s", e.Path)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("a directory exchanged for a link meanwhile", func(t *testing.T) { exchangedBelow(t, h, root) })
}

// exchangedBelow lets a box swap a directory and a link while the worker reads and writes below it.
func exchangedBelow(t *testing.T, h *host, root *safefs.Root) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan struct{})
	var once sync.Once
	cmd := h.command(`mkdir -p race/real && echo own >race/real/outside && ln -s "$(dirname "$OUTSIDE")" race/link && mkdir race/d && echo own >race/d/outside && echo ready
while :; do mv race/d race/t; mv race/link race/d; mv race/d race/link; mv race/t race/d; done`)
	cmd.Timeout = 5 * time.Minute
	cmd.Output = func(providers.Chunk) { once.Do(func() { close(ready) }) }
	ended := make(chan struct{})
	go func() { _, _ = h.provider.Run(ctx, cmd); close(ended) }()
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the run ended at once")
	}
	for range 3000 {
		if got, _, err := root.ReadFile("race/d/outside", 100); err == nil && strings.Contains(string(got), secret) {
			t.Fatal("it was read")
		}
		_ = root.Write("race/d/outside", []byte("own"), safefs.InPlace, nil)
	}
	cancel()
	<-ended
	if got, err := os.ReadFile(h.env["OUTSIDE"]); err != nil || string(got) != secret {
		t.Errorf("the file outside is now %q, %v", got, err)
	}
}

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
	if got := h.ok(t, in(`for i in $(seq 300); do ( (true; exit 7) & (sleep 0.01 &) ); done; (exit 5); echo $?`)); got != "5" {
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
	before := rested(count) // boxes that are made in advance have files too
	for range 30 {
		h.run(t, h.command("exit 3"))
	}
	eventually(t, "files are closed", func() bool { return count() <= before+2 })
}

// rested is a count that has not changed for a while.
func rested(count func() int) int {
	const while = 20
	n := count()
	for same := 0; same < while; same++ {
		time.Sleep(50 * time.Millisecond)
		if now := count(); now != n {
			n, same = now, 0
		}
	}
	return n
}

// beating appends to the workspace's file "beats" for as long as it lives, whatever it is told.
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
	was := size()
	time.Sleep(300 * time.Millisecond) // six beats: the silence is what is tested
	if size() != was {
		t.Error("something still beats")
	}
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
