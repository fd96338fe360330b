package kubernetes

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"k8s.io/client-go/util/exec"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	spareTime    = 5 * time.Minute  // what a box of one run may live longer than all that it needs
	silence      = time.Minute      // that a run may be over its time without a word, before its stream is closed
	reasonWithin = 5 * time.Second  // for the cluster to say why a stream ended
	streamAfter  = 10 * time.Second // for a stream to end when its run was ended
)

// target is where a run runs.
type target struct {
	name, box string // of the box
	pod       podState
	fresh     bool
	claimed   bool // from the warm pool: its claim goes, and the box with it
}

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return p.opt.StartTimeout }

// Run runs cmd by an exec, in the kept box or in one of its own. Further codes: invalid (the working directory is not
// there, a variable's name is none), denied (the API server refuses it), conflict never.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (res providers.Result, err error) {
	cmd = cmd.WithDefaults()
	isolation := p.isolation()
	res.Runtime, res.Isolation = "kubernetes/"+level, &isolation
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.refuse(cmd.Spec, cmd.Network); err != nil {
		return res, err
	}
	token := runName(cmd.ID)
	data, err := runnerInput(token, cmd, cmd.Sandbox.IsZero())
	if err != nil {
		return res, err
	}
	if !cmd.Sandbox.IsZero() {
		t, err := p.kept(ctx, cmd.Sandbox)
		if err != nil {
			return res, err
		}
		res.Sandbox = cmd.Sandbox
		if data, err = p.throughProxy(ctx, t, token, data, cmd); err != nil {
			return res, err
		}
		return p.carryOut(ctx, t, token, data, cmd, res)
	}
	t, err := p.fresh(ctx, cmd)
	defer func() {
		if left := p.discard(ctx, t, err != nil || res.TimedOut); left != nil && ctx.Err() != nil && res.Started {
			err = errors.Join(err, left)
		}
	}()
	if err == nil {
		data, err = p.throughProxy(ctx, t, token, data, cmd)
	}
	if err != nil {
		return res, err
	}
	return p.carryOut(ctx, t, token, data, cmd, res)
}

// kept finds the pod of a kept box, if it is still the one that the ref names.
func (p *Provider) kept(ctx context.Context, ref schemas.Ref) (target, error) {
	gone := schemas.Errorf(schemas.NotFound, "run", "the sandbox is gone: reserve it again")
	name, id, ok := p.parseRef(ref)
	if !ok {
		return target{}, gone
	}
	s, ok, err := p.podOf(ctx, name, id.box)
	if err != nil {
		return target{}, err
	}
	if !ok || s.uid != id.pod || s.container != id.container || !s.ready {
		return target{}, gone
	}
	return target{name: name, box: id.box, pod: s}, nil
}

// fresh makes a box for one run. Beside an error it names what has to be discarded.
func (p *Provider) fresh(ctx context.Context, cmd providers.Command) (target, error) {
	spec := cmd.Spec
	spec.Network = cmd.Network
	if len(cmd.Mounts) > 0 {
		spec.Mounts = cmd.Mounts
	}
	life := p.opt.StartTimeout + cmd.Timeout + cmd.Grace + spareTime
	b := box{name: "run-" + runName(cmd.ID), kind: kindRun, spec: spec, limit: life, until: time.Now().Add(life)}
	t := target{name: b.name, fresh: true}
	anchor, claimed, err := p.claim(ctx, b)
	t.claimed = claimed || err != nil && p.claims != ""
	if err == nil && !claimed {
		anchor, err = p.make(ctx, b)
	}
	if err != nil {
		return t, notStarted(err)
	}
	t.box = string(anchor.GetUID())
	t.pod, err = p.readyPod(ctx, b.name, t.box)
	if err == nil && p.sandbox != "" {
		err = p.own(ctx, b.name, podReference(t.pod))
	}
	return t, notStarted(err)
}

// notStarted keeps codes that would send a caller back for a kept box from one that has none.
func notStarted(err error) error {
	if code := schemas.CodeOf(err); code == schemas.NotFound || code == schemas.Conflict {
		return schemas.Wrap(schemas.Unavailable, "run", "the box ended before the command was started", err)
	}
	return err
}

// discard removes the box of a run, also when ctx has ended. It waits for its processes to be gone where the run did
// not end by itself; else the runner has ended them.
func (p *Provider) discard(ctx context.Context, t target, wait bool) error {
	ctx = context.WithoutCancel(ctx)
	r := p.boxResource()
	if t.claimed {
		r = p.claimedResource()
	}
	err := p.remove(ctx, r, t.name, "")
	if wait && err == nil {
		err = p.gone(ctx, t.name, anyPod)
	}
	if err != nil {
		p.opt.Log.Warn("sandbox of a run not removed, it ends at its time limit", "box", t.name, "error", err)
		return err
	}
	if p.sandbox != "" && t.pod.uid != "" {
		return nil // the policy belongs to the pod, and goes behind it
	}
	p.cleanup <- struct{}{}
	p.behind.Go(func() {
		defer func() { <-p.cleanup }()
		err := p.gone(ctx, t.name, anyPod)
		if err == nil {
			err = p.remove(ctx, policyResource, t.name, "")
		}
		if err != nil {
			p.opt.Log.Warn("policy of a run not removed, the next sweep removes it", "box", t.name, "error", err)
		}
	})
	return nil
}

