//go:build linux

package isolationtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// bombs use up what a machine has. Each ends in bounded time, and the next run is fine.
func bombs(t *testing.T, h *host) {
	for _, b := range []struct {
		name, script string
		timeout      time.Duration
		check        func(t *testing.T, res providers.Result)
	}{
		{"forks", "ulimit -Su 5000; bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 60", 3 * time.Second, nil},
		{"forks that leave", `for i in $(seq 700); do (setsid sleep 60 >/dev/null 2>&1 &) 2>/dev/null; done; echo end`, 3 * time.Second, nil},
		{"threads", `python3 -c 'import threading,time
n=0
try:
  while n < 20000: threading.Thread(target=time.sleep,args=(60,),daemon=True).start(); n+=1
except BaseException: pass
print("bounded" if n < 20000 else "unbounded", flush=True)
import os; os._exit(0)' 2>/dev/null`, 20 * time.Second, func(t *testing.T, res providers.Result) {
			t.Helper()
			if strings.Contains(string(res.Stdout), "unbounded") {
				t.Error("20,000 threads were made")
			}
		}},
		{"private memory", "./probe memory private 8192", patience, notSurvived},
		{"memory of many", "for i in 1 2 3 4 5 6 7 8; do ./probe memory private 1024 & done; wait", patience, notSurvived},
		{"memory in unmapped files", "./probe memory memfd 8192", patience, notSurvived},
		{"shared memory that nobody holds", "./probe memory shm 8192", patience, notSurvived},
		{"semaphores", "./probe semaphores 300", patience, func(t *testing.T, res providers.Result) {
			t.Helper()
			if strings.Contains(string(res.Stdout), "survived") {
				t.Errorf("it got 600 MiB of the kernel's memory: %q", res.Stdout)
			}
		}},
		{"files in memory",
			`head -c 250M /dev/zero >/tmp/x; head -c 60M /dev/zero >/home/.sandjet/x; head -c 60M /dev/zero >/dev/shm/x; sleep 2; df --output=used -m /tmp /home /dev/shm | awk '{n += $1} END {print "used", n}'`, patience, func(t *testing.T, res providers.Result) {
				t.Helper()
				var used int
				if _, err := fmt.Sscanf(strings.TrimSpace(string(res.Stdout)), "used %d", &used); err == nil && used > 256+16 && level() == "L3" {
					t.Errorf("%d MiB lie in memory", used)
				}
			}},
		{"buffers of connections", "./probe memory tcp 700", patience, func(t *testing.T, res providers.Result) {
			t.Helper()
			counted := slices.Contains(h.profile.Isolation.Enforced, "cgroup.memory") // else see the document of guarantees
			if counted && strings.Contains(string(res.Stdout), "survived") {
				t.Errorf("it got more than its memory: %q", res.Stdout)
			}
		}},
		{"many files",
			`cd "$TMPDIR"; for i in $(seq 40); do (mkdir d$i; cd d$i; : >f; for j in $(seq 500); do echo x >$j; done); done 2>/dev/null; echo end`,
			patience, nil},
		{"a fifo that nobody writes", "mkfifo f; cat f", time.Second, func(t *testing.T, res providers.Result) {
			t.Helper()
			if !res.TimedOut {
				t.Error("it did not time out")
			}
		}},
		{"odd bytes", `printf 'a\0b\033[31m\377\376\xc3'; head -c 100000 /dev/urandom; printf 'end'`,
			patience, func(t *testing.T, res providers.Result) {
				t.Helper()
				if !strings.HasPrefix(string(res.Stdout), "a\x00b\x1b[31m") || !strings.HasSuffix(string(res.Stdout), "end") {
					t.Errorf("got %.20q", res.Stdout)
				}
			}},
		{"a deaf family holding the output",
			`trap '' TERM HUP INT; for i in 1 2 3; do (setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 1; done' &); done; sleep 60`,
			time.Second, func(t *testing.T, res providers.Result) {
				t.Helper()
				if !res.TimedOut || res.ExitCode != 124 {
					t.Errorf("%+v", res)
				}
			}},
	} {
		t.Run(b.name, func(t *testing.T) {
			cmd := h.command(b.script)
			cmd.Timeout, cmd.Grace = b.timeout, 100*time.Millisecond
			if h.profile.MemoryLimit {
				cmd.Spec.MemoryLimit = 256 << 20
			}
			ctx, cancel := context.WithTimeout(t.Context(), b.timeout+patience)
			defer cancel()
			res, err := h.provider.Run(ctx, cmd)
			if err != nil {
				t.Fatalf("%v: %+v", err, res)
			}
			if b.check != nil {
				b.check(t, res)
			}
			if got := h.ok(t, h.command("echo fine")); got != "fine" {
				t.Errorf("the next run: %q", got)
			}
		})
	}
	t.Run("endless output", func(t *testing.T) { endlessOutput(t, h) })
}

// notSurvived: the limit ended it, be it by killing or by refusing memory.
func notSurvived(t *testing.T, res providers.Result) {
	t.Helper()
	if strings.Contains(string(res.Stdout), "8192 survived") || strings.Count(string(res.Stdout), "survived") == 8 {
		t.Errorf("it got all its memory: %q", res.Stdout)
	}
	if res.TimedOut {
		t.Error("it ended by its timeout, not by its limit")
	}
}

// endlessOutput prints 10 GiB, one in the short form, and watches the worker's own memory meanwhile.
func endlessOutput(t *testing.T, h *host) {
	size := int64(10 << 30)
	if !longtest.Asked() {
		size = 1 << 30
	}
	before := residentMemory(t)
	peak, stop := before, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				peak = max(peak, residentMemory(t))
			}
		}
	})
	cmd := h.command(fmt.Sprintf("echo begin; head -c %d /dev/zero; echo end", size))
	cmd.Timeout = 5 * time.Minute
	var seen int64
	cmd.Output = func(c providers.Chunk) { seen += int64(len(c.Data)) }
	res := h.run(t, cmd)
	close(stop)
	watching.Wait()
	total := size + int64(len("begin\nend\n"))
	if !res.Truncated || res.StdoutBytes != total || seen != total || res.ExitCode != 0 || len(res.Stdout) > schemas.DefaultOutputLimit+1024 {
		t.Errorf("truncated %v, %d bytes counted, %d seen, %d kept, exit code %d, timed out %v", res.Truncated, res.StdoutBytes, seen,
			len(res.Stdout), res.ExitCode, res.TimedOut)
	}
	if grown := peak - before; grown > 64<<20 {
		t.Errorf("the worker grew by %d MiB", grown>>20)
	}
	t.Logf("%d MiB in %v, worker grew by %d KiB", size>>20, res.Duration, (peak-before)>>10)
}

func residentMemory(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Error(err)
		return 0
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Error(err)
	}
	return pages * int64(os.Getpagesize())
}
