package crashtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// sample is what a process used at one moment. Goroutines are 0 if the process does not report them.
type sample struct{ memory, descriptors, threads, goroutines float64 }

// bound is by how much a figure may grow from the first to the second half of a run.
type bound struct {
	factor float64 // of its level in the first half, once the run has warmed up
	slack  float64 // and so much more
}

// The first half of a run that is short warms up caches and heaps: the slack is for that.
var (
	memoryBound = bound{1.2, 24 << 20}
	countBound  = bound{1.1, 16}
	// Readers come and go all the time, and each has a few.
	goroutineBound = bound{1.1, 64}
)

// grows reports whether the median of a figure in the last quarter of a run is above the bound, compared with the median in the second
// quarter. The first quarter is for warming up. With less than eight figures nothing grows.
func (b bound) grows(figures []float64) (before, after float64, grown bool) {
	n := len(figures)
	if n < 8 {
		return 0, 0, false
	}
	before, after = median(figures[n/4:n/2]), median(figures[n-n/4:])
	return before, after, after > before*b.factor+b.slack
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func TestGrowthIsJudged(t *testing.T) {
	t.Parallel()
	ramp := func(n int, f func(i int) float64) (out []float64) {
		for i := range n {
			out = append(out, f(i))
		}
		return out
	}
	for name, c := range map[string]struct {
		figures []float64
		want    bool
	}{
		"flat":                 {ramp(40, func(int) float64 { return 100 }), false},
		"it warms up":          {ramp(40, func(i int) float64 { return 100 * float64(min(i, 10)) }), false},
		"it saws":              {ramp(40, func(i int) float64 { return 100 + 50*float64(i%5) }), false},
		"it grows":             {ramp(40, func(i int) float64 { return 100 + 10*float64(i) }), true},
		"it grows by a little": {ramp(40, func(i int) float64 { return 1000 + float64(i) }), false},
		"it jumps at last":     {ramp(40, func(i int) float64 { return 100 + 200*float64(i/30) }), true},
		"too few to tell":      {ramp(7, func(i int) float64 { return float64(i * i * i) }), false},
	} {
		if before, after, got := (bound{1.2, 20}).grows(c.figures); got != c.want {
			t.Errorf("%s: from %.0f to %.0f grows: %v", name, before, after, got)
		}
	}
}

// TestSoak runs every role under a mixed load for as long as SANDJET_SOAK says: calls that print, sleep and write, background jobs, and
// readers that come and go. Memory, descriptors, threads and goroutines of each process must stay flat, and so must the number of files
// beside the log. The log grows by the events of the calls. Nothing of the load may be left when all have stopped.
func TestSoak(t *testing.T) {
	v := os.Getenv("SANDJET_SOAK")
	if v == "" {
		t.Skip("set SANDJET_SOAK to how long it is to run, as 30m: make long-soak")
	}
	long, err := time.ParseDuration(v)
	if err != nil || long < 10*time.Second {
		t.Fatalf("SANDJET_SOAK=%q: use a duration of at least 10s", v)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long+10*time.Minute)
	defer cancel()
	c := startCluster(ctx, t, withMetrics(t), withDelivery)
	pids := c.pids()
	samples := map[string][]sample{}
	var disk, files []float64
	var calls []int64

	load, end := context.WithTimeout(ctx, long)
	defer end()
	var parts sync.WaitGroup
	var sent, failed, told atomic.Int64
	for n := range 4 {
		parts.Go(func() { c.soak(load, n, &sent, &failed) })
	}
	for n := range 5 {
		parts.Go(func() { c.look(load, n, &told) })
	}
	every := max(long/120, 500*time.Millisecond)
	for load.Err() == nil {
		for _, p := range c.roles {
			s, err := sampleOf(p)
			if err == nil {
				s.goroutines, err = c.goroutines(ctx, p)
			}
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
				continue
			}
			samples[p.name] = append(samples[p.name], s)
		}
		size, few := c.below(t)
		disk, files, calls = append(disk, size), append(files, few), append(calls, sent.Load())
		pause(load, every)
	}
	parts.Wait()
	t.Logf("%d calls, %d not well, %d events told, disk from %.0f to %.0f MB", sent.Load(), failed.Load(), told.Load(),
		disk[0]/1e6, disk[len(disk)-1]/1e6)
	if sent.Load() < int64(long.Seconds()) || failed.Load() > 0 || told.Load() == 0 {
		t.Errorf("of %d calls %d did not end well, and readers were told %d events", sent.Load(), failed.Load(), told.Load())
	}
	for name, of := range samples {
		judgeSamples(t, name, of)
	}
	judgeDisk(t, disk, files, calls)
	c.stopAll(t)
	for _, what := range c.leftBehind(t, pids) {
		t.Errorf("left behind: %s", what)
	}
	if left := processesOf(t, c.data); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
}

