package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// filingHost is a jobHost whose workers reach the files.
type filingHost struct {
	*jobHost

	open func(context.Context) // before each time that the files are opened; nil: nothing
}

func (h filingHost) OpenWorkspace(ctx context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if h.open != nil {
		h.open(ctx)
	}
	return safefs.Open(h.dir, safefs.Options{ReadOnly: m.ReadOnly})
}

// inOutputsWorld is inJobWorld with a folder for the jobs.
func inOutputsWorld(t *testing.T, f func(*testing.T, *world, filingHost)) {
	t.Helper()
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		h.dir, h.tells = t.TempDir(), true
		f(t, w, filingHost{jobHost: h})
	})
}

// wantLeft waits until a job has settled and fails unless its record, job.finished and the conversation list what it has left, and each
// was announced once, with its bytes, before job.finished.
func (w *world) wantLeft(c schemas.Call, want ...string) schemas.Completion {
	w.t.Helper()
	var end *schemas.Completion
	w.until("the job has settled, and its conversation has that", func() bool {
		end = w.recordOf(c).Completion
		return end != nil && slices.ContainsFunc(w.events(c), func(e schemas.Event) bool { return e.ID == finishedID(c.Job) })
	})
	var announced, listed []string
	var result schemas.JobResult
	finished := false
	for _, e := range w.events(c) {
		switch {
		case e.ID == finishedID(c.Job):
			finished = true
			if err := schemas.DecodeStrict(e.Data, len(e.Data), &result); err != nil {
				w.t.Fatal(err)
			}
		case e.Type == schemas.ArtifactCreated:
			var a schemas.Artifact
			if err := schemas.DecodeStrict(e.Data, len(e.Data), &a); err != nil || finished {
				w.t.Fatalf("%s: %v, behind the job's end: %t", e.Data, err, finished)
			}
			if a.Call == c.ID {
				announced = append(announced, a.Path+"="+w.bytesOf(c, a))
			}
		}
	}
	for _, a := range end.Artifacts {
		listed = append(listed, a.Path+"="+w.bytesOf(c, a))
	}
	slices.Sort(announced)
	slices.Sort(listed)
	if !slices.Equal(announced, want) || !slices.Equal(listed, want) || !slices.Equal(result.Artifacts, end.Artifacts) {
		w.t.Errorf("announced %q, the record lists %q (skipped %+v), job.finished %+v, want %q", announced, listed, end.SkippedArtifacts,
			result.Artifacts, want)
	}
	return *end
}

// TestArtifactsOfAJob: what a background job leaves is stored and announced before job.finished, which lists it with the follow-up. The
// result of its call has none.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestArtifactsOfAJob(t *testing.T) {
	inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
		w.specs.name("reports/*.pdf")
		w.specs.persistent = true
		w.settleJobs()
		w.employ(h)
		c := w.publish(w.background("one", "sleep 1m\nwrite outputs/a.csv 1,2\nwrite reports/b.pdf pdf\nwrite c.txt text\nwrite other x\nexit 3",
			func(c *schemas.Call) { c.Artifacts = []string{"*.txt"} }))
		r := w.want(c, schemas.StatusCompleted)
		end := w.wantLeft(c, "c.txt=text", "outputs/a.csv=1,2", "reports/b.pdf=pdf")
		if len(r.Artifacts)+len(r.SkippedArtifacts)+len(end.SkippedArtifacts) != 0 || end.State != schemas.JobFailed || w.recordOf(c).Outputs != nil {
			t.Errorf("the call has %+v, the job %+v", r, end)
		}
		w.until("its follow-up is there", func() bool { return slices.Contains(w.types(c), schemas.FollowUpCreated) })
		for _, e := range w.events(c) {
			if e.Type == schemas.FollowUpCreated && !strings.Contains(string(e.Data), `[kept as artifacts: \"c.txt\", \"outputs/a.csv\"`) {
				t.Errorf("the follow-up says %s", e.Data)
			}
		}
		if s := w.want(w.publish(w.ask("status", c, "")), schemas.StatusCompleted); !strings.Contains(s.Text, `"reports/b.pdf"`) {
			t.Errorf("async_status says %q", s.Text)
		}
		// One that leaves nothing, and one whose call and sandbox name more than its record has room for.
		nothing := w.publish(w.background("two", "print x"))
		w.want(nothing, schemas.StatusCompleted)
		w.until("it has settled", func() bool { return w.recordOf(nothing).State.Final() })
		var names []string
		for n := range schemas.MaxArtifactPatterns {
			names = append(names, strings.Repeat(`"`, schemas.MaxArtifactPattern-3)+fmt.Sprint(n))
		}
		w.specs.name(names...)
		starts := h.starts
		refused := w.want(w.publish(w.background("three", "print x", func(c *schemas.Call) { c.Artifacts = names })), schemas.StatusFailed)
		if refused.Error == nil || refused.Error.Code != schemas.Invalid || refused.Error.Field != "artifacts" || h.starts != starts {
			t.Errorf("%+v after %d starts", refused, h.starts-starts)
		}
	})
}

