//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

// The levels, as profiles and results name them.
const (
	levelIsolated   = "L3"
	levelLandlocked = "L2"
	levelBare       = "L0"
)

func levelOf(m box.Mode) string {
	switch m {
	case box.Isolated:
		return levelIsolated
	case box.Landlocked:
		return levelLandlocked
	default:
		return levelBare
	}
}

// Obstacle is why an isolation level is not available, and how an operator can change that.
type Obstacle struct {
	Level  string `json:"level"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Diagnosis is the isolation that this host offers.
type Diagnosis struct {
	// Level is the one that would be used; L0: none, runs would be refused unless allowed.
	Level     string
	Isolation schemas.Isolation
	// Box is the box binary in use, Cgroups what limits are kept by the kernel.
	Box, Cgroups string
	// BoxUnused is why the box binary beside this program is not used; empty: there is none, or it is.
	BoxUnused string
	// Networks are the modes that boxes can be kept in, NoRelay is why restricted and allow-all are none of them, and AllPorts
	// whether a box's connections to any port arrive at its relay, else those that rules name and some usual ones.
	Networks  []schemas.NetworkMode
	NoRelay   string
	AllPorts  bool
	Obstacles []Obstacle
	// Notes are reasons for what is missing at the level in use.
	Notes []string
	// Err is set when nothing could be tried at all.
	Err error
}

// Diagnose finds out the isolation that [New] would choose, and why none stronger. It makes and ends a few boxes.
func Diagnose(ctx context.Context, o Options) Diagnosis {
	o.AllowUnisolated = true
	o.Networks = []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}
	p, err := prepare(o)
	if err != nil {
		return Diagnosis{Level: levelBare, Err: err}
	}
	d := Diagnosis{Box: p.rung, BoxUnused: p.unused, Cgroups: p.cgroups.String(), Notes: p.cgroups.Reasons()}
	d.Obstacles, d.Err = p.choose(ctx)
	d.Level, d.Isolation = p.isolation.Level, p.isolation
	d.Networks, d.NoRelay, d.AllPorts = p.networks(), p.noRelay, p.redirects
	if p.mode != box.Bare && p.landlock == 0 {
		d.Notes = append(d.Notes, "the kernel has no landlock: files are kept apart by mounts alone (boot with lsm=landlock,…)")
	}
	if p.mode == box.Isolated && !p.watches {
		d.Notes = append(d.Notes, "/proc/sys cannot be written, so boxes share the limit on inotify of the worker's user (start the worker's "+
			"container with --security-opt systempaths=unconfined)")
	}
	d.Err = errors.Join(d.Err, p.Close())
	return d
}

// choose sets the strongest level that passes its trial, and returns why stronger ones do not.
func (p *boxes) choose(ctx context.Context) ([]Obstacle, error) {
	var obstacles []Obstacle
	for _, mode := range p.modes {
		p.mode, p.isolation = mode, schemas.Isolation{Level: levelOf(mode)}
		err := p.trial(ctx)
		if err == nil && mode != box.Isolated && !p.opt.AllowUnisolated {
			return obstacles, refusal(obstacles, "level "+levelOf(mode)+
				" would hold, which hides neither other processes nor the host's files' names and is taken only if that is allowed")
		}
		if err == nil {
			p.findRelay(ctx)
			p.isolation = p.measures()
			return obstacles, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		o := Obstacle{Level: levelOf(mode)}
		if step, ok := errors.AsType[*box.StepError](err); ok {
			o.Reason, o.Remedy = explain(step)
		} else {
			o.Reason, o.Remedy = err.Error(), "report this with the output of \"sandjet doctor\""
		}
		obstacles = append(obstacles, o)
	}
	p.mode, p.isolation = box.Bare, schemas.Isolation{Level: levelBare}
	if !p.opt.AllowUnisolated {
		return obstacles, refusal(obstacles, "nothing weaker would hold either")
	}
	if err := p.trial(ctx); err != nil {
		return obstacles, err
	}
	p.isolation = p.measures()
	return obstacles, nil
}

// refusal is the error for a host that cannot make boxes with namespaces: the obstacles, and left, the level that it offers.
func refusal(obstacles []Obstacle, left string) error {
	text := make([]string, 0, len(obstacles))
	for _, o := range obstacles {
		text = append(text, fmt.Sprintf("%s: %s (%s)", o.Level, o.Reason, o.Remedy))
	}
	return schemas.OpErrorf(schemas.Unsupported, "local", "this host cannot make a sandbox of namespaces: %s; %s",
		strings.Join(text, "; "), left)
}

// measures lists the protections in force at the chosen level, and those missing.
func (p *host) measures() schemas.Isolation {
	i := schemas.Isolation{Level: levelOf(p.mode)}
	add := func(on bool, words ...string) {
		if on {
			i.Enforced = append(i.Enforced, words...)
		} else {
			i.Missing = append(i.Missing, words...)
		}
	}
	add(p.mode == box.Isolated, "userns", "mountns", "pidns", "netns", "ipcns")
	add(p.mode != box.Bare, "seccomp", "caps", "nnp")
	add(p.mode != box.Bare && p.landlock > 0, "landlock")
	add(true, "rlimits")
	if p.mode == box.Isolated && !p.watches {
		add(false, "inotify")
	}
	add(true, p.cgroups.Words()...)
	add(false, p.cgroups.Missing()...)
	add(!contains(p.cgroups.Words(), "cgroup.memory"), "watchdog")
	add(p.relays, "egress.domains", "egress.cidrs")
	if p.relays {
		add(p.redirects, "egress.ports")
	}
	if at := slices.Index(i.Missing, "watchdog"); at >= 0 { // a cgroup does its work
		i.Missing = slices.Delete(i.Missing, at, at+1)
	}
	return i
}

// trial runs a box whose script attempts forbidden actions, and returns an error if one succeeds.
func (p *boxes) trial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	canary, err := os.CreateTemp(p.opt.StateDir, "canary-")
	if err != nil {
		return fmt.Errorf("make a file to be read from inside: %w", err)
	}
	defer os.Remove(canary.Name()) //nolint:errcheck // of no value
	if err := errors.Join(canary.Chmod(0o644), canary.Close()); err != nil {
		return fmt.Errorf("make a file to be read from inside: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen to be reached from inside: %w", err)
	}
	defer listener.Close() //nolint:errcheck // of no value
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listen to be reached from inside: %w", err)
	}
	sb, err := p.fresh(ctx, providers.Spec{Account: "acct_trial"})
	if err != nil {
		return err
	}
	p.landlock, p.shell, p.watches = sb.Facts().Landlock, sb.Facts().Shell, sb.Facts().Watches
	cmd := providers.Command{
		Script: trialScript, Timeout: 20 * time.Second, Spec: providers.Spec{Account: "acct_trial"},
		Env: map[string]string{"CANARY": canary.Name(), "PORT": port, "OUTSIDE": filepath.Join(p.opt.StateDir, "written-by-trial")},
	}
	env, err := environment(cmd)
	if err != nil {
		return err
	}
	defer sb.end()
	r := &running{p: p, cmd: cmd, sb: sb, fresh: true}
	res, err := r.carryOut(ctx, env, providers.Result{})
	if err != nil {
		return err
	}
	var breaches []string
	for line := range lines(res.Stdout) {
		if what, ok := strings.CutPrefix(line, "breach: "); ok {
			breaches = append(breaches, what)
		}
	}
	switch {
	case !bytes.Contains(res.Stdout, []byte("tried\n")):
		return fmt.Errorf("a trial box did not run to its end: exit code %d: %.200q", res.ExitCode, res.Stderr)
	case p.mode != box.Bare && len(breaches) > 0:
		return fmt.Errorf("a trial box could %s", strings.Join(breaches, ", "))
	default:
		return nil
	}
}

// trialScript prints a line for each thing it could do that it must not.
const trialScript = `
{ echo x >/sandjet-trial; } 2>/dev/null && echo "breach: write to the root directory"
{ echo x >"$OUTSIDE"; } 2>/dev/null && echo "breach: write to a file outside"
{ cat "$CANARY" >/dev/null; } 2>/dev/null && echo "breach: read a file outside"
{ : <>"/dev/tcp/127.0.0.1/$PORT"; } 2>/dev/null && echo "breach: connect to the host"
mount -t tmpfs none /tmp 2>/dev/null && echo "breach: mount"
unshare -U true 2>/dev/null && echo "breach: make a user namespace"
while read -r key value rest; do
	case $key in
	CapPrm: | CapEff: | CapAmb:) case $value in *[!0]*) echo "breach: hold capabilities" ;; esac ;;
	NoNewPrivs:) [ "$value" = 1 ] || echo "breach: gain privileges" ;;
	Seccomp:) [ "$value" = 2 ] || echo "breach: make any system call" ;;
	Uid:) [ "$value" = 0 ] && echo "breach: be root" ;;
	esac
