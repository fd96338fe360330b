package workers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// jobOutputsSlots is how many jobs' artifacts a worker collects at a time, of one account three quarters; jobOutputsWaiting how many
	// wait for their turns. It is so for those that ask this worker and for those that ask any of the provider's.
	jobOutputsSlots, jobOutputsWaiting = 8, 64
	// clockTick is by how much the time of a file may be behind the clock.
	clockTick = 10 * time.Millisecond
)

var errSettled = schemas.OpErrorf(schemas.Conflict, "artifacts", "the job has settled: no artifact is added to it")

// jobOutputs returns where a background call leaves artifacts; nil: it cannot have any here. Code: invalid.
func (s *workerRun) jobOutputs(c schemas.Call, sandbox schemas.Sandbox) (*schemas.JobOutputs, error) {
	if c.Workspace == "" {
		return nil, nil //nolint:nilnil // it says so
	}
	if _, err := schemas.ParseArtifactPatterns("artifacts", c.Artifacts); err != nil {
		return nil, err
	}
	if _, err := schemas.ParseArtifactPatterns("config.artifacts", sandbox.Artifacts); err != nil {
		return nil, err
	}
	o := &schemas.JobOutputs{Patterns: slices.Concat(sandbox.Artifacts, c.Artifacts)}
	if _, ok := providers.As[providers.Filer](s.Provider); !ok && len(o.Patterns) == 0 { // as for calls in the foreground
		return nil, nil //nolint:nilnil // it says so
	}
	return o, o.Validate()
}

// serveJobOutputs collects the artifacts of ended jobs, for the settlers that make their records final, until ctx ends.
func (s *workerRun) serveJobOutputs(ctx context.Context) {
	again := wait.Backoff{First: time.Second, Most: 10 * time.Second}
	var parts sync.WaitGroup
	for _, subject := range []string{streams.ArtifactsSubjectOf(s.me()), streams.ArtifactsSubject(s.Name)} {
		parts.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				err := s.Bus.Share(ctx, subject, streams.Sharing{
					Slots: jobOutputsSlots, Each: jobOutputsSlots * 3 / 4, Waiting: jobOutputsWaiting, Account: accountOfJobOutputs,
				}, func(asked context.Context, message []byte) ([]byte, error) {
					return s.collectUntil(ctx, asked, message)
				})
				if err != nil && ctx.Err() == nil {
					s.Log.Warn("requests for artifacts of jobs not subscribed, retrying", "error", err)
					again.Sleep(ctx, n)
				}
			}
		})
	}
	parts.Wait()
}

// accountOfJobOutputs returns the account of a request, empty if the request is not understood.
func accountOfJobOutputs(message []byte) schemas.AccountID {
	q, err := schemas.DecodeJobArtifactsRequest(message)
	if err != nil {
		return ""
	}
	return q.Account
}

// collectUntil is collectJob by a worker that runs until stopping ends. It leaves the rest to another worker.
func (s *workerRun) collectUntil(stopping, asked context.Context, message []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	defer context.AfterFunc(stopping, cancel)()
	answer, err := s.collectJob(ctx, message)
	if stopping.Err() != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "artifacts", "the worker stops: ask another", err)
	}
	return answer, err
}

// collectJob stores and announces the artifacts of an ended job, and answers with them. It may be repeated, also at another worker: stored
// artifacts are found. Codes: not_found, conflict (the job's record is final), unavailable.
func (s *workerRun) collectJob(ctx context.Context, message []byte) ([]byte, error) {
	q, err := schemas.DecodeJobArtifactsRequest(message)
	if err != nil {
		return nil, err
	}
	p, err := lifecycle.FindJob(ctx, s.Bus, q.Account, q.Job)
	switch {
	case err != nil:
		return nil, err
	case p.Value.State.Final():
		return nil, errSettled
	case p.Value.Outputs == nil:
		return schemas.EncodeJSON(schemas.JobArtifacts{})
	}
	found, err := s.outputsOfJob(ctx, p.Value)
	if err != nil {
		return nil, err
	}
	return schemas.EncodeJSON(found)
}

// outputsOfJob is collectJob for a job with its record.
func (s *workerRun) outputsOfJob(ctx context.Context, j schemas.Job) (found schemas.JobArtifacts, err error) {
	files, err := s.Specs.Workspace(ctx, j.Account, j.Workspace)
	switch code := schemas.CodeOf(err); {
	case err == nil:
	case code.Retryable():
		return found, fmt.Errorf("workspace of the job: %w", err)
	default:
		return found, nil // its record is gone, and with it its files
	}
	if files.Storage != "" && j.Worker != s.me() && providers.ProfileOf(s.Provider).Storage == schemas.StorageCopy {
		return found, schemas.OpErrorf(schemas.Unavailable, "artifacts", "the worker that manages the job has the copy of its files")
	}
	places, err := schemas.ParseArtifactPatterns("artifacts", j.Outputs.Patterns)
	if err != nil {
		return found, err
	}
	c := schemas.Call{
		ID: j.Call, Account: j.Account, Agent: j.Agent, Conversation: j.Conversation, Turn: j.Turn, Tool: j.Tool, Provider: j.Provider,
		Workspace: j.Workspace, Sandbox: j.Sandbox,
	}
	o := s.outputsIn(c, places, files, func() error { return s.unsettled(ctx, j) })
	defer o.close()
	o.before.Since = j.Launched.Add(time.Since(s.Bus.Now()) - clockTick)
	var r schemas.Result
	if err := o.recover(ctx, &r, s.Bus.AbsentAt(j.Launched)); err != nil {
		return found, err
	}
	return schemas.JobArtifacts{Artifacts: r.Artifacts, SkippedArtifacts: r.SkippedArtifacts}, nil
}

// unsettled returns an error if no artifacts may be added to a job any more, because its record is final or the settler that asked has
// stopped waiting.
func (s *workerRun) unsettled(ctx context.Context, j schemas.Job) error {
	if err := streams.StillAwaited(ctx); err != nil {
		return err
	}
	p, err := lifecycle.FindJob(ctx, s.Bus, j.Account, j.ID)
	if err == nil && p.Value.State.Final() {
		return errSettled
	}
	return err
}
