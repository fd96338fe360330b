package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/filesync"
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

// close closes what was opened for a call.
func (o preparedCall) close() error {
	if o.direct == nil {
		return nil
	}
	return o.direct.Close()
}

// preparation finds and takes what one call needs before its start: records, the command, files on S3, and the persistent instance.
type preparation struct {
	w           *workerRun
	call        schemas.Call
	sideEffects bool
	due         time.Time       // the call's deadline
	stay        *sandboxes.Stay // in the persistent instance of the call; nil: in none
}

// left is how much time the call has until its deadline.
func (p *preparation) left() time.Duration { return p.due.Sub(p.w.Bus.Now()) }

// compile finds the records that the call names and makes its command.
func (p *preparation) compile(ctx context.Context) (o preparedCall, err error) {
	c := p.call
	if unfit := c.Unfit(); unfit != nil {
		return o, unfit
	}
	if o.input, err = c.TypedInput(); err != nil {
		return o, err
	}
	if o.sandbox, err = p.w.sandboxOf(ctx, c); err != nil {
		return o, fmt.Errorf("sandbox of the call: %w", err)
	}
	if err := guarded(o); err != nil {
		return o, err
	}
	if c.Workspace != "" {
		if o.files, err = p.w.Specs.Workspace(ctx, c.Account, c.Workspace); err != nil {
			return o, fmt.Errorf("workspace of the call: %w", err)
		}
		if o.direct, err = p.openDirect(ctx, o.files); err != nil {
			return o, err
		}
		if err := p.reaches(o); err != nil {
			return o, errors.Join(err, o.close())
		}
	}
	if o.plan, err = tools.Compile(c, o.input); err != nil {
		return o, fmt.Errorf("compile the call: %w", err)
	}
	o.command = p.command(o)
	if c.Tool == schemas.ToolLoadSkill {
		o.command.Timeout = p.timeoutOf(o.sandbox, loadWithin)
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

// sandboxOf finds the rules of the call's box. Without a sandbox the call only reads: the box reaches nothing
// and has the usual limits. Without a workspace there is nothing that a kept box could be kept for.
func (s *workerRun) sandboxOf(ctx context.Context, c schemas.Call) (schemas.Sandbox, error) {
	if c.Sandbox == "" {
		return schemas.Sandbox{Account: c.Account, Provider: c.Provider, Network: schemas.Network{Mode: schemas.DenyAll}}, nil
	}
	found, err := s.Specs.Sandbox(ctx, c.Account, c.Sandbox)
	found.Persistent = found.Persistent && c.Workspace != ""
	return found, err
}

// openDirect opens a workspace on S3 itself for a call without a sandbox, which only reads; nil: the provider has the files, or shows them
// fresher than the bucket has them, and nothing was said against that.
func (p *preparation) openDirect(ctx context.Context, w schemas.Workspace) (workspacefs.FS, error) {
	if p.call.Sandbox != "" || w.Storage == "" || p.w.Reader == nil || p.sideEffects {
		return nil, nil //nolint:nilnil // it says so
	}
	if !p.call.Direct && w.Bucket.Name == "" && providers.ProfileOf(p.w.Provider).ReadsMounted { // of the operator's bucket alone
		return nil, nil //nolint:nilnil // it says so
	}
	return p.w.Reader(ctx, w)
}

// command is the run of an order, in a box kept to the sandbox's rules.
func (p *preparation) command(o preparedCall) providers.Command {
	cmd := o.plan.Command()
	if p.sideEffects { // it is started once; others may be started by several workers, and none must end another's
		cmd.ID = runID(p.call)
	}
	if c := p.call; c.Workspace != "" {
		mount := mountOf(c.Account, c.Workspace, o.files.Storage)
		mount.ReadOnly = o.plan.ReadOnly && !o.sandbox.Persistent
		cmd.Dir, cmd.Mounts = mount.Path(), []providers.Mount{mount}
	}
	cmd.Env = o.sandbox.EnvVars
	cmd.Network = o.sandbox.Network
	cmd.Timeout = p.timeout(o.sandbox)
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
func (p *preparation) reaches(o preparedCall) error {
	switch {
	case p.w.OnlyS3 && o.files.Storage == "":
		return schemas.OpErrorf(schemas.Unsupported, "workspace", "this worker serves workspaces on S3 alone (--s3-only): "+
			"give the workspace %s config.storage.provider s3", schemas.Quotable(o.files.Name))
	case o.direct != nil || o.files.Storage == "":
		return nil
	}
	profile := profileOf(p.w.Provider)
	if profile == nil {
		profile = &schemas.Profile{Name: p.w.Name}
	}
	if err := profile.Reaches(o.files, o.sandbox); err != nil {
		return err
	}
	if profile.Storage == schemas.StorageCopy && p.w.Copies == nil {
		return schemas.OpErrorf(schemas.Unsupported, "workspace", "this worker has no way to workspaces on S3")
	}
	return nil
}

// diskOf is the option diskGb in bytes, 0 where there is none.
func diskOf(s schemas.Sandbox) int64 {
	gb, _ := s.Options["diskGb"].(float64) // records have checked it
	return int64(gb) << 30
}

// timeout is the call's own, else its sandbox's, within the bounds of the provider and the deadline.
func (p *preparation) timeout(s schemas.Sandbox) time.Duration {
	return p.timeoutOf(s, time.Duration(p.call.Timeout))
}

// timeoutOf is d, or where that is 0 the sandbox's, within the same bounds.
func (p *preparation) timeoutOf(s schemas.Sandbox, d time.Duration) time.Duration {
	if d <= 0 {
		d = time.Duration(s.Timeout)
	}
	if d <= 0 {
		d = schemas.DefaultTimeout
	}
	d = min(d, schemas.MaxTimeout, max(p.left(), time.Millisecond))
	if most := providers.ProfileOf(p.w.Provider).MaxTimeout; most > 0 {
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

// copyIn brings the files of a workspace on S3 into the copy that the provider's sandboxes see, and begins their use; nil: there is none.
func (p *preparation) copyIn(ctx context.Context, o preparedCall) (*use, error) {
	if o.files.Storage == "" || o.direct != nil || p.w.Copies == nil || providers.ProfileOf(p.w.Provider).Storage != schemas.StorageCopy {
		return nil, nil //nolint:nilnil // the nil use works
	}
	var (
		copied *filesync.Use
		report filesync.Report
		err    error
	)
	if p.call.Job != "" {
		copied, report, err = p.w.Copies.BeginJob(ctx, o.files, p.call.Job)
	} else {
		copied, report, err = p.w.Copies.Begin(ctx, o.files, p.call.Tool.Writes() || o.sandbox.Persistent) // hooks may write too
	}
	if err != nil {
		return nil, fmt.Errorf("bring the files in: %w", err)
	}
	return &use{copied: copied, notices: report.Notices}, nil
}

// reserve gets the kept box of the call's sandbox, ready for use, when the provider can keep one.
func (p *preparation) reserve(ctx context.Context, o *preparedCall) error {
	if !p.w.instances.Kept() {
		return nil // the profile says so, and admission has warned
	}
	o.keep = sandboxes.Key(p.call)
	return p.acquire(ctx, o)
}

// acquire gets the kept box of an order. A call that had to reserve its box again is in there once.
func (p *preparation) acquire(ctx context.Context, o *preparedCall) error {
	stay, err := p.w.instances.Acquire(ctx, sandboxes.Request{
		Call: p.call, Sandbox: o.sandbox, Command: o.command, ScriptTimeout: p.timeoutOf(o.sandbox, 0),
		Interruptible: func(ctx context.Context) (context.Context, func()) { return p.w.inFlight.within(ctx, p.call.EventID()) },
		Hooked:        func() error { return p.w.at(atHooked, p.call) },
	})
	if err != nil {
		return err
	}
	p.stay.Leave()
	p.stay, o.command.Sandbox = stay, stay.Ref()
	return nil
}

// leave ends the stay in the persistent instance, if there is one.
func (p *preparation) leave() { p.stay.Leave() }
