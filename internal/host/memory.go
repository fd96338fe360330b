package host

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Memory is how many bytes of memory the process may have: the limit of its control group, or of one above it, where that is less than
// what the machine has. 0: unknown, as on systems other than Linux.
func Memory() int64 { return memory(os.ReadFile) }

// memory asks the kernel's files, which read reads.
func memory(read func(name string) ([]byte, error)) int64 {
	least := int64(math.MaxInt64)
	if b, err := read("/proc/meminfo"); err == nil {
		least = totalOf(b)
	}
	groups, err := read("/proc/self/cgroup")
	if err != nil {
		groups = nil
	}
	for line := range strings.Lines(string(groups)) {
		dir, file, group, ok := memoryFile(strings.TrimSpace(line))
		for ok {
			// A container may see its own group alone, at the root: what is not there is left out.
			if b, err := read(path.Join(dir, group, file)); err == nil {
				least = min(least, limitOf(b))
			}
			if group == "/" {
				break
			}
			group = path.Dir(group)
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// memoryFile says where the limit of a line of /proc/self/cgroup is: of version 2, or of the controller of version 1.
func memoryFile(line string) (dir, file, group string, ok bool) {
	id, rest, _ := strings.Cut(line, ":")
	controllers, group, ok := strings.Cut(rest, ":")
	if !ok || !path.IsAbs(group) {
		return "", "", "", false
	}
	group = path.Clean(group)
	switch {
	case id == "0" && controllers == "":
		return "/sys/fs/cgroup", "memory.max", group, true
	case strings.Contains(","+controllers+",", ",memory,"):
		return "/sys/fs/cgroup/memory", "memory.limit_in_bytes", group, true
	}
	return "", "", "", false
}

// totalOf reads /proc/meminfo.
func totalOf(b []byte) int64 {
	const kib = 1 << 10
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "MemTotal:" && string(f[2]) == "kB" {
			if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil && n > 0 && n < math.MaxInt64/kib {
				return n * kib
			}
		}
	}
	return math.MaxInt64
}

// limitOf reads the limit of a control group; "max" and what is no number is none.
func limitOf(b []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || n <= 0 {
		return math.MaxInt64
	}
	return n
}
