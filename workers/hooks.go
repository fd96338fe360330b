package workers

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
)

// prime runs the scripts of a sandbox in its kept box, before a call that is in it: those of onCreate
// unless they have run there, then those of onResume. In one box one call at a time does. Nothing of
// the call has been started yet, so a worker that dies here leaves a call that is handed out again.
//
// That onCreate has run is noted after it has. A worker that dies in between lets it run once more in
// the same box: scripts must bear that. When one of them fails the box is released, and the next call
// begins with a new one.
//
// Codes: invalid (a script has failed), unavailable (nothing is wrong: try again), errBoxGone.
func (t *turn) prime(ctx context.Context, r providers.Reserver, h *heldBox, o order) error {
	if len(o.sandbox.OnCreate)+len(o.sandbox.OnResume) == 0 {
		return nil
	}
	ctx, done := t.hands.within(ctx, t.call.EventID())
	defer done()
	select {
	case h.script <- struct{}{}:
		defer func() { <-h.script }()
	case <-ctx.Done():
		return stoppedHook(ctx)
	}
	hooked, err := t.boxes.claim(ctx, boxKey(t.call), h, o.command.Sandbox)
	if err != nil {
		return err
	}
	if !hooked {
		if err := t.create(ctx, r, h, o); err != nil {
			return err
		}
	}
	return t.hooks(ctx, "onResume", o.sandbox.OnResume, o)
}

// create runs onCreate and notes that it has run.
func (t *turn) create(ctx context.Context, r providers.Reserver, h *heldBox, o order) error {
	err := t.hooks(ctx, "onCreate", o.sandbox.OnCreate, o)
	if err != nil && !errors.Is(err, errBoxGone) && !errors.Is(err, errHookUnstarted) {
		// What it did until then is unknown: nobody else may get this box.
		t.boxes.discard(context.WithoutCancel(ctx), r, boxKey(t.call), o.command.Sandbox)
	}
	if err != nil {
		return err
	}
	if err := t.at(atHooked, t.call); err != nil {
		return err
	}
	return t.boxes.hooked(ctx, boxKey(t.call), h, o.command.Sandbox)
}

// errHookUnstarted marks that the provider could not start a script now.
var errHookUnstarted = errors.New("nothing was started")

// hooks runs scripts one after the other, with the sandbox's variables, network and timeout. What they
// print is nobody's output; the end of it is in the error of one that fails.
func (t *turn) hooks(ctx context.Context, list string, scripts []string, o order) error {
	for i, script := range scripts {
		cmd := o.command
		cmd.Script, cmd.Stdin, cmd.Output, cmd.OutputLimit, cmd.Grace = script, nil, nil, hookOutput, 0
		cmd.Timeout = t.timeoutOf(o.sandbox, 0)
		got, err := t.hook(ctx, cmd)
		code := schemas.CodeOf(err)
		switch {
		case err == nil && got.ExitCode == 0 && !got.TimedOut:
		case err == nil:
			return hookError(list, i, len(scripts), got, cmd.Timeout)
		case ctx.Err() != nil:
			return stoppedHook(ctx)
		case code == schemas.NotFound && !got.Started:
			return errBoxGone
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

// hook runs one script. A provider that panics has failed.
func (t *turn) hook(ctx context.Context, cmd providers.Command) (r providers.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout+overtime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = schemas.Errorf(schemas.Internal, "hook", "the provider broke the worker's code: %v", p)
		}
	}()
	return t.Provider.Run(ctx, cmd)
}

// stoppedHook is the error of a call whose preparation was ended from outside. The call goes back to the
// log, whose next delivery sees why.
func stoppedHook(ctx context.Context) error {
	return schemas.Wrap(schemas.Unavailable, "hooks", "the preparation of the box was stopped", context.Cause(ctx))
}

// hookError tells how a script failed: its number, counted from 1, and the end of what it printed.
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
// Codes: unavailable (another worker is at it), errBoxGone.
func (b *boxes) claim(ctx context.Context, key string, h *heldBox, ref schemas.Ref) (hooked bool, err error) {
	b.mu.Lock()
	other := h.row.Hooking
	b.mu.Unlock()
	if other != "" && other != b.me() {
		held, err := b.lease.Held(ctx, other)
		if held || err != nil || !b.lease.Settled() {
			return false, schemas.Wrap(schemas.Unavailable, "onCreate", "another worker makes the box ready: the call waits for it", err)
		}
	}
	err = b.change(ctx, key, h, func(row *boxRow) error {
		hooked = !row.Hooked.IsZero()
		switch {
		case row.Ref != ref || !row.Ending.IsZero():
			return errBoxGone
		case hooked:
			return nil
		case row.Hooking != other && row.Hooking != b.me():
			return schemas.Errorf(schemas.Unavailable, "onCreate", "another worker makes the box ready: the call waits for it")
		}
		row.Hooking = b.me()
		return nil
	})
	return hooked, err
}

// hooked notes that onCreate has run.
func (b *boxes) hooked(ctx context.Context, key string, h *heldBox, ref schemas.Ref) error {
	return b.change(ctx, key, h, func(row *boxRow) error {
		if row.Ref != ref || !row.Ending.IsZero() {
			return errBoxGone
		}
		row.Hooked, row.Hooking = b.Bus.Now(), ""
		return nil
	})
}

// discard ends a box in which onCreate has failed.
func (b *boxes) discard(ctx context.Context, r providers.Reserver, key string, ref schemas.Ref) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	if err := b.end(ctx, r, key, ref, boxUnready); err != nil {
		b.Log.Warn("a box whose scripts have failed is left behind", "box", key, "error", err)
	}
}
