package kubernetes

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/util/exec"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	spareTime    = 5 * time.Minute  // what a box of one run may live longer than all that it needs
	silence      = time.Minute      // that a run may be over its time without a word, before its stream is closed
	reasonWithin = 5 * time.Second  // for the cluster to say why a stream ended
	streamAfter  = 10 * time.Second // for a stream to end when its run was ended
)

// target is the box and pod of a run.
type target struct {
	name, box string // of the box
	pod       podState
	fresh     bool
	claimed   bool // from the warm pool: its claim goes, and the box with it
}

// execution sends one run to its pod and waits for it to end.
type execution struct {
	processes *processes
	image     string
	target    target
	token     string // the name of the run
	cmd       providers.Command
}

// carryOut sends a run to its pod, waits for it to end and returns its result.
func (e *execution) carryOut(ctx context.Context, data []byte, res providers.Result) (providers.Result, error) {
	if err := e.cmd.MayBegin(); err != nil {
		return res, err
	}
	in := newInput(data)
	out := newOutput(e.token, e.cmd, in)
	streaming, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ended := make(chan error, 1)
	go func() {
		ended <- e.processes.api.exec(streaming, e.target.pod.name, in, out.streams[0], out.streams[1])
	}()

	streamErr, notEnded := e.watch(ctx, out, ended, cut)
	in.finish()
	out.finish(&res)
	v := out.verdict()
	res.Started = v.started || v.refused == "" && in.sent()
	switch {
	case ctx.Err() != nil && notEnded != nil && !e.target.fresh:
		return res, schemas.Wrap(schemas.Interrupted, "run", "the cancelled command could not be ended: it ends at its time limit", notEnded)
	case ctx.Err() != nil:
		return res, ctx.Err()
	case v.refused != "":
		return res, refusal(v.refused, e.cmd)
	case v.ended:
		res.ExitCode, res.TimedOut, res.OOMKilled = v.code, v.late, v.ooms > 0
		if v.late {
			res.ExitCode, res.Duration = 124, max(res.Duration, e.cmd.Timeout)
		}
		return res, nil
	}
	return e.broken(ctx, streamErr, res)
}

// watch waits until the stream has ended. It kills the run when ctx ends, and cuts the stream if the run is far over its time without a
// message.
func (e *execution) watch(ctx context.Context, out *output, ended <-chan error, cut func()) (streamErr, notEnded error) {
	cancelled := ctx.Done()
	clock := time.NewTimer(e.cmd.Timeout + e.cmd.Grace + silence)
	defer clock.Stop()
	seen := int64(-1)
	for {
		select {
		case streamErr = <-ended:
			return streamErr, notEnded
		case <-cancelled:
			cancelled = nil
			if notEnded = e.processes.end(ctx, e.target, e.token); notEnded != nil {
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

// broken returns the result of a run whose stream ended without the runner's record of its end.
func (e *execution) broken(ctx context.Context, streamErr error, res providers.Result) (providers.Result, error) {
	if streamErr == nil {
		streamErr = errors.New("the stream ended without the record of the command's end")
	}
	var code exec.CodeExitError
	if !res.Started && !errors.As(streamErr, &code) {
		err := explain("run", streamErr)
		if schemas.CodeOf(err) == schemas.NotFound && e.target.fresh {
			err = notStarted(err)
		}
		return res, err
	}
	s, known := e.processes.pods.hasEnded(ctx, e.target)
	switch {
	case known && s.oom:
		res.OOMKilled, res.ExitCode, res.Started = true, 137, true
		return res, nil
	case known && s.problem != "":
		return res, schemas.Wrap(schemas.Interrupted, "run", "the box ended while the command ran: "+s.problem, streamErr)
	case known:
		return res, schemas.Wrap(schemas.Interrupted, "run", "the box was removed while the command ran", streamErr)
	case !res.Started && code.Code == 127:
		return res, schemas.OpErrorf(schemas.Unsupported, "run", "the image %s has no bash", e.image)
	}
	if err := e.processes.end(ctx, e.target, e.token); err != nil {
		streamErr = errors.Join(streamErr, err)
	}
	return res, schemas.Wrap(schemas.Interrupted, "run", "the connection to the command was lost", streamErr)
}

// refusal returns the error for a reason why the runner started nothing.
func refusal(reason string, cmd providers.Command) error {
	switch reason {
	case "dir":
		return schemas.Invalidf("dir", "%q is not a directory in the sandbox", schemas.Quotable(cmd.Dir))
	case "disk":
		return schemas.OpErrorf(schemas.Exhausted, "run", "the sandbox has no room on its disk for the run's files")
	case "cancelled":
		return schemas.OpErrorf(schemas.Unavailable, "run", "the run was ended before it started")
	}
	if slices.Contains([]string{"bash 4.4", "setsid", "dd", "mkfifo", "cat", "env", "grep", "wc", "rm", "mkdir"}, reason) {
		return schemas.OpErrorf(schemas.Unsupported, "run",
			"the image lacks %s: use one with bash 4.4 or newer, coreutils, grep and util-linux", reason)
	}
	return schemas.OpErrorf(schemas.Unavailable, "run", "the sandbox did not start the command")
}
