//go:build linux

package confine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// needCgroups returns what this host can enforce; without a controller the test has nothing to do.
func needCgroups(t *testing.T, controller string) CgroupSupport {
	t.Helper()
	s := ProbeCgroups()
	if !slices.Contains(s.Words(), "cgroup."+controller) {
		t.Skipf("no cgroup.%s here for uid %d: %v", controller, os.Getuid(), s.Reasons())
	}
	return s
}

func newGroup(t *testing.T, s CgroupSupport, l Limits) *Cgroup {
	t.Helper()
	g, err := s.New("test", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), gone(g)); err != nil {
			t.Error(err)
		}
	})
	return g
}

// patience is how long killed processes may take to be gone on a loaded machine.
const patience = time.Minute

// gone removes a group as soon as its killed processes are gone.
func gone(g *Cgroup) error {
	for end := time.Now().Add(patience); ; {
		if err := g.removeSoon(); !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// inGroup starts the child in g and gives it the sign to begin.
func inGroup(t *testing.T, g *Cgroup, args ...string) (lines *bufio.Scanner, wait func() *os.ProcessState) {
	t.Helper()
	cmd := childCommand(t, os.Getuid(), args...)
	out, err1 := cmd.StdoutPipe()
	in, err2 := cmd.StdinPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	wait = func() *os.ProcessState { _ = cmd.Wait(); return cmd.ProcessState }
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := g.AddPid(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "x"); err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(out), wait
}

func TestCgroupStopsTooManyProcesses(t *testing.T) {
	s := needCgroups(t, "pids")
	g := newGroup(t, s, Limits{Pids: 30})
	lines, _ := inGroup(t, g, "fork")
	if !lines.Scan() {
		t.Fatal("the child says nothing")
	}
	var n int
	if _, err := fmt.Sscanf(lines.Text(), "forked: %d", &n); err != nil || n == 0 || n >= 30 {
		t.Fatalf("%q, %v", lines.Text(), err)
	}
	if pids, err := g.pids(); err != nil || len(pids) < n {
		t.Fatalf("%d processes in the group (%v), %d were started", len(pids), err, n)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := gone(g); err != nil {
		t.Fatalf("after Kill something is left: %v", err)
	}
}

func TestCgroupStopsTooMuchMemory(t *testing.T) {
	s := needCgroups(t, "memory")
	g := newGroup(t, s, Limits{MemoryBytes: 64 << 20})
	if n, err := g.OOMKills(); err != nil || n != 0 {
		t.Fatalf("%d kills in a new group, %v", n, err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read x; exec "+must(buildChild())(t)+" allocate 200")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.AddPid(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v, want SIGKILL", cmd.ProcessState)
	}
	if n, err := g.OOMKills(); err != nil || n < 1 {
		t.Fatalf("%d kills, %v", n, err)
	}
}

func must(v string, err error) func(testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func TestCgroupLimitsAreWritten(t *testing.T) {
	s := needCgroups(t, "cpu")
	g := newGroup(t, s, Limits{CPUs: 1.5, Pids: 77})
	file, want := "cpu.cfs_quota_us", "150000"
	if g.version == 2 {
		file, want = "cpu.max", "150000 100000"
	}
	data, err := os.ReadFile(filepath.Join(g.dirs["cpu"], file))
	if err != nil || strings.TrimSpace(string(data)) != want {
		t.Errorf("%s: %q, %v", file, data, err)
	}
	if (g.FD() != 0) != (g.version == 2) {
		t.Errorf("version %d with descriptor %d", g.version, g.FD())
	}
}

func TestCgroupNames(t *testing.T) {
	s := CgroupSupport{Version: 1, parents: map[string]string{"pids": t.TempDir()}}
	for _, name := range []string{"", "a/b", "../x", "a\x00", strings.Repeat("x", 129)} {
		if _, err := s.New(name, Limits{}); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	if _, err := (CgroupSupport{}).New("x", Limits{}); !errors.Is(err, ErrNoCgroup) {
		t.Errorf("without support: %v", err)
	}
}

// TestCgroupFailsWhole: when one limit cannot be set nothing is left behind.
func TestCgroupFailsWhole(t *testing.T) {
	dir := t.TempDir() // not a cgroup file system: no limit can be written
	s := CgroupSupport{Version: 1, parents: map[string]string{"pids": dir}}
	if _, err := s.New("x", Limits{Pids: 1}); err == nil {
		t.Fatal("no error")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestSweep makes a group in the name of a process that has ended, with a process in it. It stands in a
// group of ours: beside that, other workers of this host would sweep it too.
func TestSweep(t *testing.T) {
	s := needCgroups(t, "pids")
	s = CgroupSupport{Version: s.Version, parents: map[string]string{"pids": newGroup(t, s, Limits{}).dirs["pids"]}}
	mine := newGroup(t, s, Limits{})
	me, err := thisOwner()
	if err != nil {
		t.Fatal(err)
	}
	dead := me
	dead.start-- // as if the number had been used again
	other := dead
	other.pidns++
	dirs := map[string]string{}
	for name, o := range map[string]owner{"dead": dead, "other": other} {
		dirs[name] = filepath.Join(s.parents["pids"], groupPrefix+o.String()+"-x")
		if err := os.Mkdir(dirs[name], 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Rmdir(dirs[name]) })
	}
	left := exec.CommandContext(t.Context(), "sleep", "100")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = left.Wait(); close(ended) }()
	if err := writeControl(filepath.Join(dirs["dead"], "cgroup.procs"), strconv.Itoa(left.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	n, err := s.Sweep()
	for end := time.Now().Add(patience); n == 0 && errors.Is(err, syscall.EBUSY) && time.Now().Before(end); { // left for the next time
		n, err = s.Sweep()
	}
	if n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the process of the dead owner still runs")
	}
	if _, err := os.Stat(dirs["dead"]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead owner's group is still there: %v", err)
	}
	for what, dir := range map[string]string{"another namespace's": dirs["other"], "our own": mine.unique[0]} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s group was removed: %v", what, err)
		}
	}
}

func TestEachProcessIsKilledOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listed func(pass int) (pids []int, start uint64)
		kills  int
		fails  bool
	}{
		"none":                     {func(int) ([]int, uint64) { return nil, 0 }, 0, false},
		"those that take long":     {func(int) ([]int, uint64) { return []int{1, 2}, 7 }, 2, false},
		"a child of the first one": {func(pass int) ([]int, uint64) { return []int{1, 2}[:min(pass+1, 2)], 7 }, 2, false},
		"a number used again":      {func(pass int) ([]int, uint64) { return []int{1}, uint64(min(pass, 1)) }, 2, false},
		"ever new ones":            {func(pass int) ([]int, uint64) { return []int{pass}, 7 }, killPasses, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pass, kills, start := 0, 0, uint64(0)
			err := killListed(func() (pids []int, err error) {
				pids, start = c.listed(pass)
				pass++
				return pids, nil
			}, func(int) (uint64, error) { return start, nil }, func(int) error { kills++; return nil })
			if kills != c.kills || (err != nil) != c.fails {
				t.Errorf("%d kills, %v", kills, err)
			}
		})
	}
}

// TestVersion2Kill uses a real version 2 tree without controllers, which many hosts have beside
// version 1: killing and cloning into the group need none.
func TestVersion2Kill(t *testing.T) {
	hs := parseHierarchies(must(read("/proc/self/mountinfo"))(t), must(read("/proc/self/cgroup"))(t))
	i := slices.IndexFunc(hs, func(h hierarchy) bool { return h.version == 2 && writable(h.own) == nil })
	if i < 0 {
		t.Skipf("no version 2 group is writable here for uid %d", os.Getuid())
	}
	s := CgroupSupport{Version: 2, parents: map[string]string{"freezer": hs[i].own, "memory": hs[i].own}}
	g := newGroup(t, s, Limits{})
	if g.FD() == 0 {
		t.Fatal("no descriptor")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 100 & sleep 100 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.pids(); err != nil || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("group holds %v, not %d (%v)", pids, cmd.Process.Pid, err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := gone(g); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func read(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(data), err
}

func TestParseHierarchies(t *testing.T) {
	const v1 = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"32 24 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"33 24 0:29 / /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,pids\n" +
		"34 24 0:30 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
	const own1 = "4:memory:/docker/abc/inner\n3:pids:/\n2:cpu,cpuacct:/a\n1:name=systemd:/x\n0::/y\n"
	got := parseHierarchies(v1, own1)
	want := []string{"1 [cpu] /sys/fs/cgroup/cpu,cpuacct/a", "1 [memory] /sys/fs/cgroup/memory/inner", "1 [pids] /sys/fs/cgroup/with space"}
	if s := describe(got); !slices.Equal(s, want) {
		t.Errorf("version 1: %q", s)
	}
	const v2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	got = parseHierarchies(v2, "0::/user.slice/user-1000.slice/session-1.scope\n")
	if s := describe(got); !slices.Equal(s, []string{"2 [] /sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope"}) {
		t.Errorf("version 2: %q", s)
	}
	dirs := make([]string, 0, 3)
	for _, p := range places2(got[0]) {
		dirs = append(dirs, p.dir)
	}
	if want := []string{"/sys/fs/cgroup/user.slice/user-1000.slice", got[0].own, "/sys/fs/cgroup"}; !slices.Equal(dirs, want) {
		t.Errorf("places: %q", dirs)
	}
	got = parseHierarchies(v2, "0::/../outside\n")
	if s := describe(got); !slices.Equal(s, []string{"2 [] /sys/fs/cgroup"}) {
		t.Errorf("a place outside of the mount: %q", s)
	}
}

func describe(hs []hierarchy) []string {
	out := make([]string, 0, len(hs))
	for _, h := range hs {
		out = append(out, fmt.Sprint(h.version, " ", h.controllers, " ", h.own))
	}
	return out
}

// TestVersion2LimitFiles pins what is written to a version 2 group, on ordinary files.
func TestVersion2LimitFiles(t *testing.T) {
	dir := t.TempDir()
	files := []string{"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &Cgroup{version: 2, dirs: map[string]string{"memory": dir, "pids": dir, "cpu": dir}, unique: []string{dir}}
	if err := g.limit(Limits{MemoryBytes: 1 << 30, Pids: 9, CPUs: 0.25}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"1073741824", "0", "1", "9", "25000 100000"} {
		if got, err := read(filepath.Join(dir, files[i])); got != want || err != nil {
			t.Errorf("%s: %q, want %q (%v)", files[i], got, want, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"),
		[]byte("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := g.OOMKills(); n != 2 || err != nil {
		t.Errorf("%d kills, %v", n, err)
	}
	if err := os.Remove(filepath.Join(dir, "memory.swap.max")); err != nil {
		t.Fatal(err)
	}
	if err := g.limit(Limits{MemoryBytes: 1 << 30}); err != nil {
		t.Errorf("a kernel without swap accounting: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "memory.max")); err != nil {
		t.Fatal(err)
	}
	if err := g.limit(Limits{MemoryBytes: 1 << 30}); err == nil {
		t.Error("no error where the limit itself could not be set")
	}
}

func TestSupportSaysWhatIsMissing(t *testing.T) {
	s := CgroupSupport{Version: 1, parents: map[string]string{"pids": "/x"}}
	if s.String() != "v1 pids" || !slices.Equal(s.Words(), []string{"cgroup.pids"}) ||
		!slices.Equal(s.Missing(), []string{"cgroup.memory", "cgroup.cpu"}) {
		t.Errorf("%v %v %v", s, s.Words(), s.Missing())
	}
	if none := (CgroupSupport{}); none.String() != "none" || len(none.Missing()) != 3 {
		t.Errorf("%v %v", none, none.Missing())
	}
}

func TestOrdinaryUserGetsAReason(t *testing.T) {
	if os.Getuid() != 0 {
		longtest.Missing(t, "root is needed to become another user")
	}
	got := answers(t, ordinary, "cgroups")
	if len(got["support"]) != 1 {
		t.Fatalf("%v", got)
	}
	if got["support"][0] == "none" && len(got["reason"]) == 0 {
		t.Errorf("no cgroup and no reason: %v", got)
	}
}

func FuzzParseHierarchies(f *testing.F) {
	f.Add("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/a\n")
	f.Add("32 24 0:28 /docker /m rw - cgroup cgroup rw,memory\n", "4:memory:/docker/../x\n")
	f.Fuzz(func(t *testing.T, mountinfo, cgroup string) {
		for _, h := range parseHierarchies(mountinfo, cgroup) {
			if rel, err := filepath.Rel(h.mount, h.own); err != nil || !filepath.IsLocal(rel) {
				t.Errorf("%q is not below %q", h.own, h.mount)
			}
		}
	})
}

func FuzzProcFiles(f *testing.F) {
	f.Add([]byte("1 (a) b) S 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22"), "key rss\n1 2\n")
	f.Add([]byte("1 (x"), "")
	f.Fuzz(func(t *testing.T, stat []byte, table string) {
		for _, n := range []int{3, 4, 22} {
			if field, ok := statField(stat, n); ok && field == "" {
				t.Error("an empty field")
			}
		}
		if sumRSS(table) < 0 && !strings.Contains(table, "rss") {
			t.Error("a sum of nothing")
		}
		parseOwner(string(stat))
	})
}

func TestOwnerRoundTrip(t *testing.T) {
	o, err := thisOwner()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := parseOwner(groupPrefix + o.String() + "-a-b-c")
	if !ok || got != o || !o.alive() {
		t.Errorf("%+v became %+v, %v", o, got, ok)
	}
	for _, bad := range []string{"", "sandjet-", "sandjet-1-2", "sandjet-x-1-1-a", "sandjet-1--1-1-a", "sandjet-1-0-1-a", "other-1-1-1-a"} {
		if o, ok := parseOwner(bad); ok {
			t.Errorf("%q was read as %+v", bad, o)
		}
	}
}

func TestSumRSS(t *testing.T) {
	const table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      " +
		"ctime                   rss                  swap\n" +
		"         0          1   600                  4096    10    10      0     0     0     0     0          0          0          0        " +
		"          4096                     0\n" +
		"         0          2   600               8388608    10    10      0     0     0     0     0          0          0          0        " +
		"       1048576                     0\n"
	if got := sumRSS(table); got != 4096+1048576 {
		t.Errorf("%d", got)
	}
	if got := sumRSS(""); got != 0 {
		t.Errorf("%d", got)
	}
}
