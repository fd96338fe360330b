//go:build linux

package box

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killThose kills the box's living processes whose tag meant accepts, and returns their ids. It stops all of them first, because a parent
// would otherwise continue its script when its child dies.
func (i *server) killThose(meant func(tag uint64) bool) []int {
	found := i.those(meant)
	for _, pid := range found {
		_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended just now
	}
	killed := found[:0]
	for _, pid := range found {
		if unix.Kill(pid, unix.SIGKILL) == nil {
			killed = append(killed, pid)
		}
	}
	return killed
}

// those returns the box's living processes whose tag meant accepts.
func (i *server) those(meant func(tag uint64) bool) []int {
	var found []int
	for _, pid := range i.processes() {
		var l unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &l); err != nil || l.Max > topTag || !meant(l.Max) {
			continue
		}
		if !dead(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// processes returns all processes of the box except init. Without a pid namespace of its own these are the descendants of init among the
// host's processes.
func (i *server) processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // only read
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	own := os.Getpid()
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != own {
			pids = append(pids, pid)
		}
	}
	if i.state.setup.Mode == Isolated {
		return pids
	}
	return descendants(pids, own, parentOf)
}

// descendants returns those of pids that descend from root, including orphans, which root has adopted. ParentOf returns 0 for a process
// that has ended. A process that ends between two reads passes its children to another parent, so these are read again.
func descendants(pids []int, root int, parentOf func(pid int) int) []int {
	parent := make(map[int]int, len(pids))
	for _, pid := range pids {
		if up := parentOf(pid); up != 0 {
			parent[pid] = up
		}
	}
	var below []int
	again := map[int]bool{}
	for pid := range parent {
		at := pid
		for range 2 * len(parent) { // a longer chain is a loop, of numbers that were used again
			up := parent[at]
			if up == root {
				below = append(below, pid)
				break
			}
			if _, ok := parent[up]; ok {
				at = up
				continue
			}
			if again[at] {
				break
			}
			again[at] = true
			if now := parentOf(at); now != 0 {
				parent[at] = now
			}
		}
	}
	return below
}

// parentOf returns the parent of a process; 0 if it has none or has ended.
func parentOf(pid int) int {
	fields := stat(pid)
	if len(fields) < 2 {
		return 0
	}
	up, _ := strconv.Atoi(fields[1])
	return up
}

// stat returns the fields of /proc/<pid>/stat from the third on (state, parent, …); nil if the process has ended.
func stat(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	s := string(data)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// dead reports whether a process has ended, reaped or not.
func dead(pid int) bool {
	fields := stat(pid)
	return len(fields) == 0 || fields[0] == "Z" || fields[0] == "X"
}
