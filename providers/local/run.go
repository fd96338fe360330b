//go:build linux

package local

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// killPatience is how long a kept box may take to kill a run's processes before all of it is ended.
	killPatience = 5 * time.Second
	// refillDelay is how long the next box waits for a short run to end, so as not to slow it down.
	refillDelay = 20 * time.Millisecond
	// exitTimeout is the exit code of a run whose time was over.
	exitTimeout = 124
)

// Run runs cmd in a fresh box, or in the kept box that it names. If the memory limit killed the run, OOMKilled is set. In a kept box the
// limit is the box's, so several runs can be killed together.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	res := providers.Result{Runtime: "local/" + p.isolation.Level, Isolation: p.isolationOf(cmd), Sandbox: cmd.Sandbox}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.check(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	env, err := environment(cmd)
	if err != nil {
		return res, err
	}
	var sb *sandbox
	if cmd.Sandbox.IsZero() {
		spec := cmd.Spec
		spec.Network, spec.Mounts = cmd.Network, cmd.Mounts
		if sb, err = p.fresh(ctx, spec); err != nil {
			return res, err
		}
		refill := time.AfterFunc(refillDelay, func() { p.warm(sb.shape) })
		defer func() {
			if refill.Stop() {
				p.warm(sb.shape)
			}
		}()
		defer func() {
			p.quotas.leave(sb) // its processes are gone: who begins from here on is not blamed for them
			go sb.end()        // what remains is the kernel's and our own housekeeping
		}()
	} else {
		var leave func()
		if sb, leave, err = p.find(cmd); err != nil {
			return res, err
		}
		defer leave()
	}
	if env, err = sb.shown(env); err != nil {
		return res, err
	}
	r := &running{p: p.boxes, cmd: cmd, sb: sb, fresh: cmd.Sandbox.IsZero(), before: sb.oomKills()}
	r.frugal = p.quotas.frugal(cmd.Spec.Account, sb.written(cmd.Mounts))
	return r.carryOut(ctx, env, res)
}

// isolationOf returns the isolation of a run of cmd.
func (p *host) isolationOf(cmd providers.Command) *schemas.Isolation {
	i := schemas.Isolation{Level: p.isolation.Level, Enforced: slices.Clone(p.isolation.Enforced), Missing: slices.Clone(p.isolation.Missing)}
	if cmd.Network.Mode == schemas.AllowAll && p.mode != box.Isolated {
		if at := slices.Index(i.Enforced, "netns"); at >= 0 {
			i.Enforced = slices.Delete(i.Enforced, at, at+1)
			i.Missing = append(i.Missing, "netns")
		}
	}
	return &i
}

// check returns an error if this host cannot satisfy the spec, network or mounts.
func (p *host) check(spec providers.Spec, network schemas.Network, mounts []providers.Mount) error {
	profile := p.Profile()
	if _, err := p.rules(network); err != nil {
		return err
	}
	if network.Mode != "" && !slices.Contains(p.opt.Networks, network.Mode) {
		return schemas.OpErrorf(schemas.Unsupported, "run", "the operator of this worker does not allow the network mode %q: it has --networks %v",
			network.Mode, p.opt.Networks)
	}
	switch {
	case p.opt.MaxMemory > 0 && spec.MemoryLimit > p.opt.MaxMemory:
		return schemas.OpErrorf(schemas.Unsupported, "run", "the operator of this worker allows a box %d MiB of memory (--max-memory), not %d",
			p.opt.MaxMemory>>20, spec.MemoryLimit>>20)
	case p.opt.MaxCPUs > 0 && spec.CPUs > p.opt.MaxCPUs:
		return schemas.OpErrorf(schemas.Unsupported, "run",
			"the operator of this worker allows a box %g processors (--max-cpus), not %g", p.opt.MaxCPUs, spec.CPUs)
	case !p.reaches(spec.MinIsolation):
		return schemas.OpErrorf(schemas.Unsupported, "run", "isolation %q was asked for and this host has %s: \"sandjet doctor\" explains",
			spec.MinIsolation, p.isolation.Level)
	case spec.Pids > 0 && !profile.PidsLimit:
		return schemas.OpErrorf(schemas.Unsupported, "run", "this host cannot limit the processes of a box")
	case spec.CPUs > 0 && !profile.CPULimit:
		return schemas.OpErrorf(schemas.Unsupported, "run",
			"this host cannot limit the processors of a box: it needs cgroups that the worker may write")
	}
	for i, m := range mounts {
		if err := box.CheckName(m.Namespace); err != nil || m.Namespace[0] == '.' {
			return schemas.Invalidf("mounts", "a namespace is one path component, not %q", schemas.Quotable(m.Namespace))
		}
		if slices.ContainsFunc(mounts[:i], func(o providers.Mount) bool { return o.Namespace == m.Namespace }) {
			return schemas.Invalidf("mounts", "%q is mounted twice", schemas.Quotable(m.Namespace))
		}
	}
	return nil
}

