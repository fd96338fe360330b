package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// KeptBoxes measures the memory of n persistent boxes of the provider local at once, of their processes and of this one, per box, compared
// with as many processes that only sleep; and how long it takes to create each.
func KeptBoxes(ctx context.Context, n int, o local.Options) (Report, error) {
	dir, remove, err := tempDir("sandjet-bench-boxes-")
	if err != nil {
		return Report{}, err
	}
	defer remove()
	plain, err := sleepers(ctx, n)
	if err != nil {
		return Report{}, err
	}
	o.StateDir, o.Workspaces, o.Pool = filepath.Join(dir, "state"), filepath.Join(dir, "workspaces"), -1
	o.Boxes, o.AccountBoxes = n, n
	p, err := local.New(o)
	if err != nil {
		return Report{}, err
	}
	defer p.Close() //nolint:errcheck // it ends what is left
	heapBefore := heap()
	below, err := memoryBelow(os.Getpid())
	if err != nil {
		return Report{}, err
	}
	took := make([]time.Duration, n)
	refs := make([]schemas.Ref, n)
	for i := range n {
		spec := providers.Spec{Account: benchAccount}
		start := time.Now()
		if refs[i], err = p.Reserve(ctx, "box-"+strconv.Itoa(i), spec); err != nil {
			return Report{}, fmt.Errorf("box %d of %d: %w", i+1, n, err)
		}
		took[i] = time.Since(start)
		if err := commandIn(p, &refs[i])(ctx); err != nil { // use each once
			return Report{}, fmt.Errorf("box %d of %d: %w", i+1, n, err)
		}
	}
	all, err := memoryBelow(os.Getpid())
	if err != nil {
		return Report{}, err
	}
	each := float64(all-below) / float64(n) / kibi
	own := float64(heap()-heapBefore) / float64(n) / kibi
	r := Report{Title: fmt.Sprintf("%d kept boxes of the provider local at once", n), Machine: machine(), Rows: []Row{
		row("memory of a process that only sleeps, for each", "KiB", []float64{plain}),
		row("memory of a kept box's processes, for each", "KiB", []float64{each}),
		row("memory of the worker, for each", "KiB", []float64{own}),
		durations("kept box made", time.Millisecond, took),
	}}
	r.Ratios = []Ratio{ratio("a kept box / a process that only sleeps", "", []float64{each}, []float64{plain})}
	r.Notes = []string{"Memory of processes is their proportional set (PSS): what several share counts once. What the kernel keeps for " +
		"namespaces, mounts and control groups is not in it. That of the worker is its heap and stacks."}
	return r, nil
}

const kibi = 1 << 10 // bytes

// sleepers returns the memory in KiB of each of n processes that only sleep.
func sleepers(ctx context.Context, n int) (float64, error) {
	before, err := memoryBelow(os.Getpid())
	if err != nil {
		return 0, err
	}
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range n {
		c := exec.CommandContext(ctx, "sleep", "3600")
		if err := c.Start(); err != nil {
			return 0, fmt.Errorf("start a process: %w", err)
		}
		started = append(started, c)
	}
	after, err := memoryBelow(os.Getpid())
	return float64(after-before) / float64(n) / kibi, err
}

// memoryBelow returns the memory of all descendants of a process, in bytes. A process that ends meanwhile counts as 0.
func memoryBelow(pid int) (int64, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat")) // empty if the process has ended
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			if parent, err := strconv.Atoi(fields[1]); err == nil {
				children[parent] = append(children[parent], child)
			}
		}
	}
	var sum int64
	for queue := children[pid]; len(queue) > 0; queue = queue[1:] {
		queue = append(queue, children[queue[0]]...)
		sum += proportionalSet(queue[0])
	}
	return sum, nil
}

// proportionalSet returns a process's proportional set size in bytes; 0 if it has ended.
func proportionalSet(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // as above
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n * kibi
		}
	}
	return 0
}
