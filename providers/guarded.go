package providers

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// Guarded returns p with all its calls guarded, also those of the capabilities that [As] finds: a panic is logged and becomes an error
// with the code internal, so that a defect of a provider ends one call and not the process with all its jobs. Goroutines that a provider
// starts itself are not guarded.
func Guarded(p Provider, log *slog.Logger) Provider { return &guarded{inner: p, log: log} }

type guarded struct {
	inner Provider
	log   *slog.Logger
}

// guard recovers from a panic; each call to the provider defers it.
func (g *guarded) guard(call string, err *error) {
	if p := recover(); p != nil {
		g.log.Error("provider panicked", "operation", call, "panic", p, "stack", string(debug.Stack()))
		*err = schemas.OpErrorf(schemas.Internal, call, "the provider broke the worker's code: what it had done until then is done")
	}
}

// Unwrap returns the provider that is guarded, for [As].
func (g *guarded) Unwrap() Provider { return g.inner }

// Run implements [Provider].
func (g *guarded) Run(ctx context.Context, cmd Command) (r Result, err error) {
	defer g.guard("run", &err)
	return g.inner.Run(ctx, cmd)
}

// guardedAs returns the capability t of a guarded provider with its calls guarded. A capability without calls to anything outside the
// process, such as [Profiler], is returned unchanged.
func guardedAs[T any](g *guarded, t T) T {
	var with any
	switch any((*T)(nil)).(type) {
	case *Provider:
		with = g
	case *Reserver:
		with = guardedReserver{any(t).(Reserver), g}
	case *RunEnder:
		with = guardedEnder{any(t).(RunEnder), g}
	case *Pauser:
		with = guardedPauser{any(t).(Pauser), g}
	case *Filer:
		with = guardedFiler{any(t).(Filer), g}
	case *Lister:
		with = guardedLister{any(t).(Lister), g}
	case *JobStarter:
		with = guardedStarter{any(t).(JobStarter), g}
	case *JobController:
		with = guardedController{any(t).(JobController), g}
	}
	if with, ok := with.(T); ok {
		return with
	}
	return t
}

type guardedReserver struct {
	inner Reserver
	by    *guarded
}

func (g guardedReserver) Reserve(ctx context.Context, key string, spec Spec) (ref schemas.Ref, err error) {
	defer g.by.guard("reserve", &err)
	return g.inner.Reserve(ctx, key, spec)
}

func (g guardedReserver) Release(ctx context.Context, ref schemas.Ref) (err error) {
	defer g.by.guard("release", &err)
	return g.inner.Release(ctx, ref)
}

type guardedEnder struct {
	inner RunEnder
	by    *guarded
}

func (g guardedEnder) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) (err error) {
	defer g.by.guard("end a run", &err)
	return g.inner.EndRun(ctx, key, account, id)
}

type guardedPauser struct {
	inner Pauser
	by    *guarded
}

func (g guardedPauser) Pause(ctx context.Context, ref schemas.Ref) (err error) {
	defer g.by.guard("pause", &err)
	return g.inner.Pause(ctx, ref)
}

type guardedFiler struct {
	inner Filer
	by    *guarded
}

func (g guardedFiler) OpenWorkspace(ctx context.Context, a schemas.AccountID, m Mount) (fs workspacefs.FS, err error) {
	defer g.by.guard("open the workspace", &err)
	return g.inner.OpenWorkspace(ctx, a, m)
}

type guardedLister struct {
	inner Lister
	by    *guarded
}

func (g guardedLister) ListKept(ctx context.Context, deployment string) (boxes []KeptBox, err error) {
	defer g.by.guard("list boxes", &err)
	return g.inner.ListKept(ctx, deployment)
}

type guardedStarter struct {
	inner JobStarter
	by    *guarded
}

func (g guardedStarter) StartJob(ctx context.Context, id schemas.JobID, cmd Command, o JobOptions) (ref schemas.JobRef, err error) {
	defer g.by.guard("start a job", &err)
	return g.inner.StartJob(ctx, id, cmd, o)
}

type guardedController struct {
	inner JobController
	by    *guarded
}

func (g guardedController) JobStatus(ctx context.Context, ref schemas.JobRef) (s JobStatus, err error) {
	defer g.by.guard("status of a job", &err)
	return g.inner.JobStatus(ctx, ref)
}

func (g guardedController) JobLogs(ctx context.Context, ref schemas.JobRef, offset int64, limit int) (l JobLogs, err error) {
	defer g.by.guard("output of a job", &err)
	return g.inner.JobLogs(ctx, ref, offset, limit)
}

func (g guardedController) StopJob(ctx context.Context, ref schemas.JobRef, grace time.Duration) (err error) {
	defer g.by.guard("stop a job", &err)
	return g.inner.StopJob(ctx, ref, grace)
}

func (g guardedController) SignalJob(ctx context.Context, ref schemas.JobRef, signal string) (err error) {
	defer g.by.guard("signal a job", &err)
	return g.inner.SignalJob(ctx, ref, signal)
}

func (g guardedController) WriteJob(ctx context.Context, ref schemas.JobRef, data []byte, eof bool) (n int, err error) {
	defer g.by.guard("write to a job", &err)
	return g.inner.WriteJob(ctx, ref, data, eof)
}
