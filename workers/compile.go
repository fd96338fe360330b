package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/workers/guard"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// preparedCall is a call with all that its run needs.
type preparedCall struct {
	input   any
	plan    tools.Plan
	sandbox schemas.Sandbox
	files   schemas.Workspace
	command providers.Command
	keep    string // key of the kept box; empty: a fresh one
	// direct is the workspace on S3 itself, for a call that only reads it and has no sandbox; nil: the provider has the files.
	direct workspacefs.FS
}

// compile finds the records that the call names and makes its command.
func (t *execution) compile(ctx context.Context) (o preparedCall, err error) {
	c := t.call
	if unfit := c.Unfit(); unfit != nil {
		return o, unfit
	}
	if o.input, err = c.TypedInput(); err != nil {
		return o, err
	}
	if o.sandbox, err = t.sandbox(ctx); err != nil {
		return o, fmt.Errorf("sandbox of the call: %w", err)
	}
	if err := guarded(o); err != nil {
		return o, err
	}
	if c.Workspace != "" {
		if o.files, err = t.w.Specs.Workspace(ctx, c.Account, c.Workspace); err != nil {
			return o, fmt.Errorf("workspace of the call: %w", err)
		}
		if o.direct, err = t.direct(ctx, o.files); err != nil {
			return o, err
		}
		if err := t.reaches(o); err != nil {
			return o, errors.Join(err, o.close())
		}
	}
	if o.plan, err = tools.Compile(c, o.input); err != nil {
		return o, fmt.Errorf("compile the call: %w", err)
	}
	o.command = t.command(o)
	if c.Tool == schemas.ToolLoadSkill {
		o.command.Timeout = t.timeoutOf(o.sandbox, loadWithin)
	}
	o.plan.Timeout = o.command.Timeout // so that the text names what was applied
	return o, nil
}

// guarded refuses a command of bash that its sandbox's guard does not let through.
func guarded(o preparedCall) error {
	in, ok := o.input.(schemas.BashInput)
	if !ok {
		return nil
	}
	if r := guard.Check(in.Command, o.sandbox.Guard, o.sandbox.Runtimes); r != nil {
		return &schemas.Error{Code: schemas.Denied, Field: "input.command", Message: r.Text, Err: r}
	}
	return nil
}

// sandbox finds the rules of the call's box. Without a sandbox the call only reads: the box reaches nothing
// and has the usual limits. Without a workspace there is nothing that a kept box could be kept for.
func (t *execution) sandbox(ctx context.Context) (schemas.Sandbox, error) {
	c := t.call
	if c.Sandbox == "" {
		return schemas.Sandbox{Account: c.Account, Provider: c.Provider, Network: schemas.Network{Mode: schemas.DenyAll}}, nil
	}
	s, err := t.w.Specs.Sandbox(ctx, c.Account, c.Sandbox)
	s.Persistent = s.Persistent && c.Workspace != ""
	return s, err
}

// command is the run of an order, in a box kept to the sandbox's rules.
func (t *execution) command(o preparedCall) providers.Command {
	cmd := o.plan.Command()
	if t.sideEffects { // it is started once; others may be started by several workers, and none must end another's
		cmd.ID = t.runID()
	}
	if c := t.call; c.Workspace != "" {
		mount := mountOf(c.Account, c.Workspace, o.files.Storage)
		mount.ReadOnly = o.plan.ReadOnly && !o.sandbox.Persistent
		cmd.Dir, cmd.Mounts = mount.Path(), []providers.Mount{mount}
	}
	cmd.Env = o.sandbox.EnvVars
	cmd.Network = o.sandbox.Network
	cmd.Timeout = t.timeout(o.sandbox)
	if cmd.OutputLimit == 0 { // a file tool's answer needs what it needs
		cmd.OutputLimit = outputLimit(o.sandbox)
	}
	cmd.Spec = specOf(o.sandbox, cmd.Mounts)
	return cmd
}

