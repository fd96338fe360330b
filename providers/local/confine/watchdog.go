//go:build linux

package confine

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Watchdog limits the memory of a box that no cgroup limits. It counts the mapped memory of processes, with every shared page once, System
// V shared memory, and the files in Mounts. It misses other memory that no process maps (refuse memfd_create, see [SeccompOptions]) and
// kernel memory such as socket buffers. Between two reads a box can exceed the limit by the memory that it touches in that time; the
// kernel's OOM killer is the last resort.
type Watchdog struct {
	Limit int64 // bytes
	// Root restricts it to the descendants of this process. 0: every process that /proc shows, but
	// this one, which is right in a pid namespace of one's own.
	Root int
	// Mounts are file systems in memory. What is in their files counts, and once more where it is mapped.
	Mounts []string
	Every  time.Duration // 0: 100 ms
	// Over is called with the bytes in use when they are more than Limit, and at each look again as
	// long as they are. It runs on Run's goroutine.
	Over func(used int64)
}

// Run watches the memory until ctx ends. It blocks, and never calls Over after it has returned.
func (w Watchdog) Run(ctx context.Context) {
	every := w.Every
	if every <= 0 {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil { // a tick may be due when ctx ends, and select takes either
		if used := w.Used(); used > w.Limit {
			w.Over(used)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Used returns the bytes in use now. Proportional shares of pages cost a walk of the page tables, so they are read only if the cheap upper
// bound exceeds the limit.
func (w Watchdog) Used() int64 {
	pids := w.pids()
	var shm int64
	if w.Root == 0 { // else the segments are those of the whole host
		shm = sharedSegments()
	}
	for _, path := range w.Mounts {
		shm += inMemory(path)
	}
	bound := shm
	for _, pid := range pids {
		bound += resident(pid)
	}
	if bound <= w.Limit {
		return bound
	}
	used := shm
	for _, pid := range pids {
		if pss, ok := proportional(pid); ok {
			used += pss
		} else {
			used += resident(pid) // it has made itself unreadable: then it pays for shared pages in full
		}
	}
	return used
}

// inMemory returns the bytes in use on an in-memory file system; 0 if it cannot be read.
func inMemory(path string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// pids returns the watched processes.
func (w Watchdog) pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // only read
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	pids := make([]int, 0, len(names))
	self := os.Getpid()
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != self {
			pids = append(pids, pid)
		}
	}
	if w.Root != 0 {
		return descendants(pids, w.Root)
	}
	return pids
}

// descendants returns those of pids that are root or descend from it.
func descendants(pids []int, root int) []int {
	parent := make(map[int]int, len(pids))
	for _, pid := range pids {
		data, err := os.ReadFile(procFile(pid, "stat"))
		if err != nil {
			continue
		}
		if field, ok := statField(data, 4); ok {
			if pp, err := strconv.Atoi(field); err == nil {
				parent[pid] = pp
			}
		}
	}
	var below []int
	for pid := range parent {
		// A chain longer than there are processes is a loop, made of numbers that were used again.
		up := parent[pid]
		for range len(parent) {
			if up == root {
				below = append(below, pid)
				break
			}
			next, ok := parent[up]
			if !ok {
				break
			}
			up = next
		}
	}
	return below
}

// resident returns the resident bytes of a process, shared pages in full; 0 if it has ended.
func resident(pid int) int64 {
	data, err := os.ReadFile(procFile(pid, "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// proportional returns the resident bytes of a process with each shared page divided by the number of its users; 0 if it is ending. It
// returns false if they cannot be read.
func proportional(pid int) (int64, bool) {
	data, err := os.ReadFile(procFile(pid, "smaps_rollup"))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("Pss:"))
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
		return kib << 10, err == nil
	}
	return 0, false
}

// sharedSegments returns the bytes of System V shared memory in this IPC namespace, which exists without any process. Its column is found
// by its title, because the position differs between kernels.
func sharedSegments() int64 {
	data, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return 0
	}
	return sumRSS(string(data))
}

// sumRSS returns the sum of the column titled rss.
func sumRSS(table string) int64 {
	column, sum := -1, int64(0)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if column < 0 {
			for i, f := range fields {
				if f == "rss" {
					column = i
				}
			}
			if column < 0 {
				return 0
			}
			continue
		}
		if column < len(fields) {
			if n, err := strconv.ParseInt(fields[column], 10, 64); err == nil && n > 0 {
				sum += n
			}
		}
	}
	return sum
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }
