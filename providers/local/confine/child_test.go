//go:build linux

package confine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// ordinary is a user without any rights, and of this package alone: the limit of processes counts all that a user has on the host.
const ordinary = 65533

// childDir is where buildChild builds; nil: no test has asked for the child, e.g. while fuzzing.
var childDir atomic.Pointer[string]

// buildChild builds testdata/child once for all tests. It is built without cgo, which is what the
// box needs too: the tests themselves may well be linked with it, e.g. for the race detector.
var buildChild = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "confine-child-")
	if err != nil {
		return "", err
	}
	childDir.Store(&dir)
	bin := filepath.Join(dir, "child")
	cmd := exec.Command("go", "build", "-o", bin, "./testdata/child")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, os.Chmod(dir, 0o755)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := childDir.Load(); dir != nil {
		_ = os.RemoveAll(*dir)
	}
	os.Exit(code)
}

// childCommand returns the command that runs the child as a user.
func childCommand(t *testing.T, uid int, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := buildChild()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, args...)
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

// answers runs the child and returns its lines by name.
func answers(t *testing.T, uid int, args ...string) map[string][]string {
	t.Helper()
	out, err := childCommand(t, uid, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("child %v: %v\n%s", args, err, out)
	}
	return parseAnswers(out)
}

func parseAnswers(out []byte) map[string][]string {
	got := map[string][]string{}
	for line := range strings.Lines(string(bytes.TrimSpace(out))) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), ": ")
		got[name] = append(got[name], answer)
	}
	return got
}

// eachUser runs f as the present user and, when that is root, as an ordinary one too.
func eachUser(t *testing.T, f func(t *testing.T, uid int)) {
	t.Helper()
	users := map[string]int{"user": os.Getuid()}
	if os.Getuid() == 0 {
		users = map[string]int{"root": 0, "user": ordinary}
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) { f(t, uid) })
	}
}

//guarantee:a-run-stays-in-its-box
func TestPrivilegesAreGoneOnEveryThread(t *testing.T) {
	eachUser(t, func(t *testing.T, uid int) {
		t.Helper()
		got := answers(t, uid, "privileges")
		if len(got["thread"]) < 5 || len(got["child"]) != 50 {
			t.Fatalf("%d threads and %d children: %v", len(got["thread"]), len(got["child"]), got)
		}
		for _, status := range append(got["thread"], got["child"]...) {
			fields := strings.Fields(status)
			for _, want := range []string{"CapInh=", "CapPrm=", "CapEff=", "CapAmb=", "NoNewPrivs=1", "Seccomp=2"} {
				if !slices.Contains(fields, want) {
					t.Errorf("no %q in %q", want, status)
				}
			}
			if uid == 0 && !slices.Contains(fields, "CapBnd=") {
				t.Errorf("bounding set is not empty: %q", status)
			}
		}
		if got["dumpable"][0] != "0" {
			t.Errorf("dumpable is %v", got["dumpable"])
		}
	})
}

// expect compares answers with what is wanted; alternatives are separated by "|".
func expect(t *testing.T, got map[string][]string, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if len(got[name]) != 1 || !slices.Contains(strings.Split(w, "|"), got[name][0]) {
			t.Errorf("%s: %v, want %s", name, got[name], w)
		}
	}
}

//guarantee:a-run-stays-in-its-box
func TestRealSystemCalls(t *testing.T) {
	common := map[string]string{
		"unshare": "EPERM", "mount": "EPERM", "setns": "EPERM", "ptrace": "EPERM", "bpf": "EPERM", "keyctl": "EPERM",
		"clone3": "ENOSYS", "clone-newuser": "EPERM", "clone-high-bits": "EPERM", "io_uring": "ENOSYS", "future": "ENOSYS",
		"tiocsti": "EPERM", "tiocsti-high-bits": "EPERM", "tcgets": "EBADF",
		"personality-ask": "ok", "personality-norandom": "EPERM",
		"socket-route": "ok", "socket-audit": "EPERM", "socket-packet": "EPERM", "socket-vsock": "EPERM", "socket-alg": "EPERM",
		"socketpair-unix": "ok", "socketpair-tipc": "EPERM",
		"getpid": "ok", "other-thread": "EPERM", "shell": "works<nil>",
	}
	eachUser(t, func(t *testing.T, uid int) {
		t.Helper()
		got := answers(t, uid, "seccomp")
		expect(t, got, common)
		expect(t, got, map[string]string{"socket-unix": "ok", "socket-inet": "ok", "socket-inet6": "ok|EAFNOSUPPORT", "memfd": "ok"})
		got = answers(t, uid, "seccomp", "inet")
		expect(t, got, common)
		expect(t, got, map[string]string{"socket-unix": "EPERM", "socket-inet": "EPERM", "socket-inet6": "EPERM", "memfd": "ENOSYS"})
	})
}