// TestArtifactsOfAJobThroughADeath: the worker dies at each place while it collects them, or the settler before and after it has asked.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestArtifactsOfAJobThroughADeath(t *testing.T) {
	for _, at := range []stage{atBytes, atKept, atAnnounced} {
		t.Run("the worker "+string(at), func(t *testing.T) {
			inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
				w.settleJobs()
				died := make(chan *employed, 1)
				w.employ(h, w.dieAt(at, died))
				c := w.publish(w.background("one", "sleep 1m\nwrite outputs/a a\nwrite outputs/b b"))
				<-(<-died).done
				w.employ(h)
				w.wantLeft(c, "outputs/a=a", "outputs/b=b")
			})
		})
	}
	for _, at := range []maintenance.SettleStage{"released", "collected"} {
		t.Run("the settler "+string(at), func(t *testing.T) {
			inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
				first := w.settler(dieWhen(func(s maintenance.SettleStage) bool { return s == at }))
				w.employ(h)
				c := w.publish(w.background("one", "write outputs/a a\nwrite outputs/b b"))
				<-first.done
				w.settler()
				w.wantLeft(c, "outputs/a=a", "outputs/b=b")
				w.onceEach(c.Conversation, finishedID(c.Job), followedID("", c.Job))
			})
		})
	}
}

