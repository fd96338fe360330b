package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/workers/limits/redislimits"
)

type doctorCommand struct {
	serverAddress
	limiterFlags
	s3Flags

	NATSURL  string       `name:"nats-url" placeholder:"URL" group:"Log" help:"Outside NATS server or cluster to check. Default: the embedded server."`
	Listen   address      `placeholder:"HOST:PORT" default:"127.0.0.1:8080" group:"Gateway" help:"Where the gateway would listen."`
	Backends kong.Plugins `embed:""` // flags of all providers: each is checked with its own

	dir string
}

// serverAddress is where the embedded server would listen.
type serverAddress struct {
	NATSListen address `name:"nats-listen" placeholder:"HOST:PORT" default:"127.0.0.1:4222" group:"Log" help:"Where the embedded server would listen."`
}

// fill sets the flags of the backends.
func (c *doctorCommand) fill(sets kong.Plugins) { c.Backends = sets }

// Help returns the detailed help, for kong.
func (*doctorCommand) Help() string {
	return `Tries out what "sandjet up" needs and says what would be in the way, with the remedy: the level of
isolation that this host reaches and what is missing from it, the programs that commands use, the data
folder, the ports, the limits of this user, and Redis where one is named. It changes nothing. It takes
the flags of "up" that name an image, an engine, a cluster or a limit, and examines those.

The exit code is 0 when up would work, else 1. A missing ripgrep, for instance, is only a note.`
}

// AfterApply is called by kong once everything is parsed.
func (c *doctorCommand) AfterApply(root *cli) error {
	c.dir = root.DataDir
	return nil
}

// finding is the result of one check of the doctor.
type finding struct {
	About  string `json:"about"`
	Level  level  `json:"level"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitzero"`
}

// level is the severity of a finding.
type level string

const (
	good    level = "ok"
	worth   level = "note" // up works, but could work better
	failing level = "fail" // up would not work
)

// Run checks the host.
func (c *doctorCommand) Run(ctx context.Context, t terminal) error {
	findings := []finding{examineHost()}
	findings = append(findings, c.examineBackends(ctx)...)
	findings = append(findings, examinePrograms(ctx, local.Path)...)
	findings = append(findings, c.examineDataDir()...)
	findings = append(findings, c.examinePorts(ctx)...)
	findings = append(findings, examineLimits()...)
	findings = append(findings, c.examineRedis(ctx)...)
	findings = append(findings, c.examineS3(ctx)...)
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

// findings are the lines for what a provider says of its needs. What is missing keeps nothing from working: it is one of several providers.
func findings(list []providers.Diagnosis) []finding {
	out := make([]finding, len(list))
	for i, d := range list {
		out[i] = finding{d.About, worth, d.Says, d.Remedy}
		if d.Good {
			out[i].Level, out[i].Remedy = good, ""
		}
	}
	return out
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
	return finding{"host", good, fmt.Sprintf("%s/%s, kernel %s, %d CPUs, user %d", runtime.GOOS, runtime.GOARCH, release,
		runtime.NumCPU(), syscall.Getuid()), ""}
}

// examinePrograms looks for programs in the PATH of sandboxes, which may differ from that of this process.
func examinePrograms(ctx context.Context, path string) []finding {
	const missing = "is not there: sandboxes of the provider local have this host's programs, and so none"
	var out []finding
	for _, p := range []struct {
		name   string
		absent finding
	}{
		{"bash", finding{"bash", failing, "is not there: the tool bash needs it", "install the package bash"}},
		{"python3", finding{"python3", worth, missing, "install the package python3"}},
		{"node", finding{"node", worth, missing, "install the package nodejs"}},
		{"git", finding{"git", worth, missing, "install the package git"}},
		{"rg", finding{"ripgrep", worth, "is not there: grep and glob use grep and find instead, with the same output",
			"install the package ripgrep for speed"}},
	} {
		path := lookIn(path, p.name)
		if path == "" {
			out = append(out, p.absent)
			continue
		}
		b, err := exec.CommandContext(ctx, path, "--version").Output() // path is that of a program listed above
		if err != nil {
			out = append(out, finding{p.absent.About, p.absent.Level, fmt.Sprintf("%s does not run: %v", path, err), "install it again"})
			continue
		}
		first, _, _ := bytes.Cut(b, []byte("\n"))
		out = append(out, finding{p.absent.About, good, fmt.Sprintf("%s, %s", path, first), ""})
	}
	return out
}

// lookIn returns the path of a program that it finds in a list of folders, as a shell does; "" if there is none.
func lookIn(folders, name string) string {
	for _, folder := range filepath.SplitList(folders) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path
		}
	}
	return ""
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
		if p.flag == "nats-listen" && c.NATSURL != "" {
			out = append(out, examineNATS(ctx, c.NATSURL)...)
			continue // no server is embedded then
		}
		if err := p.at.free(ctx, p.flag); err != nil {
			out = append(out, finding{p.flag, failing, err.Error(), ""})
			continue
		}
		out = append(out, finding{p.flag, good, p.at.String() + " is free", ""})
	}
	return out
}

// examineNATS checks that the servers of an external log accept connections. It does not log in.
func examineNATS(ctx context.Context, urls string) []finding {
	const long = 3 * time.Second
	var out []finding
	for server := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" {
			out = append(out, finding{"nats", failing, "--nats-url has an entry that is not an address", "write nats://HOST:PORT[,…]"})
			continue
		}
		at := u.Host
		if u.Port() == "" {
			at = net.JoinHostPort(u.Hostname(), "4222")
		}
		connection, err := (&net.Dialer{Timeout: long}).DialContext(ctx, "tcp", at)
		if err != nil {
			out = append(out, finding{"nats", failing, at + " is not reachable", "start the server, or correct --nats-url"})
			continue
		}
		_ = connection.Close()
		out = append(out, finding{"nats", good, at + " is reached", ""})
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
	reserve := c.minFree().of(size)
	f := finding{"data folder", good, fmt.Sprintf("%s, %s free, of which %s are kept free (--min-free)", c.dir, free, reserve), ""}
	switch {
	case free < reserve:
		f.Level, f.Remedy = failing,
			"nothing would be written to workspaces: make room, choose another disk with --data-dir, or a lower --min-free"
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

// examineRedis checks the Redis server of --redis-url, if one is named.
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
		return []finding{{"redis", failing,
			"it does not answer: calls under a cap would wait, and each deliverer would limit its own messages to chats",
			"start it, or correct --redis-url"}}
	}
	return []finding{{"redis", good,
		"it answers: caps apply across all workers that use it, and rate limits of chats across all deliverers", ""}}
}

// examineBackends runs the checks of the backends that have some.
func (c *doctorCommand) examineBackends(ctx context.Context) []finding {
	dir, err := os.MkdirTemp("", "sandjet-doctor-")
	if err != nil {
		return []finding{{"sandboxes", failing, err.Error(), "set TMPDIR to a folder that can be written"}}
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what stays is empty
	var out []finding
	for i, b := range backends() {
		if d, ok := c.Backends[i].(diagnosing); ok {
			out = append(out, d.diagnose(ctx, filepath.Join(dir, b.profile.Name))...)
		}
	}
	return out
}

// minFree returns how much of the data folder's disk the provider local leaves free.
func (c *doctorCommand) minFree() minFree {
	for _, b := range c.Backends {
		if f, ok := b.(*localFlags); ok {
			return f.MinFree
		}
	}
	return minFree{}
}
