package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/sandjet/sandjet/workers/limits/redislimits"
)

type doctorCommand struct {
	serverAddress
	limiterFlags

	MinFree         minFree `placeholder:"SIZE|N%" default:"auto" group:"Limits" help:"What must stay free on the file system of the data folder: a size, a part such as 5%, auto for a tenth and 1 GiB at most, or 0."`
	Listen          address `placeholder:"HOST:PORT" default:"127.0.0.1:8080" group:"Gateway" help:"Where the gateway would listen."`
	Box             string  `placeholder:"FILE" group:"Worker" help:"Program sandjet-box, which starts boxes."`
	AllowUnisolated bool    `group:"Security" help:"Check as if commands may run without a sandbox."`

	dir string
}

// serverAddress is where the embedded server would listen.
type serverAddress struct {
	NATSListen address `name:"nats-listen" placeholder:"HOST:PORT" default:"127.0.0.1:4222" group:"Log" help:"Where the embedded server would listen."`
}

// Help is the long help.
func (*doctorCommand) Help() string {
	return `Tries out what "sandjet up" needs and says what would be in the way, with the remedy: the level of
isolation that this host reaches and what is missing from it, the programs that commands use, the data
folder, the ports, the limits of this user, and Redis where one is named. It changes nothing.

The exit code is 0 when up would work, else 1. A missing ripgrep, for instance, is only worth a word.`
}

