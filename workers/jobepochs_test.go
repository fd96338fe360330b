package workers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// listingHost is a jobHost that lists its boxes.
type listingHost struct{ *jobHost }

// ListKept lists the boxes, whatever their deployment.
func (h listingHost) ListKept(context.Context, string) ([]providers.KeptBox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var boxes []providers.KeptBox
	for key, ref := range h.boxes {
		boxes = append(boxes, providers.KeptBox{Ref: ref, Key: key, Account: testAccount, State: providers.BoxRunning})
	}
	return boxes, nil
}

// wantReplaced fails unless the job of a call has failed because its box was created again.
func (w *world) wantReplaced(call schemas.Call) {
	w.t.Helper()
	done := w.ended(call)
	because := strings.Contains(done.Reason, "made again")
	if done.State != schemas.JobFailed || done.Code != schemas.Interrupted || !because || done.ExitCode != nil {
		w.t.Errorf("it ended as %+v, want it failed with its box", done)
	}
}

// Each process that notices that a job's box was replaced reports the same result.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestAJobWhoseBoxWasMadeAnewHasFailed(t *testing.T) {
	for name, notice := range map[string]func(*world, *jobHost) schemas.Call{
		"the manager of its worker, after another call": func(w *world, h *jobHost) schemas.Call {
			w.employ(h)
			job := w.publish(w.background("one", "sleep 10h"))
			w.want(job, schemas.StatusCompleted)
			h.lose()
			w.want(w.publish(w.call("two", schemas.ToolBash)), schemas.StatusCompleted)
			return job
		},
		"the provider, before the next box is on record": func(w *world, h *jobHost) schemas.Call {
			h.tells = true
			w.employ(h)
			job := w.publish(w.background("one", "sleep 10h"))
			w.want(job, schemas.StatusCompleted)
			h.replace()
			return job
		},
		"a worker that takes over, where whoever made the next box died before it was on record": func(w *world, h *jobHost) schemas.Call {
			job := w.launched(h, "sleep 10h")
			h.lose()
			if _, err := h.Reserve(w.t.Context(), schemas.BoxKey(job.Account, job.Sandbox, job.Workspace), providers.Spec{}); err != nil {
				w.t.Fatal(err)
			}
			w.employ(listingHost{h})
			return job
		},
		"a worker that takes over, where whoever made the next box died before it had settled anything": func(w *world, h *jobHost) schemas.Call {
			job := w.launched(h, "sleep 10h")
			h.lose()
			died := make(chan *employed, 1)
			w.employ(h, w.dieAt(atFinished, died))
			w.want(w.publish(w.call("two", schemas.ToolBash)), schemas.StatusCompleted)
			<-died
			if _, err := lifecycle.FindCompletion(w.t.Context(), w.bus, job.Account, job.Job); schemas.CodeOf(err) != schemas.NotFound {
				w.t.Fatalf("it has settled before its box was looked for: %v", err)
			}
			w.employ(h)
			return job
		},
		"a worker that has taken over a box which ended with its worker": func(w *world, h *jobHost) schemas.Call {
			h.tied = true
			job := w.launched(h, "sleep 10h")
			h.lose()
			next := newJobHost()
			next.tied, next.made = true, h.made
			w.closers = append(w.closers, next.close)
			w.employ(next)
			w.want(w.publish(w.call("two", schemas.ToolBash)), schemas.StatusCompleted)
			return job
		},
	} {
		t.Run(name, func(t *testing.T) {
			inJobWorld(t, func(_ *testing.T, w *world, h *jobHost) {
				w.settleJobs()
				w.wantReplaced(notice(w, h))
			})
		})
	}
}

// Where no worker is left that could look, it is the rescuer that settles it.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestTheRescuerKnowsARecreatedBox(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := schemas.Ref{ID: "box", Epoch: "1"}
		in := func(ws schemas.WorkspaceID) func(*schemas.Job) {
			return func(j *schemas.Job) {
				j.EndsWithWorker, j.Provider, j.Sandbox, j.Workspace, j.Ref.Sandbox = true, "fake", "sb_1", ws, old
			}
		}
		anew, same := w.job(nil, "1", at("dead", in("ws_1"))), w.job(nil, "2", at("dead", in("ws_2")))
		gone := w.job(nil, "3", at("dead", in("ws_3")))
		for ws, ref := range map[schemas.WorkspaceID]schemas.Ref{"ws_1": {ID: "box", Epoch: "2"}, "ws_2": old} {
			i := schemas.Instance{Account: anew.Account, Sandbox: "sb_1", Workspace: ws, Provider: "fake", State: schemas.InstanceReady, Ref: ref}
			if _, err := lifecycle.OpenInstances(w.bus).Put(t.Context(), i.Key(), i); err != nil {
				t.Fatal(err)
			}
		}
		w.sweepUp()
		time.Sleep(2 * time.Minute)
		if r := w.record(anew.ID); r.State != schemas.JobFailed || r.Completion.Code != schemas.Interrupted {
			t.Errorf("a job whose box was made anew is %s: %+v", r.State, r.Completion)
		}
		for _, j := range []schemas.Job{same, gone} {
			if r := w.record(j.ID); r.State != schemas.JobLost || r.Completion.Code != "" {
				t.Errorf("a job whose box has no successor is %s: %+v", r.State, r.Completion)
			}
		}
	})
}
