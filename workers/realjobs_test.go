//go:build linux

package workers

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// Real commands, by a provider with jobs of its own and by one that has them from the supervisor.
func TestRealJobsComeHome(t *testing.T) {
	for name, open := range map[string]func(*testing.T) providers.Provider{"local": openLocal, "supervised": openSupervised} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			l := natstest.Start(t)
			w := &world{t: t, bus: l.Bus, specs: &specs{persistent: true, change: func(s *schemas.Sandbox) { s.Network.Mode = schemas.AllowAll }}}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			worker := &Worker{Bus: l.Open(), Provider: p, Name: "fake", Specs: w.specs, ProbeEvery: 300 * time.Millisecond}
			go func() { ended <- worker.Run(ctx) }()
			go func() { ended <- (&maintenance.Settler{Bus: l.Bus}).Run(ctx) }()
			defer func() {
				stop()
				for range cap(ended) {
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
			}()
			w.realJobs(t)
		})
	}
}

func (w *world) realJobs(t *testing.T) {
	t.Helper()
	control := func(c schemas.Call, cmd schemas.JobCommand) schemas.JobReply {
		t.Helper()
		cmd.Account, cmd.Job = c.Account, c.Job
		r, err := lifecycle.ControlJob(t.Context(), w.bus, cmd)
		if err != nil {
			t.Fatalf("%s: %v", cmd.Action, err)
		}
		return r
	}
	talks := w.publish(w.background("talks", "echo hello\nread -r line\necho \"got $line\"\nexit 3"))
	w.want(talks, schemas.StatusCompleted)
	w.until("it has printed", func() bool {
		r, err := lifecycle.ControlJob(t.Context(), w.bus,
			schemas.JobCommand{Account: talks.Account, Job: talks.Job, Action: schemas.JobActionLogs})
		if code := schemas.CodeOf(err); err != nil && code != schemas.Unavailable && code != schemas.Timeout { // a busy box is asked again
			t.Fatal(err)
		}
		return string(r.Data) == "hello\n"
	})
	control(talks, schemas.JobCommand{Action: schemas.JobActionStdin, Data: []byte("a word\n"), EOF: true})
	if done := w.ended(talks); done.State != schemas.JobFailed || *done.ExitCode != 3 || done.Logs != "hello\ngot a word\n" {
		t.Errorf("it ended as %+v, want exit code 3 and all it printed", done)
	}

	endless := w.publish(w.background("endless", "sleep 1000 & sleep 1000"))
	w.want(endless, schemas.StatusCompleted)
	control(endless, schemas.JobCommand{Action: schemas.JobActionStop, Reason: "enough"})
	if done := w.ended(endless); done.State != schemas.JobStopped || done.Reason != "enough" {
		t.Errorf("it ended as %+v, want it stopped because of the reason given", done)
	}

	w.want(w.publish(w.shellCall("before", "mkdir -p outputs; echo old >outputs/old; touch outputs/touched")), schemas.StatusCompleted)
	time.Sleep(100 * time.Millisecond) // the times of files are that coarse
	leaves := w.publish(w.background("leaves", "echo new >outputs/new; echo more >>outputs/touched; ln -s old outputs/link"))
	w.want(leaves, schemas.StatusCompleted)
	if end := w.wantLeft(leaves, "outputs/new=new\n", "outputs/touched=more\n"); len(end.SkippedArtifacts) != 1 ||
		end.SkippedArtifacts[0] != (schemas.SkippedArtifact{Path: "outputs/link", Reason: schemas.SkipLink}) {
		t.Errorf("it left %+v", end.JobArtifacts)
	}

	w.specs.keepNone()
	alone := w.publish(w.background("alone", "echo alone"))
	w.want(alone, schemas.StatusCompleted)
	if done := w.ended(alone); done.State != schemas.JobCompleted || done.Logs != "alone\n" {
		t.Errorf("it ended as %+v", done)
	}
	w.until("its record is final", func() bool { return w.recordOf(alone).State.Final() })
	r := w.want(w.publish(w.ask("ask", alone, "")), schemas.StatusCompleted)
	if !strings.HasPrefix(r.Text, "completed (exit 0)\nalone") {
		t.Errorf("async_status says %q", r.Text)
	}
}

func openLocal(t *testing.T) providers.Provider {
	t.Helper()
	dir := t.TempDir()
	p, err := local.New(local.Options{StateDir: filepath.Join(dir, "state"), Workspaces: filepath.Join(dir, "workspaces"), Pool: -1,
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll}})
	if errors.Is(err, schemas.ErrUnsupported) {
		longtest.Missing(t, "this host cannot isolate: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func openSupervised(t *testing.T) providers.Provider {
	t.Helper()
	b := providertest.NewBare(t.TempDir())
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return supervisor.Wrap(b, supervisor.Options{})
}
