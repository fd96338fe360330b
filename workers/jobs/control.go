package jobs

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	stopWithin = 25 * time.Second // for the end of one job, below what those who ask for it wait
	stopGrace  = 2 * time.Second  // from TERM to KILL
	// maxReasons bounds the reasons of stops that are remembered.
	maxReasons = 10_000
)

// answer serves requests about this worker's jobs until ctx ends.
func (m *Manager) answer(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.options.Bus.Answer(ctx, streams.JobControlSubject(m.me()), nil, m.control)
		if err != nil {
			m.options.Log.Warn("job control subject not served, retrying", "error", err)
		}
		wait.Sleep(ctx, time.Second)
	}
}

// control carries out a request about a job of this worker.
func (m *Manager) control(ctx context.Context, data []byte) ([]byte, error) {
	var cmd schemas.JobCommand
	if err := json.Unmarshal(data, &cmd); err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "job", "the request is not understood", err)
	}
	p, err := lifecycle.FindJob(ctx, m.options.Bus, cmd.Account, cmd.Job)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Value.Worker != m.me():
		return nil, schemas.OpErrorf(schemas.Unavailable, "job", "the job has moved to another worker: try again")
	case m.controller == nil:
		return nil, schemas.OpErrorf(schemas.Unsupported, "job", "this sandbox has no live job control")
	}
	if err := streams.StillAwaited(ctx); err != nil {
		return nil, err
	}
	reply, err := m.carryOut(ctx, p.Value, cmd)
	if err != nil {
		return nil, err
	}
	return json.Marshal(reply)
}

func (m *Manager) carryOut(ctx context.Context, j schemas.Job, cmd schemas.JobCommand) (r schemas.JobReply, err error) {
	within := probeWithin
	if cmd.Action == schemas.JobActionStop {
		within = stopWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch cmd.Action {
	case schemas.JobActionStatus:
		s, err := m.controller.JobStatus(ctx, j.Ref)
		return schemas.JobReply{Running: s.Running, Size: max(s.LogBytes, s.End.LogBytes), Ended: err == nil && !s.Running}, err
	case schemas.JobActionLogs:
		limit := cmd.Limit
		if limit <= 0 || limit > schemas.MaxJobLogPage {
			limit = schemas.MaxJobLogPage
		}
		l, err := m.controller.JobLogs(ctx, j.Ref, max(cmd.Offset, -1), limit)
		return schemas.JobReply{Running: !l.Ended, Data: l.Data, Offset: l.Offset, Size: l.Size, Ended: l.Ended}, err
	case schemas.JobActionStop:
		return schemas.JobReply{Ended: true}, m.stop(ctx, j, cmd.Reason)
	case schemas.JobActionStdin:
		n, err := m.controller.WriteJob(ctx, j.Ref, cmd.Data, cmd.EOF)
		return schemas.JobReply{Running: true, Written: n}, err
	case schemas.JobActionSignal:
		if !slices.Contains(schemas.JobSignals(), cmd.Signal) {
			return r, schemas.Invalidf("signal", "%q is unknown", schemas.Quotable(cmd.Signal))
		}
		return schemas.JobReply{Running: true}, m.controller.SignalJob(ctx, j.Ref, cmd.Signal)
	}
	return r, schemas.Invalidf("action", "%q is unknown", schemas.Quotable(string(cmd.Action)))
}

// stop ends a job on request and reports its end at once.
func (m *Manager) stop(ctx context.Context, j schemas.Job, reason string) error {
	if reason == "" {
		reason = "somebody asked for its end"
	}
	m.mu.Lock()
	if len(m.reasons) < maxReasons {
		m.reasons[j.Key()] = reason
	}
	m.mu.Unlock()
	if err := m.controller.StopJob(ctx, j.Ref, stopGrace); err != nil {
		return err
	}
	probe, status := m.refresh(ctx, j)
	if probe != probeEnded {
		return nil
	}
	return m.end(ctx, j, status.End, reason)
}

// stopReason returns why a stop was requested here; empty if it was not.
func (m *Manager) stopReason(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reasons[key]
}