// AfterApply is called by kong once everything is parsed.
func (c *doctorCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// finding is one line of the doctor.
type finding struct {
	About  string `json:"about"`
	Level  level  `json:"level"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitzero"`
}

// level says how bad a finding is.
type level string

const (
	good    level = "ok"
	worth   level = "note" // works, could be better
	failing level = "fail" // up would not work
)

// Run examines the host.
func (c *doctorCommand) Run(ctx context.Context, t terminal) error {
	findings := []finding{examineHost()}
	findings = append(findings, c.examineBackends(ctx)...)
	findings = append(findings, examinePrograms(ctx)...)
	findings = append(findings, c.examineDataDir()...)
	findings = append(findings, c.examinePorts(ctx)...)
	findings = append(findings, examineLimits()...)
	findings = append(findings, c.examineRedis(ctx)...)
	bad := 0
	for _, f := range findings {
		if f.Level == failing {
			bad++
		}
		if err := f.print(t); err != nil {
			return err
		}
	}
	if bad > 0 {
		return &exitError{code: exitFailure, err: fmt.Errorf("%s would keep \"sandjet up\" from working", count(bad, "problem"))}
	}
	return nil
}

func (f finding) print(t terminal) error {
	if t.json {
		return printJSON(t.out, f)
	}
	mark := map[level]string{good: "✓", worth: "·", failing: "✗"}[f.Level]
	_, err := fmt.Fprintf(t.out, "%s %-12s %s\n", mark, f.About, f.Says)
	if err == nil && f.Remedy != "" {
		_, err = fmt.Fprintf(t.out, "  %-12s → %s\n", "", strings.ReplaceAll(f.Remedy, "\n", "\n                 "))
	}
	return wrapOutput(err)
}

func examineHost() finding {
	var u syscall.Utsname
	_ = syscall.Uname(&u)
	release := make([]byte, 0, len(u.Release))
	for _, ch := range u.Release {
		if ch == 0 {
			break
		}
		release = append(release, byte(ch))
	}
	return finding{"host", good, fmt.Sprintf("%s/%s, kernel %s, %d CPUs, user %d", runtime.GOOS, runtime.GOARCH, release, runtime.NumCPU(), syscall.Getuid()), ""}
}

func examinePrograms(ctx context.Context) []finding {
	var out []finding
	for _, p := range []struct {
		name   string
		absent finding
	}{
		{"bash", finding{"bash", failing, "is not there: the tool bash needs it", "install the package bash"}},
		{"rg", finding{"ripgrep", worth, "is not there: grep and glob use grep and find instead, with the same output", "install the package ripgrep for speed"}},
	} {
		path, err := exec.LookPath(p.name)
		if err != nil {
			out = append(out, p.absent)
			continue
		}
		b, err := exec.CommandContext(ctx, path, "--version").Output() // one of two names
		if err != nil {
			out = append(out, finding{p.absent.About, failing, fmt.Sprintf("%s does not run: %v", path, err), "install it anew"})
			continue
		}
		first, _, _ := bytes.Cut(b, []byte("\n"))
		out = append(out, finding{p.absent.About, good, fmt.Sprintf("%s, %s", path, first), ""})
	}
	return out
}

func (c *doctorCommand) examinePorts(ctx context.Context) []finding {
	var out []finding
	if e, err := dataDir(c.dir).running(); err == nil {
		return []finding{{"ports", good, fmt.Sprintf("Sandjet runs on this data folder already: process %d at %s", e.PID, e.URL), ""}}
	}
	for _, p := range []struct {
		flag string
		at   address
	}{{"listen", c.Listen}, {"nats-listen", c.NATSListen}} {
		if err := p.at.free(ctx, p.flag); err != nil {
			out = append(out, finding{p.flag, failing, err.Error(), ""})
			continue
		}
		out = append(out, finding{p.flag, good, p.at.String() + " is free", ""})
	}
	return out
}

func (c *doctorCommand) examineDataDir() []finding {
	const little, tiny = 5 << 30, 256 << 20 // bytes
	existing, err := nearestFolder(c.dir)
	if err != nil {
		return []finding{{"data folder", failing, err.Error(), "choose another with --data-dir"}}
	}
	if err := syscall.Access(existing, 2 /* W_OK */); err != nil {
		return []finding{{"data folder", failing, fmt.Sprintf("%s: %v", existing, err), "choose another with --data-dir"}}
	}
	free, size, err := freeAt(existing)
	if err != nil {
		return []finding{{"data folder", failing, err.Error(), "choose another with --data-dir"}}
	}
	reserve := c.MinFree.of(size)
	f := finding{"data folder", good, fmt.Sprintf("%s, %s free, of which %s are kept free (--min-free)", c.dir, free, reserve), ""}
	switch {
	case free < reserve:
		f.Level, f.Remedy = failing, "nothing would be written to workspaces: make room, choose another disk with --data-dir, or a lower --min-free"
	case free < tiny:
		f.Level, f.Remedy = failing, "make room, or choose another disk with --data-dir"
	case free < little:
		f.Level, f.Remedy = worth, "the log keeps events for seven days: think of its size"
	}
	return []finding{f}
}

func examineLimits() []finding {
	const few = 1024
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return []finding{{"open files", worth, err.Error(), ""}}
	}
	f := finding{"open files", good, fmt.Sprintf("at most %d (up to %d)", l.Cur, l.Max), ""}
	if l.Max <= few {
		f.Level, f.Remedy = worth, "raise it with ulimit -Hn for many clients at a time"
	}
	return []finding{f}
}

// examineRedis asks the Redis server of the caps, where one is named.
func (f limiterFlags) examineRedis(ctx context.Context) []finding {
	if f.RedisURL == "" {
		return nil
	}
	l, err := redislimits.Open(f.RedisURL)
	if err != nil {
		return []finding{{"redis", failing, err.Error(), ""}}
	}
	defer l.Close() //nolint:errcheck // it was only asked
	if err := l.Ping(ctx); err != nil {
		return []finding{{"redis", failing, "it does not answer: calls under a cap would wait", "start it, or correct --redis-url"}}
	}
	return []finding{{"redis", good, "it answers: caps hold over all workers that use it", ""}}
}

// examineBackends asks the backends that can say what of them works here.
func (c *doctorCommand) examineBackends(ctx context.Context) []finding {
	dir, err := os.MkdirTemp("", "sandjet-doctor-")
	if err != nil {
		return []finding{{"sandboxes", failing, err.Error(), "set TMPDIR to a folder that can be written"}}
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what stays is empty
	var out []finding
	for _, b := range backends() {
		if d, ok := b.flags().(diagnosing); ok {
			out = append(out, d.diagnose(ctx, c, filepath.Join(dir, b.profile.Name))...)
		}
	}
	return out
}
