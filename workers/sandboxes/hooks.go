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
	hookOutput = 16 << 10 // bytes of each stream of a script that are kept
	hookShown  = 1 << 10  // bytes of them that an error shows
	// hookOvertime is what a provider gets beyond a script's timeout before the script is cancelled.
	hookOvertime = 15 * time.Second
)

// scripts runs the lifecycle scripts of sandboxes in their instances.
type scripts struct {
	*table

	reaper *reaper
}

// prime runs the scripts of a sandbox in its persistent instance, before a call that is in it: those of onCreate unless they have run
// there, then those of onResume. In one box one call at a time does. Nothing of the call has been started yet, so a worker that dies here
// leaves a call that is redelivered.
//
// That onCreate has run is noted after it has. If a worker dies in between it runs once more in the same box: scripts must allow that. When
// one of them fails the box is released, and the next call begins with a new one.
//
// Codes: invalid (a script has failed), unavailable (nothing is wrong: try again), errGone.
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

// create runs onCreate and notes that it has run.
func (b *scripts) create(ctx context.Context, h *instance, q Request) error {
	err := b.hooks(ctx, "onCreate", q.Sandbox.OnCreate, q)
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errHookUnstarted) {
		// What it did until then is unknown: no other call may get this instance.
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

// errHookUnstarted marks that the provider could not start a script now.
var errHookUnstarted = errors.New("nothing was started")

// hooks runs scripts one after the other, with the sandbox's variables, network and timeout. Their output belongs to no call; its end is in
// the error of a script that fails.
func (b *scripts) hooks(ctx context.Context, list string, scripts []string, q Request) error {
	for i, script := range scripts {
		cmd := q.Command
		cmd.ID = "" // what it leaves running is the box's, and does not end with the call
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

// stoppedHook is the error of a call whose preparation was ended from outside. The call is nak'ed; its next delivery finds the reason.
func stoppedHook(ctx context.Context) error {
	return schemas.Wrap(schemas.Unavailable, "hooks", "the preparation of the box was stopped", context.Cause(ctx))
}

// hookError says how a script failed: its number, counted from 1, and the end of what it printed.
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

// claim reports whether onCreate has run in the box. If not, it is this worker's to run it from here on.
// Codes: unavailable (another worker is at it), errGone.
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

// hooked notes that onCreate has run.
func (b *scripts) hooked(ctx context.Context, key string, h *instance, ref schemas.Ref) error {
	return b.change(ctx, key, h, func(row *schemas.Instance) error {
		if row.Ref != ref || row.State == schemas.InstanceEnding {
			return errGone
		}
		row.Hooked, row.Hooking = b.Bus.Now(), ""
		return nil
	})
}

// discard ends a box in which onCreate has failed.
func (b *scripts) discard(ctx context.Context, key string, ref schemas.Ref) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	if err := b.reaper.end(ctx, key, ref, endUnready, nil); err != nil {
		b.Log.Warn("sandbox instance with failed scripts left behind", "instance", key, "error", err)
	}
}