// carryOut sends a run to its pod and sees it to its end.
func (p *Provider) carryOut(ctx context.Context, t target, token string, data []byte, cmd providers.Command,
	res providers.Result,
) (providers.Result, error) {
	if err := cmd.MayBegin(); err != nil {
		return res, err
	}
	in := newInput(data)
	out := newOutput(token, cmd, in)
	streaming, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ended := make(chan error, 1)
	go func() { ended <- p.exec(streaming, t.pod.name, in, out.streams[0], out.streams[1]) }()

	streamErr, notEnded := p.watch(ctx, t, token, cmd, out, ended, cut)
	in.finish()
	out.finish(&res)
	v := out.verdict()
	res.Started = v.started || v.refused == "" && in.sent()
	switch {
	case ctx.Err() != nil && notEnded != nil && !t.fresh:
		return res, schemas.Wrap(schemas.Interrupted, "run", "the cancelled command could not be ended: it ends at its time limit", notEnded)
	case ctx.Err() != nil:
		return res, ctx.Err()
	case v.refused != "":
		return res, refusal(v.refused, cmd)
	case v.ended:
		res.ExitCode, res.TimedOut, res.OOMKilled = v.code, v.late, v.ooms > 0
		if v.late {
			res.ExitCode, res.Duration = 124, max(res.Duration, cmd.Timeout)
		}
		return res, nil
	}
	return p.broken(ctx, t, token, streamErr, res)
}

// watch returns when the stream has ended. It ends the run when ctx does, and gives the stream up when the run is long
// over its time without a word.
func (p *Provider) watch(ctx context.Context, t target, token string, cmd providers.Command,
	out *output, ended <-chan error, cut func(),
) (streamErr, notEnded error) {
	cancelled := ctx.Done()
	clock := time.NewTimer(cmd.Timeout + cmd.Grace + silence)
	defer clock.Stop()
	seen := int64(-1)
	for {
		select {
		case streamErr = <-ended:
			return streamErr, notEnded
		case <-cancelled:
			cancelled = nil
			if notEnded = p.end(ctx, t, token); notEnded != nil {
				cut()
			}
			seen = out.progress.Load()
			clock.Reset(streamAfter)
		case <-clock.C:
			if now := out.progress.Load(); now != seen || out.busy.Load() {
				seen = now
				clock.Reset(streamAfter)
				continue
			}
			cut()
		}
	}
}

// end ends a run from outside, within endTimeout. A pod that is gone has no run any more.
func (p *Provider) end(ctx context.Context, t target, token string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return again(ctx, func(error) bool { return true }, func() error {
		in := newInput(endInput(token))
		in.finish()
		err := p.exec(ctx, t.pod.name, in, io.Discard, io.Discard)
		if err == nil {
			return nil
		}
		if s, ok, lookErr := p.podOf(ctx, t.name, t.box); lookErr == nil && (!ok || s.uid != t.pod.uid || s.over) {
			return nil
		}
		return err
	})
}

// broken is a run whose stream ended without the runner's record of its end.
func (p *Provider) broken(ctx context.Context, t target, token string, streamErr error, res providers.Result) (providers.Result, error) {
	if streamErr == nil {
		streamErr = errors.New("the stream ended without the record of the command's end")
	}
	var code exec.CodeExitError
	if !res.Started && !errors.As(streamErr, &code) {
		err := explain("run", streamErr)
		if schemas.CodeOf(err) == schemas.NotFound && t.fresh {
			err = notStarted(err)
		}
		return res, err
	}
	s, known := p.after(ctx, t)
	switch {
	case known && s.oom:
		res.OOMKilled, res.ExitCode, res.Started = true, 137, true
		return res, nil
	case known && s.problem != "":
		return res, schemas.Wrap(schemas.Interrupted, "run", "the box ended while the command ran: "+s.problem, streamErr)
	case known:
		return res, schemas.Wrap(schemas.Interrupted, "run", "the box was removed while the command ran", streamErr)
	case !res.Started && code.Code == 127:
		return res, schemas.Errorf(schemas.Unsupported, "run", "the image %s has no bash", p.opt.Image)
	}
	if err := p.end(ctx, t, token); err != nil {
		streamErr = errors.Join(streamErr, err)
	}
	return res, schemas.Wrap(schemas.Interrupted, "run", "the connection to the command was lost", streamErr)
}

// after looks for a while whether the pod has ended: its state comes later than the end of the streams into it.
func (p *Provider) after(ctx context.Context, t target) (s podState, ended bool) {
	ctx, cancel := context.WithTimeout(ctx, reasonWithin)
	defer cancel()
	for n := 1; ; n++ {
		o, err := p.get(ctx, podResource, t.pod.name)
		switch {
		case err != nil:
		case o == nil || string(o.GetUID()) != t.pod.uid:
			return podState{}, true
		default:
			if s := look(*o); s.over {
				return s, true
			} else if s.leaving {
				return podState{problem: "it is being removed"}, true
			}
		}
		if !(wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}).Sleep(ctx, n) {
			return podState{}, false
		}
	}
}

// refusal words why the runner started nothing.
func refusal(reason string, cmd providers.Command) error {
	switch reason {
	case "dir":
		return schemas.Invalidf("dir", "%q is not a directory in the sandbox", schemas.Quotable(cmd.Dir))
	case "disk":
		return schemas.Errorf(schemas.Exhausted, "run", "the sandbox has no room on its disk for the run's files")
	case "cancelled":
		return schemas.Errorf(schemas.Unavailable, "run", "the run was ended before it started")
	}
	if slices.Contains([]string{"bash 4.4", "setsid", "dd", "mkfifo", "cat", "env", "grep", "wc", "rm", "mkdir"}, reason) {
		return schemas.Errorf(schemas.Unsupported, "run",
			"the image lacks %s: use one with bash 4.4 or newer, coreutils, grep and util-linux", reason)
	}
	return schemas.Errorf(schemas.Unavailable, "run", "the sandbox did not start the command")
}