// TestAJobSettlesWithoutItsArtifacts: nothing that has to do with them keeps it from that.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestAJobSettlesWithoutItsArtifacts(t *testing.T) {
	withOutputs := func(j *schemas.Job) { j.Outputs, j.Worker = &schemas.JobOutputs{}, "worker_gone" }
	settled := func(w *world, j schemas.Job, within time.Duration) schemas.JobArtifacts {
		w.t.Helper()
		began := time.Now()
		w.until("it has settled", func() bool { return w.record(j.ID).State.Final() })
		if took := time.Since(began); took > within {
			w.t.Errorf("it settled after %s, want that within %s", took, within)
		}
		return w.record(j.ID).Completion.JobArtifacts
	}
	want := func(t *testing.T, a schemas.JobArtifacts, why schemas.SkipReason) {
		t.Helper()
		if len(a.Artifacts) != 0 || len(a.SkippedArtifacts) != 1 || a.SkippedArtifacts[0].Reason != why {
			t.Errorf("%+v, want %s", a, why)
		}
	}
	t.Run("no worker", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.settler()
			gone, lost, plain := w.job(nil, "1", withOutputs), w.job(nil, "2", withOutputs), w.job(nil, "3")
			for _, j := range []schemas.Job{gone, lost, plain} {
				w.end(j, func(c *schemas.Completion) {
					if j.ID == lost.ID {
						c.State, c.ExitCode = schemas.JobLost, nil
					}
				})
			}
			want(t, settled(w, lost, 5*time.Second), schemas.SkipNoWorker)
			if a := settled(w, plain, 5*time.Second); len(a.SkippedArtifacts) != 0 {
				t.Errorf("a job that leaves nothing has %+v", a)
			}
			want(t, settled(w, gone, 40*time.Second), schemas.SkipNoWorker)
		})
	})
	t.Run("a worker that comes in time", func(t *testing.T) {
		inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
			w.settler()
			j := w.job(nil, "1", withOutputs)
			w.end(j)
			time.Sleep(10 * time.Second)
			w.employ(h)
			if a := settled(w, j, 25*time.Second); len(a.SkippedArtifacts) != 0 {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("a settler that starts after the end, before the worker", func(t *testing.T) {
		inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
			j := w.job(nil, "1", withOutputs)
			w.end(j)
			time.Sleep(5 * time.Minute)
			w.settler()
			time.Sleep(10 * time.Second)
			w.employ(h)
			if a := settled(w, j, 25*time.Second); len(a.SkippedArtifacts) != 0 {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("a suspended worker beside another", func(t *testing.T) {
		inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				_ = w.bus.Share(ctx, streams.ArtifactsSubjectOf("worker_gone"), streams.Sharing{Slots: 1, Each: 1, Account: accountOfJobOutputs},
					func(context.Context, []byte) ([]byte, error) {
						<-ctx.Done()
						return nil, schemas.Errorf(schemas.Unavailable, "it was suspended")
					})
			}()
			w.closers = append(w.closers, func() { stop(); <-over })
			w.settler()
			w.employ(h)
			j := w.job(nil, "1", withOutputs)
			w.end(j)
			if a := settled(w, j, 2*time.Minute); len(a.SkippedArtifacts) != 0 {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("a worker that stops meanwhile", func(t *testing.T) {
		inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
			entered := make(chan struct{}, 8)
			slow := h
			slow.open = func(ctx context.Context) {
				entered <- struct{}{}
				<-ctx.Done()
			}
			w.settler()
			first := w.employ(slow)
			j := w.job(nil, "1", withOutputs)
			w.end(j)
			<-entered
			began := time.Now()
			first.stop()
			<-first.done
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the worker stopped after %s", took)
			}
			w.employ(h)
			if a := settled(w, j, 30*time.Second); len(a.SkippedArtifacts) != 0 {
				t.Errorf("%+v", a)
			}
		})
	})
	t.Run("files that do not open", func(t *testing.T) {
		inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
			over := make(chan struct{})
			w.closers = append(w.closers, func() { close(over) })
			h.open = func(context.Context) { <-over }
			w.settler()
			w.employ(h)
			j := w.job(nil, "1", withOutputs)
			w.end(j)
			want(t, settled(w, j, 2*time.Minute), schemas.SkipTimeout)
		})
	})
}

// copying is a provider with copies of files on S3.
type copying struct{ filingHost }

func (copying) Profile() providers.Profile {
	return providers.Profile{Name: "fake", Shell: "bash", Persistent: true, Storage: schemas.StorageCopy}
}

// inBucket says that all workspaces are on S3.
type inBucket struct{ *specs }

func (s inBucket) Workspace(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	w, err := s.specs.Workspace(ctx, a, id)
	w.Storage = "s3"
	return w, err
}

// TestOnlyTheWorkerWithACopyCollectsFromIt: another's copy of the same files may be an old one.
func TestOnlyTheWorkerWithACopyCollectsFromIt(t *testing.T) {
	inOutputsWorld(t, func(t *testing.T, w *world, h filingHost) {
		s := (&Worker{Bus: w.bus, Provider: copying{h}, Specs: inBucket{w.specs}}).begin()
		defer s.runs.Close()
		j := w.job(nil, "1", func(j *schemas.Job) { j.Outputs, j.Worker = &schemas.JobOutputs{}, s.me() })
		if _, err := s.outputsOfJob(t.Context(), j); err != nil {
			t.Errorf("its own worker: %v", err)
		}
		j.Worker = "worker_other"
		if _, err := s.outputsOfJob(t.Context(), j); schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("another worker: %v, want unavailable", err)
		}
	})
}