// reaches reports whether the host's isolation level is at least least.
func (p *host) reaches(least string) bool {
	order := []string{levelBare, levelLandlocked, levelIsolated}
	return least == "" || slices.Contains(order, least) && slices.Index(order, p.isolation.Level) >= slices.Index(order, least)
}

// environment returns a run's environment: only declared variables, nothing of this process. Code: invalid, a name or value is not
// possible.
func environment(cmd providers.Command) (map[string]string, error) {
	env := maps.Clone(cmd.Spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, cmd.Env)
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, schemas.Invalidf("env", "%q cannot be a variable: no name may be empty or hold =, nothing may hold NUL",
				schemas.Quotable(name))
		}
	}
	if strings.Contains(cmd.Script, "\x00") || strings.Contains(cmd.Dir, "\x00") {
		return nil, schemas.Invalidf("script", "NUL is not allowed")
	}
	return env, nil
}

// Path is where the commands of a box find programs, whatever the PATH of its worker is. Isolated boxes have one folder more behind it.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// variables returns env as a list, with the reserved names set to the box's values.
func (r *running) variables(env map[string]string) []string {
	env["PATH"] = Path
	env["USER"], env["LOGNAME"] = "sandbox", "sandbox"
	if r.p.mode == box.Isolated {
		env["PATH"] += ":/etc/sandjet/bin"
	}
	env["HOME"], env["TMPDIR"], env["LANG"] = "/home/sandbox", "/tmp", "C.UTF-8"
	if r.p.mode != box.Isolated {
		env["HOME"], env["TMPDIR"] = filepath.Join(r.sb.temp, "home"), filepath.Join(r.sb.temp, "tmp")
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// dir returns the run's working directory, as a path in the box.
func (r *running) dir() string {
	dir := r.cmd.Dir
	if dir == "" {
		dir = "/tmp"
		if len(r.cmd.Mounts) > 0 {
			dir = r.cmd.Mounts[0].Path()
		}
	}
	if r.p.mode == box.Isolated {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join("/tmp", dir)
		}
		return dir
	}
	// Without a root of its own the box sees the host's paths; workspaces are below its working directory.
	for _, m := range r.cmd.Mounts {
		if rest, ok := strings.CutPrefix(dir, m.Path()); ok && (rest == "" || rest[0] == '/') {
			return "./" + m.Namespace + rest
		}
	}
	if rest, ok := strings.CutPrefix(dir, "/tmp"); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join(r.sb.temp, "tmp", rest)
	}
	return dir
}

// running is a run that is being started or is in progress.
type running struct {
	p       *boxes
	cmd     providers.Command
	sb      *sandbox
	fresh   bool   // the box is for this run only
	frugal  string // why it may only read and delete; empty: it may write
	before  int    // what the kernel had killed in the box for want of memory
	refused uint64 // what the relay had refused
	run     *box.Run
	out     *output
}