func judgeSamples(t *testing.T, name string, of []sample) {
	t.Helper()
	for _, f := range []struct {
		what  string
		bound bound
		of    func(sample) float64
	}{
		{"bytes of memory", memoryBound, func(s sample) float64 { return s.memory }},
		{"descriptors", countBound, func(s sample) float64 { return s.descriptors }},
		{"threads", countBound, func(s sample) float64 { return s.threads }},
		{"goroutines", goroutineBound, func(s sample) float64 { return s.goroutines }},
	} {
		figures := make([]float64, len(of))
		for i, s := range of {
			figures[i] = f.of(s)
		}
		before, after, grown := f.bound.grows(figures)
		t.Logf("%-9s %-16s %14.0f -> %14.0f", name, f.what, before, after)
		if grown {
			t.Errorf("%s grows: %s went from %.0f to %.0f", name, f.what, before, after)
		}
	}
}

// soak sends one call after the other and waits for each: every tenth starts a background job.
func (c *cluster) soak(ctx context.Context, n int, sent, failed *atomic.Int64) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("soak-%d-%d", n, i)
		command := []string{"echo " + id, "sleep 0.1; seq 200", "echo x > f-" + strconv.Itoa(n), "head -c 20000 /dev/zero | base64"}[i%4]
		body := fmt.Sprintf(`{"id":%q,"conversation":"soak-%d-%d","tool":"bash","input":{"command":%q,"background":%v}}`,
			id, n, i/50, command, i%10 == 9)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		status, _, err := c.askOnce(call, http.MethodPost, "/v1/calls", []byte(body))
		for err == nil && status == http.StatusAccepted {
			status, _, err = c.askOnce(call, http.MethodGet, "/v1/calls/"+id+"?wait=10s", nil)
		}
		cancel()
		if sent.Add(1); err != nil || status != http.StatusOK {
			failed.Add(1)
			c.log.note(fmt.Sprintf("soak: %s: %d %v", id, status, err))
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// look reads conversations by event streams, from the beginning, for some seconds each.
func (c *cluster) look(ctx context.Context, n int, told *atomic.Int64) {
	for i := 0; ctx.Err() == nil; i++ {
		func() {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet,
				fmt.Sprintf("http://%s/v1/conversations/soak-%d-%d/events", c.gateway, n%4, i/20), http.NoBody)
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer "+c.key)
			req.Header.Set("Accept", "text/event-stream")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body) // until its time is over
			told.Add(int64(bytes.Count(body, []byte("data:"))))
		}()
		pause(ctx, 50*time.Millisecond)
	}
}

// sampleOf looks at a process from outside.
func sampleOf(p *process) (sample, error) {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return sample{}, fmt.Errorf("it does not run: %w", os.ErrProcessDone)
	}
	dir := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return sample{}, fmt.Errorf("look at it: %w", err)
	}
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return sample{}, fmt.Errorf("look at it: %w", err)
	}
	s := sample{descriptors: float64(len(fds))}
	for _, line := range lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, _ := strconv.ParseFloat(number, 64)
		switch name {
		case "VmRSS":
			s.memory = n * 1024
		case "Threads":
			s.threads = n
		}
	}
	return s, nil
}

// stopAll stops every role in order, the last started first.
func (c *cluster) stopAll(t *testing.T) {
	t.Helper()
	for _, p := range slices.Backward(c.roles) {
		p.mu.Lock()
		cmd, gone := p.cmd, p.gone
		p.mu.Unlock()
		if cmd == nil {
			t.Errorf("%s had ended by itself", p.name)
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-gone:
		case <-time.After(patience):
			t.Errorf("%s does not stop", p.name)
		}
	}
}

// processesOf are those whose arguments name a folder.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-eo", "pid,args", "-ww").Output()
	if err != nil {
		longtest.Missing(t, "missing: ps, to look for processes that are left")
	}
	return slices.DeleteFunc(lines(string(out)), func(line string) bool { return !strings.Contains(line, dir) })
}
