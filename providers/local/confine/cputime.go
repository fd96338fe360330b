//go:build linux

package confine

import (
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc/<pid>/stat: USER_HZ, the same on all machines that Go runs on.
const tick = 10 * time.Millisecond

// Processes returns the processes of the group, each once.
func (g *Cgroup) Processes() ([]int, error) { return g.pids() }

// Below returns a process and all its descendants.
func Below(root int) []int {
	w := Watchdog{Root: root}
	return append(w.pids(), root)
}

// CPUTime returns the processor time of the processes and of their children that have ended and were waited for. A process in pids that
// has ended counts 0.
func CPUTime(pids []int) time.Duration {
	const first, last = 14, 17 // utime, stime, cutime, cstime
	var sum int64
	for _, pid := range pids {
		data, err := os.ReadFile(procFile(pid, "stat"))
		if err != nil {
			continue
		}
		for n := first; n <= last; n++ {
			field, _ := statField(data, n)
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err == nil && ticks > 0 {
				sum += ticks
			}
		}
	}
	return time.Duration(sum) * tick
}
