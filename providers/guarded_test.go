package providers_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// broken is a provider that panics in every method.
type broken struct{}

func (broken) Run(context.Context, providers.Command) (providers.Result, error) { panic("run") }
func (broken) Reserve(context.Context, string, providers.Spec) (schemas.Ref, error) {
	panic("reserve")
}
func (broken) Release(context.Context, schemas.Ref) error                      { panic("release") }
func (broken) EndRun(context.Context, string, schemas.AccountID, string) error { panic("end") }
func (broken) Pause(context.Context, schemas.Ref) error                        { panic("pause") }
func (broken) ListKept(context.Context, string) ([]providers.KeptBox, error)   { panic("list") }
func (broken) JobStatus(context.Context, schemas.JobRef) (providers.JobStatus, error) {
	panic("status")
}
func (broken) JobLogs(context.Context, schemas.JobRef, int64, int) (providers.JobLogs, error) {
	panic("logs")
}
func (broken) StopJob(context.Context, schemas.JobRef, time.Duration) error { panic("stop") }
func (broken) SignalJob(context.Context, schemas.JobRef, string) error      { panic("signal") }
func (broken) WriteJob(context.Context, schemas.JobRef, []byte, bool) (int, error) {
	panic("write")
}
func (broken) StartJob(context.Context, schemas.JobID, providers.Command, providers.JobOptions) (schemas.JobRef, error) {
	panic("start")
}
func (broken) OpenWorkspace(context.Context, schemas.AccountID, providers.Mount) (workspacefs.FS, error) {
	panic("open")
}

// capability returns a capability that a guarded provider must have.
func capability[T any](t *testing.T, p providers.Provider) T {
	t.Helper()
	c, ok := providers.As[T](p)
	if !ok {
		t.Fatalf("a guarded provider has lost %T", *new(T))
	}
	return c
}

// TestAPanicOfAProviderIsAnError: a panic becomes an error, in every method and with every wrapper.
//
//guarantee:one-result-for-every-accepted-call
func TestAPanicOfAProviderIsAnError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := providers.Guarded(timed{broken{}}, slog.New(slog.DiscardHandler))
	reserver, control := capability[providers.Reserver](t, p), capability[providers.JobController](t, p)
	for name, call := range map[string]func() error{
		"run":            func() error { _, err := p.Run(ctx, providers.Command{}); return err },
		"run by As":      func() error { _, err := capability[providers.Provider](t, p).Run(ctx, providers.Command{}); return err },
		"reserve":        func() error { _, err := reserver.Reserve(ctx, "k", providers.Spec{}); return err },
		"release":        func() error { return reserver.Release(ctx, schemas.Ref{}) },
		"end a run":      func() error { return capability[providers.RunEnder](t, p).EndRun(ctx, "k", "acct_1", "id") },
		"pause":          func() error { return capability[providers.Pauser](t, p).Pause(ctx, schemas.Ref{}) },
		"list":           func() error { _, err := capability[providers.Lister](t, p).ListKept(ctx, "d"); return err },
		"status":         func() error { _, err := control.JobStatus(ctx, schemas.JobRef{}); return err },
		"logs":           func() error { _, err := control.JobLogs(ctx, schemas.JobRef{}, 0, 1); return err },
		"stop":           func() error { return control.StopJob(ctx, schemas.JobRef{}, 0) },
		"signal":         func() error { return control.SignalJob(ctx, schemas.JobRef{}, "TERM") },
		"write":          func() error { _, err := control.WriteJob(ctx, schemas.JobRef{}, nil, true); return err },
		"start":          func() error { return startOf(ctx, capability[providers.JobStarter](t, p)) },
		"open workspace": func() error { return openOf(ctx, capability[providers.Filer](t, p)) },
	} {
		if err := call(); !errors.Is(err, schemas.ErrInternal) {
			t.Errorf("%s: %v; want an internal error", name, err)
		}
	}
}

func startOf(ctx context.Context, s providers.JobStarter) error {
	_, err := s.StartJob(ctx, "job_1", providers.Command{}, providers.JobOptions{})
	return err
}

func openOf(ctx context.Context, f providers.Filer) error {
	_, err := f.OpenWorkspace(ctx, "acct_1", providers.Mount{})
	return err
}

// TestAGuardedProviderHasWhatItWraps: a guarded provider has the capabilities of the one that it wraps, no more and no less, with the same
// results.
func TestAGuardedProviderHasWhatItWraps(t *testing.T) {
	t.Parallel()
	p := providers.Guarded(fixed{}, slog.New(slog.DiscardHandler))
	if _, ok := providers.As[providers.JobController](p); ok {
		t.Error("it has got a capability that its provider lacks")
	}
	if ref, err := capability[providers.Reserver](t, p).Reserve(t.Context(), "k", providers.Spec{}); err != nil || ref.ID != "k" {
		t.Errorf("reserved %+v, %v", ref, err)
	}
	if _, ok := providers.As[fixed](p); !ok {
		t.Error("its provider cannot be found")
	}
}
