//go:build linux

package confine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// owner identifies the process that made a group: its pid namespace, process id and start time. A process id alone is reused, and means
// another process in another container that shares the cgroup file system.
type owner struct {
	pidns uint64 // inode of its pid namespace
	pid   int
	start uint64 // clock ticks since boot
}

// String returns the owner as it stands in a group's directory name.
func (o owner) String() string { return fmt.Sprintf("%x-%d-%d", o.pidns, o.pid, o.start) }

func thisOwner() (owner, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return owner{}, fmt.Errorf("find the pid namespace: %w", err)
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return owner{}, err
	}
	return owner{pidns: st.Ino, pid: os.Getpid(), start: start}, nil
}

// parseOwner returns the owner that a group's directory name contains; false if this package did not make the group.
func parseOwner(dir string) (owner, bool) {
	rest, ok := strings.CutPrefix(dir, groupPrefix)
	parts := strings.SplitN(rest, "-", 4)
	if !ok || len(parts) != 4 {
		return owner{}, false
	}
	pidns, err1 := strconv.ParseUint(parts[0], 16, 64)
	pid, err2 := strconv.Atoi(parts[1])
	start, err3 := strconv.ParseUint(parts[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || pid <= 0 {
		return owner{}, false
	}
	return owner{pidns: pidns, pid: pid, start: start}, true
}

// startTime returns when a process was started, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("find the start of process %d: %w", pid, err)
	}
	field, ok := statField(data, 22)
	if !ok {
		return 0, fmt.Errorf("find the start of process %d: its stat is too short", pid)
	}
	start, err := strconv.ParseUint(field, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("find the start of process %d: %w", pid, err)
	}
	return start, nil
}

// statField returns field n of /proc/<pid>/stat, counted from 1 as in proc(5); n is at least 3. The second field is the program's name,
// which may contain spaces and brackets, so fields are counted from the last bracket.
func statField(stat []byte, n int) (string, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return "", false
	}
	fields := strings.Fields(string(stat[i+1:]))
	if n-3 < 0 || n-3 >= len(fields) {
		return "", false
	}
	return fields[n-3], true
}

// alive reports whether the owner is still running.
func (o owner) alive() bool {
	start, err := startTime(o.pid)
	return err == nil && start == o.start
}

// Sweep kills the processes in groups of dead owners of this pid namespace, and removes the groups. It returns how many it removed; the
// next Sweep retries those that cannot be removed yet.
func (s CgroupSupport) Sweep() (removed int, err error) {
	me, err := thisOwner()
	if err != nil {
		return 0, err
	}
	var errs []error
	seen := map[string]bool{}
	for _, c := range controllers {
		parent, ok := s.parents[c]
		if !ok || seen[parent] {
			continue
		}
		seen[parent] = true
		entries, err := os.ReadDir(parent)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range entries {
			o, ok := parseOwner(e.Name())
			if !ok || !e.IsDir() || o.pidns != me.pidns || o.alive() {
				continue
			}
			dir := filepath.Join(parent, e.Name())
			g := &Cgroup{version: s.Version, unique: []string{dir}}
			if err := errors.Join(g.Kill(), g.removeSoon()); err != nil {
				errs = append(errs, err)
				continue
			}
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// removeSoon removes the group, retrying for up to a second until its killed processes are gone.
func (g *Cgroup) removeSoon() error {
	end := time.Now().Add(time.Second)
	for {
		err := g.Remove()
		if err == nil || !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