// carryOut starts the run, waits for it to exit and returns its result.
func (r *running) carryOut(ctx context.Context, env map[string]string, res providers.Result) (providers.Result, error) {
	err := r.cmd.MayBegin()
	if err != nil {
		return res, err
	}
	if r.out, err = newOutput(r.p, r.cmd); err != nil {
		return res, schemas.Wrap(schemas.Exhausted, "run", "no pipes for the command", err)
	}
	defer r.out.close()
	if r.frugal != "" {
		r.out.spill = nil
	}
	began := time.Now()
	r.refused = r.sb.mark()
	e := box.Exec{Script: r.cmd.Script, Dir: r.dir(), Env: r.variables(env), Frugal: r.frugal != ""}
	r.run, err = r.sb.Begin(e, r.out.stdinFD(), r.out.theirs[0], r.out.theirs[1])
	r.out.begin(r.cmd.Stdin)
	if err == nil {
		defer r.run.Forget()
		if err = r.run.Started(); errors.Is(err, box.ErrEnded) {
			// The box ended before it answered. It may have started the command, which must not run again.
			res.Started, err = true, nil
		}
	}
	if err != nil {
		return r.notStarted(ctx, res, err)
	}
	res.Started = true
	cause := r.await(ctx)
	r.out.finish(r.fresh)
	if r.frugal != "" {
		r.out.take(1, frugalNotice(r.frugal))
	}
	r.out.take(1, r.sb.notices(r.refused))

	res.Duration = time.Since(began)
	r.out.fill(&res)
	exit, ok := r.run.Exit()
	res.ExitCode = exit.Status
	res.OOMKilled = exit.OOM || r.sb.oomKills() > r.before
	switch {
	case errors.Is(cause, providers.ErrTimeout):
		res.TimedOut, res.ExitCode = true, exitTimeout
		return res, nil
	case cause != nil:
		return res, cause
	case !ok && r.sb.evicted.Load() != nil:
		res.ExitCode = 128 + int(unix.SIGKILL)
		return res, r.sb.evicted.Load()
	case !ok && res.OOMKilled: // init itself was the victim
		res.ExitCode = 128 + int(unix.SIGKILL)
		return res, nil
	case !ok:
		return res, schemas.OpErrorf(schemas.Interrupted, "run", "the box ended while the command ran")
	default:
		return res, nil
	}
}

// frugalNotice returns the message, for the command's output, that it may not write and why.
func frugalNotice(why string) []byte {
	return []byte("sandjet: " + why + ". Until then a command can read and delete, and writes to no file\n")
}

// notStarted cleans up a run that could not be started and returns the reason as an error.
func (r *running) notStarted(ctx context.Context, res providers.Result, err error) (providers.Result, error) {
	r.out.finish(false)
	if r.fresh {
		r.sb.end()
	}
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	return res, r.refusal(err)
}

// refusal maps the reason why a run was not started to an error with a code.
func (r *running) refusal(err error) error {
	step, refused := errors.AsType[*box.StepError](err)
	switch {
	case refused && step.Step == box.StepDir:
		return schemas.Invalidf("dir", "the working directory %q cannot be entered: %v", schemas.Quotable(r.cmd.Dir), step.Errno)
	case refused && (step.Errno == unix.EAGAIN || step.Errno == unix.ENOMEM || step.Errno == unix.ENOSPC):
		return schemas.Wrap(schemas.Exhausted, "run", "the box is full of processes or files", err)
	case refused && step.Errno == unix.E2BIG:
		return schemas.Invalidf("env", "the script and its variables are too long for the system")
	case !r.fresh && errors.Is(err, box.ErrEnded):
		return schemas.Wrap(schemas.NotFound, "run", "the sandbox is gone: reserve it again", err)
	default:
		return boxError("run", err)
	}
}

// await waits until the run has ended and its processes are gone, except background processes in a kept box. It returns nil if the run
// ended by itself, otherwise why it was ended.
func (r *running) await(ctx context.Context) error {
	cause := providers.Await(ctx, r.cmd, r.run.Ended(), func() error { return r.run.Signal(unix.SIGTERM) })
	if cause != nil {
		r.kill()
		return cause
	}
	exit, ok := r.run.Exit()
	if r.fresh && (!ok || exit.Left) {
		r.sb.Kill()
		<-r.sb.Gone()
	} else if !ok {
		<-r.sb.Gone()
	}
	return nil
}

// kill kills all processes of the run and waits for their end. In a kept box its process 1 does that; if it does not answer, the box is
// ended.
func (r *running) kill() {
	if !r.fresh && r.run.BeginKill(0) == nil {
		patience := time.NewTimer(killPatience)
		defer patience.Stop()
		select {
		case <-r.run.Killed():
			select {
			case <-r.run.Ended():
				return
			case <-patience.C:
			}
		case <-patience.C:
		}
	}
	r.sb.Kill()
	<-r.sb.Gone()
	<-r.run.Ended()
}