//guarantee:a-run-stays-in-its-box
func TestLandlock(t *testing.T) {
	if abi, err := LandlockABI(); err != nil || abi == 0 {
		longtest.Missing(t, "this kernel has no landlock (abi %d, %v)", abi, err)
	}
	eachUser(t, func(t *testing.T, uid int) {
		t.Helper()
		dir := openDir(t)
		ro, rw := filepath.Join(dir, "ro"), filepath.Join(dir, "rw")
		for _, d := range []string{ro, rw} {
			if err := os.Mkdir(d, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(d, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{filepath.Join(ro, "file"), filepath.Join(dir, "canary")} {
			if err := os.WriteFile(f, []byte("canary"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got := answers(t, uid, "landlock", ro, rw)
		expect(t, got, map[string]string{"missing": "error", "child": "refused<nil>"})
		for _, on := range []string{"", "thread-"} {
			expect(t, got, map[string]string{
				on + "read-ro": "ok", on + "write-ro": "refused", on + "make-ro": "refused",
				on + "write-rw": "ok", on + "rename-rw": "ok", on + "outside": "refused", on + "null": "ok", on + "dotdot": "refused",
			})
		}
	})
}

func TestLandlockKeepsSignalsInside(t *testing.T) {
	if abi, err := LandlockABI(); err != nil || abi < 6 {
		if os.Getenv("CI") == "true" {
			t.Fatalf("landlock is required in CI: abi %d, %v", abi, err)
		}
		t.Skipf("landlock of this kernel knows no signals (abi %d, %v)", abi, err)
	}
	expect(t, answers(t, os.Getuid(), "signals", "kept"), map[string]string{"parent": "EPERM"})
	expect(t, answers(t, os.Getuid(), "signals", "free"), map[string]string{"parent": "ok", "child-from-other-thread": "ok"})
}

// openDir is a temporary directory that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "confine-") // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRlimits(t *testing.T) {
	eachUser(t, func(t *testing.T, uid int) {
		t.Helper()
		expect(t, answers(t, uid, "rlimits"), map[string]string{
			"sh": "128 128 2048 0 100", "others": "200 65536 0", "raised": "128",
		})
	})
}

func TestWatchdogSeesWhatAChildUses(t *testing.T) {
	eachUser(t, func(t *testing.T, uid int) {
		t.Helper()
		for _, how := range [][]string{{"150"}, {"150", "hidden"}} {
			got := answers(t, uid, append([]string{"watch"}, how...)...)
			var over, after int
			if _, err := fmt.Sscan(strings.Join(append(got["over"], got["after"]...), " "), &over, &after); err != nil {
				t.Fatalf("%v: %v: %v", how, err, got)
			}
			if over < 140 || over > 200 { // the kernel counts pages for each processor, and adds up now and then
				t.Errorf("%v: %d MiB seen, 150 in use", how, over)
			}
			if after > 50 {
				t.Errorf("%v: %d MiB seen after the child had ended", how, after)
			}
		}
	})
}

func TestWatchdogIsSilentOnceItsContextEnds(t *testing.T) {
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		w := Watchdog{Limit: -1, Root: os.Getpid(), Every: time.Nanosecond} // a tick is always due
		w.Over = func(int64) { told++; cancel() }
		w.Run(ctx)
		if told != 1 {
			t.Fatalf("told %d times", told)
		}
	}
}

func TestWatchdogLeavesSmallOnesAlone(t *testing.T) {
	w := Watchdog{Limit: 1 << 40, Root: os.Getpid()}
	if used := w.Used(); used < 0 || used > 1<<30 {
		t.Errorf("%d bytes in use by no children", used)
	}
}
