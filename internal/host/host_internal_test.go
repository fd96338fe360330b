package host

import (
	"io/fs"
	"runtime"
	"testing"
)

func TestMemory(t *testing.T) {
	const total = "MemTotal:       24683620 kB\nMemFree:        20545320 kB\n"
	const machine = int64(24683620) << 10
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"another system": {nil, 0},
		"no group":       {map[string]string{"/proc/meminfo": total}, machine},
		"no limit": {map[string]string{"/proc/meminfo": total, "/proc/self/cgroup": "0::/a.slice/b.service\n",
			"/sys/fs/cgroup/a.slice/b.service/memory.max": "max\n"}, machine},
		"its own": {map[string]string{"/proc/meminfo": total, "/proc/self/cgroup": "0::/a.slice/b.service\n",
			"/sys/fs/cgroup/a.slice/b.service/memory.max": "1073741824\n", "/sys/fs/cgroup/a.slice/memory.max": "2147483648\n"}, 1 << 30},
		"one above it": {map[string]string{"/proc/meminfo": total, "/proc/self/cgroup": "0::/a.slice/b.service\n",
			"/sys/fs/cgroup/a.slice/b.service/memory.max": "max\n", "/sys/fs/cgroup/a.slice/memory.max": "2147483648\n"}, 2 << 30},
		"in a container": {map[string]string{"/proc/meminfo": total, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"a container that sees the path of its host": {map[string]string{"/proc/meminfo": total, "/proc/self/cgroup": "4:cpu,memory:/docker/1234\n0::/\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n"}, 512 << 20},
		"version 1 without a limit": {map[string]string{"/proc/meminfo": total, "/proc/self/cgroup": "4:memory:/x\n",
			"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, machine},
		"nonsense": {map[string]string{"/proc/meminfo": "MemTotal: many kB\n", "/proc/self/cgroup": "x\n1:memory\n2:memory:relative\n"}, 0},
	} {
		got := memory(func(name string) ([]byte, error) {
			if b, ok := tc.files[name]; ok {
				return []byte(b), nil
			}
			return nil, fs.ErrNotExist
		})
		if got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if n := Memory(); runtime.GOOS == "linux" && n <= 0 {
		t.Errorf("of this process: %d", n)
	}
	if n := OpenFiles(); n <= 0 {
		t.Errorf("%d descriptors", n)
	}
}
