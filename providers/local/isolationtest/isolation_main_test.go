//go:build linux

package isolationtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/local/confine"
)

const (
	levelVariable = "SANDJET_ISOLATION_LEVEL" // what the run is about
	builtVariable = "SANDJET_ISOLATION_BUILT" // where the programs lie that an outer run built
	stageVariable = "SANDJET_ISOLATION_STAGE" // what this process does before it is a test
)

// ordinary is a user without rights.
const ordinary = 65534

// nil0 is the signal that is none.
const nil0 = syscall.Signal(0)

func TestMain(m *testing.M) {
	switch os.Getenv(stageVariable) {
	case "":
	case "no-namespaces":
		if err := forbidNamespaces(); err != nil {
			fmt.Fprintln(os.Stderr, "forbid namespaces:", err)
			os.Exit(98)
		}
	case "worker":
		os.Exit(worker())
	default:
		fmt.Fprintln(os.Stderr, "unknown stage")
		os.Exit(98)
	}
	code := m.Run()
	if dir, err := built(); err == nil && os.Getenv(builtVariable) == "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// forbidNamespaces makes this process one that cannot make namespaces, as in many containers. It
// was started in a user namespace of its own with the one capability that is needed for that.
func forbidNamespaces() error {
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if err := os.WriteFile("/proc/sys/user/max_"+kind+"_namespaces", []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := os.Unsetenv(stageVariable); err != nil {
		return err
	}
	if err := confine.DropCapabilitiesThread(); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// TestIsolation is every attack at the level of this process's rights.
//
//guarantee:a-run-stays-in-its-box
func TestIsolation(t *testing.T) {
	h := newHost(t)
	for _, group := range []struct {
		name    string
		attacks []attack
	}{
		{"view", viewAttacks()}, {"devices", deviceAttacks()}, {"proc", procAttacks()}, {"network", networkAttacks()},
		{"rights", rightsAttacks()}, {"calls", callAttacks()}, {"processes", processAttacks()}, {"limits", limitAttacks()},
	} {
		t.Run(group.name, func(t *testing.T) { h.try(t, group.attacks) })
	}
	t.Run("planted", func(t *testing.T) { plantedAttacks(t, h) })
	t.Run("bombs", func(t *testing.T) { bombs(t, h) })
	t.Run("life", func(t *testing.T) { lives(t, h) })
	t.Run("tools", func(t *testing.T) { fileToolAttacks(t, h) })
}

// TestAsOrdinaryUser is the same again as a user without rights.
//
//guarantee:a-run-stays-in-its-box
func TestAsOrdinaryUser(t *testing.T) {
	longtest.Only(t, "every attack once more, by a user without rights")
	if os.Getuid() != 0 {
		t.Skip("TestIsolation is run by an ordinary user already")
	}
	again(t, "L3", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}})
}

// TestWithoutNamespaces is the same again where namespaces are forbidden.
//
//guarantee:a-run-stays-in-its-box
func TestWithoutNamespaces(t *testing.T) {
	longtest.Only(t, "every attack once more, where namespaces are forbidden")
	if level() != "L3" {
		t.Skip("namespaces are forbidden already")
	}
	uid := os.Getuid()
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE, unix.CAP_SETPCAP},
		Credential:  &syscall.Credential{Uid: ordinary, Gid: ordinary, NoSetGroups: true},
	}
	if uid == 0 {
		attr.UidMappings[0].HostID, attr.GidMappings[0].HostID = ordinary, ordinary
	}
	again(t, "L2", attr, stageVariable+"=no-namespaces")
}

// again runs TestIsolation in a process with other rights and reports its subtests as ours.
func again(t *testing.T, level string, attr *syscall.SysProcAttr, env ...string) {
	t.Helper()
	for _, program := range []func() (string, error){probeProgram, boxProgram} {
		if _, err := program(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "isolation-tmp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if os.Getuid() == 0 {
		if err := os.Chown(tmp, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	// The directory of the test binary is closed to others; the binary itself is not.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestIsolation$", "-test.v", "-test.timeout=10m",
		"-test.short="+fmt.Sprint(testing.Short()))
	cmd.Dir, cmd.SysProcAttr = "/", attr
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, "CI=" + os.Getenv("CI"),
		levelVariable + "=" + level, builtVariable + "=" + dir,
	}, env...)
	out, err := cmd.CombinedOutput()
	reported := report(t, string(out))
	if err != nil && !t.Failed() || reported < 60 {
		t.Errorf("%v after %d subtests:\n%s", err, reported, out)
	}
}

// report turns the lines of a test's output into subtests and returns how many there were.
func report(t *testing.T, out string) int {
	t.Helper()
	line := regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	n := 0
	var said strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			if !strings.HasPrefix(lines.Text(), "=== ") {
				said.WriteString(lines.Text() + "\n")
			}
			continue
		}
		n++
		name := strings.TrimPrefix(strings.TrimPrefix(m[2], "TestIsolation"), "/")
		if name == "" {
			name = "all"
		}
		t.Run(name, func(t *testing.T) {
			switch m[1] {
			case "FAIL":
				t.Error("failed there: see the output below")
			case "SKIP":
				t.Skip("skipped there")
			}
		})
	}
	if t.Failed() {
		t.Logf("what it said:\n%s", said.String())
	}
	return n
}