// specOf is what a box of a sandbox is made of.
func specOf(s schemas.Sandbox, mounts []providers.Mount) providers.Spec {
	return providers.Spec{
		Account: s.Account, Sandbox: s.ID, Network: s.Network, Mounts: mounts, Env: s.EnvVars, MemoryLimit: s.MemoryLimit,
		Disk: diskOf(s), EphemeralHome: s.Options["ephemeralHome"] == true,
	}
}

// keptSpecOf is what a persistent sandbox's box for a workspace is made of: as that of any of its calls.
func keptSpecOf(s schemas.Sandbox, w schemas.Workspace) providers.Spec {
	return specOf(s, []providers.Mount{mountOf(s.Account, w.ID, w.Storage)})
}

func mountOf(a schemas.AccountID, w schemas.WorkspaceID, storage string) providers.Mount {
	return providers.Mount{Namespace: schemas.Namespace(a, w), Storage: storage}
}

// reaches refuses a workspace whose files the provider does not reach where it runs: in another folder of that name they would
// be others. Records are checked for it as well, but for what the provider can do anywhere, and they change.
func (t *execution) reaches(o preparedCall) error {
	switch {
	case t.w.OnlyS3 && o.files.Storage == "":
		return schemas.Errorf(schemas.Unsupported, "workspace", "this worker serves workspaces on S3 alone (--s3-only): "+
			"give the workspace %s config.storage.provider s3", schemas.Quotable(o.files.Name))
	case o.direct != nil || o.files.Storage == "":
		return nil
	}
	profile := profileOf(t.w.Provider)
	if profile == nil {
		profile = &schemas.Profile{Name: t.w.Name}
	}
	if err := profile.Reaches(o.files, o.sandbox); err != nil {
		return err
	}
	if profile.Storage == schemas.StorageCopy && t.w.Copies == nil {
		return schemas.Errorf(schemas.Unsupported, "workspace", "this worker has no way to workspaces on S3")
	}
	return nil
}

// diskOf is the option diskGb in bytes, 0 where there is none.
func diskOf(s schemas.Sandbox) int64 {
	gb, _ := s.Options["diskGb"].(float64) // records have checked it
	return int64(gb) << 30
}

// timeout is the call's own, else its sandbox's, within the bounds of the provider and the deadline.
func (t *execution) timeout(s schemas.Sandbox) time.Duration {
	return t.timeoutOf(s, time.Duration(t.call.Timeout))
}

// timeoutOf is d, or where that is 0 the sandbox's, within the same bounds.
func (t *execution) timeoutOf(s schemas.Sandbox, d time.Duration) time.Duration {
	if d <= 0 {
		d = time.Duration(s.Timeout)
	}
	if d <= 0 {
		d = schemas.DefaultTimeout
	}
	d = min(d, schemas.MaxTimeout, max(t.left(), time.Millisecond))
	if most := providers.ProfileOf(t.w.Provider).MaxTimeout; most > 0 {
		d = min(d, time.Duration(most))
	}
	return d
}

func outputLimit(s schemas.Sandbox) int {
	if s.OutputLimit <= 0 {
		return schemas.DefaultOutputLimit
	}
	return min(s.OutputLimit, schemas.MaxOutputLimit)
}

// reserve gets the kept box of the call's sandbox, ready for use, when the provider can keep one.
func (t *execution) reserve(ctx context.Context, o *preparedCall) error {
	if !t.w.instances.Kept() {
		return nil // the profile says so, and admission has warned
	}
	o.keep = sandboxes.Key(t.call)
	return t.acquire(ctx, o)
}

// acquire gets the kept box of an order. A call that had to reserve its box again is in there once.
func (t *execution) acquire(ctx context.Context, o *preparedCall) error {
	stay, err := t.w.instances.Acquire(ctx, sandboxes.Request{
		Call: t.call, Sandbox: o.sandbox, Command: o.command, ScriptTimeout: t.timeoutOf(o.sandbox, 0),
		Interruptible: func(ctx context.Context) (context.Context, func()) { return t.w.inFlight.within(ctx, t.call.EventID()) },
		Hooked:        func() error { return t.w.at(atHooked, t.call) },
	})
	if err != nil {
		return err
	}
	t.stay.Leave()
	t.stay, o.command.Sandbox = stay, stay.Ref()
	return nil
}
