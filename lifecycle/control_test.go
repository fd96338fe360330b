package lifecycle_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestControlJobAnswersFromTheRecord(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		code := 3
		end := &schemas.Completion{State: schemas.JobFailed, ExitCode: &code, Logs: "23456789", LogBytes: 10}
		all, only := schemas.JobActions(), []schemas.JobAction{schemas.JobActionStatus}
		for _, j := range []schemas.Job{
			{ID: "job_waiting", State: schemas.JobWaiting},
			{ID: "job_running", State: schemas.JobRunning, Actions: all, Worker: "worker_gone"},
			{ID: "job_unheld", State: schemas.JobRunning, Actions: all},
			{ID: "job_poor", State: schemas.JobRunning, Actions: only, Worker: "worker_gone"},
			{ID: "job_failed", State: schemas.JobFailed, Actions: all, Worker: "worker_gone", Completion: end},
			{ID: "job_poorend", State: schemas.JobFailed, Actions: only, Completion: end},
			{ID: "job_never", State: schemas.JobUnstarted, Completion: &schemas.Completion{State: schemas.JobUnstarted}},
		} {
			j.Account = "acct_1"
			if _, err := lifecycle.OpenJobs(b).Create(t.Context(), j.Key(), j, 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			job    schemas.JobID
			cmd    schemas.JobCommand
			code   schemas.Code
			words  string
			data   string
			offset int64
		}{
			{job: "job_none", cmd: schemas.JobCommand{Action: "status"}, code: schemas.NotFound},
			{job: "job_running", cmd: schemas.JobCommand{Action: "dance"}, code: schemas.Invalid, words: "dance"},
			{job: "job_waiting", cmd: schemas.JobCommand{Action: "status"}},
			{job: "job_waiting", cmd: schemas.JobCommand{Action: "stop"}, code: schemas.Conflict,
				words: "not been started yet: there is nothing to stop"},
			{job: "job_never", cmd: schemas.JobCommand{Action: "logs"}, code: schemas.Conflict, words: "never started"},
			{job: "job_running", cmd: schemas.JobCommand{Action: "logs"}, code: schemas.Unavailable, words: "worker is away"},
			{job: "job_running", cmd: schemas.JobCommand{Action: "stop"}, code: schemas.Unavailable},
			{job: "job_unheld", cmd: schemas.JobCommand{Action: "stop"}, code: schemas.Unavailable},
			{job: "job_poor", cmd: schemas.JobCommand{Action: "status"}},
			{job: "job_poor", cmd: schemas.JobCommand{Action: "logs"}, code: schemas.Unsupported, words: "it offers status"},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "status"}},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "stop"}, code: schemas.Conflict, words: "it is failed"},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "stdin"}, code: schemas.Conflict},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "logs"}, data: "23456789", offset: 2},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "logs", Offset: 4, Limit: 3}, data: "456", offset: 4},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "logs", Offset: -1, Limit: 3}, data: "789", offset: 7},
			{job: "job_failed", cmd: schemas.JobCommand{Action: "logs", Offset: 99}, offset: 10},
			{job: "job_poorend", cmd: schemas.JobCommand{Action: "logs", Limit: 1 << 40}, data: "23456789", offset: 2},
		} {
			c.cmd.Account, c.cmd.Job = "acct_1", c.job
			got, err := lifecycle.ControlJob(t.Context(), b, c.cmd)
			if schemas.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s %s: %v, want code %q and %q", c.cmd.Action, c.job, err, c.code, c.words)
			}
			if string(got.Data) != c.data || got.Offset != c.offset {
				t.Errorf("%s %s from %d: %q at %d, want %q at %d", c.cmd.Action, c.job, c.cmd.Offset, got.Data, got.Offset, c.data, c.offset)
			}
		}
	})
}

func TestControlJobFollowsTheJobToItsNewWorker(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		j := schemas.Job{ID: "job_1", Account: "acct_1", State: schemas.JobRunning, Actions: schemas.JobActions(), Worker: "worker_a"}
		rev, err := lifecycle.OpenJobs(b).Create(t.Context(), j.Key(), j, 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		heard := make(chan struct{}, 2)
		go func() {
			ended <- b.Answer(ctx, streams.JobControlSubject("worker_a"), func() { heard <- struct{}{} },
				func(ctx context.Context, _ []byte) ([]byte, error) {
					moved := j
					moved.Worker = "worker_b"
					if _, err := lifecycle.OpenJobs(b).Update(ctx, j.Key(), moved, rev); err != nil {
						return nil, err
					}
					return nil, schemas.OpErrorf(schemas.Unavailable, "job", "moved")
				})
		}()
		go func() {
			ended <- b.Answer(ctx, streams.JobControlSubject("worker_b"), func() { heard <- struct{}{} },
				func(_ context.Context, data []byte) ([]byte, error) {
					var cmd schemas.JobCommand
					if err := json.Unmarshal(data, &cmd); err != nil || string(cmd.Data) != "typed" {
						return nil, schemas.OpErrorf(schemas.Invalid, "test", "%q, %v", data, err)
					}
					return json.Marshal(schemas.JobReply{Running: true, Written: 5})
				})
		}()
		<-heard
		<-heard
		got, err := lifecycle.ControlJob(t.Context(), b,
			schemas.JobCommand{Account: "acct_1", Job: "job_1", Action: schemas.JobActionStdin, Data: []byte("typed")})
		if err != nil || got.Written != 5 || !got.Running {
			t.Errorf("%+v, %v; want the answer of the worker that has it now", got, err)
		}
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestControlJobDoesNotWaitForAWorkerThatHangs(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		j := schemas.Job{
			ID: "job_1", Account: "acct_1", State: schemas.JobCompleted, Actions: schemas.JobActions(), Worker: "worker_a",
			Completion: &schemas.Completion{State: schemas.JobCompleted, Logs: "kept", LogBytes: 4},
		}
		if _, err := lifecycle.OpenJobs(b).Create(t.Context(), j.Key(), j, 0); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		heard, ended, hang := make(chan struct{}), make(chan error, 1), make(chan struct{})
		go func() {
			ended <- b.Answer(ctx, streams.JobControlSubject("worker_a"), func() { close(heard) }, func(context.Context, []byte) ([]byte, error) {
				<-hang
				return nil, nil
			})
		}()
		<-heard
		began := time.Now()
		got, err := lifecycle.ControlJob(t.Context(), b, schemas.JobCommand{Account: "acct_1", Job: "job_1", Action: schemas.JobActionLogs})
		if err != nil || string(got.Data) != "kept" || time.Since(began) > 5*time.Second {
			t.Errorf("%+v after %s, %v; want what the completion keeps, soon", got, time.Since(began), err)
		}
		close(hang)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
