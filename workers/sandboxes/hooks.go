package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	hookOutput = 16 << 10 // bytes of each output stream of a script that are collected
	hookShown  = 1 << 10  // bytes of these that an error contains
	// hookOvertime is how long after a script's timeout the script's context is cancelled, so that the provider can stop the script
	// itself.
	hookOvertime = 15 * time.Second
)

// scripts runs the lifecycle scripts of sandboxes in their instances.
type scripts struct {
	*table

	reaper *reaper
}

// prime runs the scripts of a sandbox in its persistent instance, before a call uses it: those of onCreate unless they have run in this
// instance, then those of onResume. In one instance, only one call at a time does so. Nothing of the call has been started yet, so if the
// worker crashes here, the call is redelivered.
//
// It records that onCreate has run after it has. If a worker crashes in between, onCreate runs again in the same instance: scripts must
// allow that. If a script fails, the instance is released, and the next call starts with a new one.
//
// Codes: invalid (a script has failed), unavailable (retry), errGone.
func (b *scripts) prime(ctx context.Context, h *instance, q Request) error {
	if len(q.Sandbox.OnCreate)+len(q.Sandbox.OnResume) == 0 {
		return nil
	}
	ctx, done := q.Interruptible(ctx)
	defer done()
	select {
	case h.script <- struct{}{}:
		defer func() { <-h.script }()
	case <-ctx.Done():
		return stoppedHook(ctx)
	}
	hooked, err := b.claim(ctx, Key(q.Call), h, q.Command.Sandbox)
	if err != nil {
		return err
	}
	if !hooked {
		if err := b.create(ctx, h, q); err != nil {
			return err
		}
	}
	return b.hooks(ctx, "onResume", q.Sandbox.OnResume, q)
}

// create runs onCreate and records that it has run.
func (b *scripts) create(ctx context.Context, h *instance, q Request) error {
	err := b.hooks(ctx, "onCreate", q.Sandbox.OnCreate, q)
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errHookUnstarted) {
		// The effects of the failed scripts are unknown, so no other call may use this instance.
		b.discard(context.WithoutCancel(ctx), Key(q.Call), q.Command.Sandbox)
	}
	if err != nil {
		return err
	}
	if err := q.Hooked(); err != nil {
		return err
	}
	return b.hooked(ctx, Key(q.Call), h, q.Command.Sandbox)
}

// errHookUnstarted is joined to an error if the provider could not start a script now.
var errHookUnstarted = errors.New("nothing was started")

// hooks runs scripts one after the other, with the sandbox's variables, network and timeout. Their output does not become part of a call's
// output; the error of a failed script contains its end.
func (b *scripts) hooks(ctx context.Context, list string, scripts []string, q Request) error {
	for i, script := range scripts {
		cmd := q.Command
		cmd.ID = "" // processes that it leaves running belong to the instance, and do not end with the call
		cmd.Script, cmd.Stdin, cmd.Output, cmd.OutputLimit, cmd.Grace = script, nil, nil, hookOutput, 0
		cmd.Timeout = q.ScriptTimeout
		got, err := b.hook(ctx, cmd)
		code := schemas.CodeOf(err)
		switch {
		case err == nil && got.ExitCode == 0 && !got.TimedOut:
		case err == nil:
			return hookError(list, i, len(scripts), got, cmd.Timeout)
		case ctx.Err() != nil:
			return stoppedHook(ctx)
		case code == schemas.NotFound && !got.Started:
			return errGone
		case code.Retryable() && !got.Started:
			return schemas.Wrap(schemas.Unavailable, list, "the provider cannot run the sandbox's scripts now", errors.Join(errHookUnstarted, err))
		case code == schemas.Interrupted:
			return schemas.Wrap(schemas.Unavailable, list, "the box ended while its scripts ran", err)
		default:
			return fmt.Errorf("%s script %d of %d: %w", list, i+1, len(scripts), err)
		}
	}
	return nil
}

// hook runs one script.
func (b *scripts) hook(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout+hookOvertime)
	defer cancel()
	return b.Provider.Run(ctx, cmd)
}

// stoppedHook returns the error of a call whose preparation was interrupted. The call is nak'ed; the worker that gets its next delivery
// finds the reason.
func stoppedHook(ctx context.Context) error {
	return schemas.Wrap(schemas.Unavailable, "hooks", "the preparation of the box was stopped", context.Cause(ctx))
}

// hookError returns the error of a failed script, with its number, counted from 1, and the end of its output.
func hookError(list string, i, of int, r providers.Result, timeout time.Duration) error {
	how := fmt.Sprintf("ended with exit code %d", r.ExitCode)
	switch {
	case r.TimedOut:
		how = fmt.Sprintf("was stopped after %s", timeout)
	case r.OOMKilled:
		how = "was killed: it used more memory than the sandbox has"
	}
	printed := strings.TrimSpace(string(r.Stderr))
	if printed == "" {
		printed = strings.TrimSpace(string(r.Stdout))
	}
	if printed != "" {
		how += ":\n" + strings.TrimSpace(schemas.TailText(printed, hookShown))
	}
	return &schemas.Error{
		Code: schemas.Invalid, Field: fmt.Sprintf("config.%s[%d]", list, i),
		Message: fmt.Sprintf("script %d of %d %s", i+1, of, how),
	}
}

// claim reports whether onCreate has run in an instance. If not, it records that this worker is about to run it. Codes: unavailable
// (another worker runs it), errGone.
func (b *scripts) claim(ctx context.Context, key string, h *instance, ref schemas.Ref) (hooked bool, err error) {
	b.mu.Lock()
	other := h.row.Hooking
	b.mu.Unlock()
	if other != "" && other != b.me() {
		if gone, err := b.Lease.Gone(ctx, other); !gone {
			return false, schemas.Wrap(schemas.Unavailable, "onCreate", "another worker makes the sandbox ready: the call waits for it", err)
		}
	}
	err = b.change(ctx, key, h, func(row *schemas.Instance) error {
		hooked = !row.Hooked.IsZero()
		switch {
		case row.Ref != ref || row.State == schemas.InstanceEnding:
			return errGone
		case hooked:
			return nil
		case row.Hooking != other && row.Hooking != b.me():
			return schemas.OpErrorf(schemas.Unavailable, "onCreate", "another worker makes the sandbox ready: the call waits for it")
		}
		row.Hooking = b.me()
		return nil
	})
	return hooked, err
}

// hooked records that onCreate has run.
func (b *scripts) hooked(ctx context.Context, key string, h *instance, ref schemas.Ref) error {
	return b.change(ctx, key, h, func(row *schemas.Instance) error {
		if row.Ref != ref || row.State == schemas.InstanceEnding {
			return errGone
		}
		row.Hooked, row.Hooking = b.Bus.Now(), ""
		return nil
	})
}

// discard ends an instance in which onCreate has failed.
func (b *scripts) discard(ctx context.Context, key string, ref schemas.Ref) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	if err := b.reaper.end(ctx, key, ref, endUnready, nil); err != nil {
		b.Log.Warn("sandbox instance with failed scripts left behind", "instance", key, "error", err)
	}
}
