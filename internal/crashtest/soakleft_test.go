package crashtest_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostPerCall is how much of the log a call of the soak may leave behind, on average: some print 27 KB, which is published as
// it comes and again in the result.
const mostPerCall = 96 << 10

// mostJobs is how many ended jobs the workers of a host keep the output of.
const mostJobs = 1000

// judgeDisk fails if the disk use per call is above mostPerCall, or if the number of files other than those of the log and of jobs grows.
func judgeDisk(t *testing.T, disk, files []float64, calls []int64) {
	t.Helper()
	n := len(disk)
	if n < 8 {
		return
	}
	from, to := n/4, n-1
	each := (disk[to] - disk[from]) / float64(max(calls[to]-calls[from], 1))
	t.Logf("disk: %.0f KB for each call", each/1e3)
	if each > mostPerCall {
		t.Errorf("each call leaves %.0f bytes on the disk, want at most %d", each, mostPerCall)
	}
	before, after, grown := countBound.grows(files)
	t.Logf("files beside the log and the output of jobs: %.0f -> %.0f", before, after)
	if grown {
		t.Errorf("files beside the log and the output of jobs grow: from %.0f to %.0f", before, after)
	}
}

// below is how many bytes lie in the data folder, and how many files are there beside those of the log and of jobs, of
// which there are so many at most.
func (c *cluster) below(t *testing.T) (size, files float64) {
	t.Helper()
	jobs := 0
	_ = filepath.WalkDir(c.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what goes while it is looked at is gone
		}
		within, _ := filepath.Rel(c.data, path)
		parts := strings.Split(within, string(filepath.Separator))
		ofJob := slices.Contains(parts[:len(parts)-1], "jobs")
		if ofJob && d.IsDir() {
			jobs++
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			size += float64(info.Size())
			if !ofJob && parts[0] != "nats" {
				files++
			}
		}
		return nil
	})
	if jobs > mostJobs+16 { // and those that run
		t.Errorf("the output of %d jobs is kept", jobs)
	}
	return size, files
}

// withMetrics has every role report its metrics that can. It comes before the options that add roles.
func withMetrics(t *testing.T) option {
	t.Helper()
	return func(c *cluster, worker []string) []string {
		c.metrics = map[string]string{"gateway": c.gateway}
		for _, name := range []string{"deliver", "worker-1", "worker-2"} {
			c.metrics[name] = freePort(t)
		}
		return worker
	}
}

// goroutines asks a process that reports how many it has.
func (c *cluster) goroutines(ctx context.Context, p *process) (float64, error) {
	address, ok := c.metrics[p.name]
	if !ok {
		return 0, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	defer res.Body.Close()
	for r := bufio.NewScanner(res.Body); r.Scan(); {
		if value, ok := strings.CutPrefix(r.Text(), "go_goroutines "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("metrics of %s: %d without go_goroutines: %w", address, res.StatusCode, fs.ErrNotExist)
}

// pids are those of all processes.
func (c *cluster) pids() (all []int) {
	for _, p := range c.roles {
		p.mu.Lock()
		all = append(all, p.cmd.Process.Pid)
		p.mu.Unlock()
	}
	return all
}

// leftBehind lists mounts below the data folder, and control groups that one of the processes has made.
func (c *cluster) leftBehind(t *testing.T, pids []int) (left []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines(string(mounts)) {
		if strings.Contains(line, c.data) {
			left = append(left, "the mount "+line)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // likewise
		}
		name, ours := strings.CutPrefix(d.Name(), "sandjet-")
		if parts := strings.Split(name, "-"); ours && len(parts) > 2 {
			if pid, err := strconv.Atoi(parts[1]); err == nil && slices.Contains(pids, pid) {
				left = append(left, "the control group "+path)
			}
		}
		return nil
	})
	return left
}
