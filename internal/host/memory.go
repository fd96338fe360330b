package host

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Memory returns how many bytes of memory the process may use: the smallest of the limits of its control group and those above it, and of
// the host's memory. 0: unknown, as on systems other than Linux.
func Memory() int64 { return memory(os.ReadFile) }

// memory is Memory with the kernel's files as read returns them.
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
			// A container may see only its own group, as the root: groups that are not visible are skipped.
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

// memoryFile returns where the limit of a line of /proc/self/cgroup is, for version 2 or the memory controller of version 1; ok is false
// for other lines.
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

// totalOf returns MemTotal of /proc/meminfo in bytes; math.MaxInt64 if there is none.
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

// limitOf parses the limit of a control group; math.MaxInt64 for "max", which means none, and for invalid text.
func limitOf(b []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || n <= 0 {
		return math.MaxInt64
	}
	return n
}