done </proc/self/status
echo tried
`

// explain returns the reason for a failed step and a remedy, for operators.
func explain(e *box.StepError) (reason, remedy string) {
	reason = e.Step + ": " + e.Errno.Error()
	if e.Errno == 0 {
		reason = e.Error()
	}
	switch {
	case e.Step == "clone" && e.Errno == unix.EPERM:
		return reason, "the container's seccomp profile or a sysctl (kernel.unprivileged_userns_clone=0) forbids user namespaces: start the " +
			"worker's container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or set the sysctl"
	case e.Step == "clone" && (e.Errno == unix.ENOSPC || e.Errno == unix.EUSERS):
		return reason, "the number of namespaces is limited: raise user.max_user_namespaces and its siblings"
	case e.Step == "clone" && e.Errno == unix.EACCES:
		return reason, "uid maps or the box binary are refused: on Ubuntu set kernel.apparmor_restrict_unprivileged_userns=0 or add an " +
			"AppArmor profile with userns for the binary; the binary must be executable for everybody"
	case e.Step == "mount proc":
		return reason, "the container masks parts of /proc, so no new one may be mounted: start it with --security-opt systempaths=unconfined"
	case e.Errno == unix.EPERM || e.Errno == unix.EACCES:
		return reason, "a security module or profile refuses it: on Ubuntu set kernel.apparmor_restrict_unprivileged_userns=0; in a container " +
			"use --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	case e.Errno == unix.EINVAL || e.Errno == unix.ENOSYS || e.Errno == unix.EOPNOTSUPP:
		return reason, "the kernel is too old or was built without it: Linux 5.12 or later is needed, for L2 with landlock"
	default:
		return reason, "see the worker's log"
	}
}

func contains(words []string, word string) bool { return slices.Contains(words, word) }

// lines yields the lines of text without line ends.
func lines(text []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range bytes.Lines(text) {
			if !yield(strings.TrimRight(string(line), "\n")) {
				return
			}
		}
	}
}

// logLines logs the error output of the spawner.
type logLines struct{ log *slog.Logger }

func (l *logLines) Write(p []byte) (int, error) {
	for line := range lines(p) {
		l.log.Warn("output of the spawner", "line", line)
	}
	return len(p), nil
}
