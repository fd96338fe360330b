package gateway_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// TestASupervisorReportsHome has the supervisor in a box report to this gateway. No worker monitors the job, and its end still reaches
// the log.
func TestASupervisorReportsHome(t *testing.T) {
	e := open(t)
	p := supervisor.Wrap(providertest.NewBare(t.TempDir()), supervisor.Options{JobsDir: t.TempDir()})
	starter, ok := providers.As[providers.JobStarter](p)
	boxes, keeps := providers.As[providers.Reserver](p)
	if !ok || !keeps {
		t.Fatal("the supervised provider starts no jobs")
	}
	box, err := boxes.Reserve(t.Context(), "box", providers.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := boxes.Release(t.Context(), box); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		script, token string
		state         schemas.JobState
		exit          int
	}{
		"it ends well":     {"echo hello", jobToken, schemas.JobCompleted, 0},
		"it fails":         {"echo hello; exit 3", jobToken, schemas.JobFailed, 3},
		"it is killed":     {"echo hello; kill -9 $$", jobToken, schemas.JobFailed, 137},
		"its token is bad": {"echo hello", jobToken + "x", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			j := e.job()
			cmd := providers.Command{Script: c.script, Sandbox: box, Timeout: time.Minute}
			_, err := starter.StartJob(t.Context(), j.ID, cmd, providers.JobOptions{
				Callback: &providers.Callback{URL: e.url + "/sandbox-jobs/" + string(j.ID) + "/complete", Token: c.token},
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.state == "" { // the supervisor gets that answer and stops: what the job has printed is to be seen, its end is not
				awaitEnd(t, p, schemas.JobRef{Sandbox: box, ID: j.ID})
				if got, err := lifecycle.FindCompletion(t.Context(), e.bus, alice, j.ID); !errors.Is(err, schemas.ErrNotFound) {
					t.Errorf("a report with a bad token counts: %+v, %v", got, err)
				}
				return
			}
			for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
				got, err := lifecycle.FindCompletion(t.Context(), e.bus, alice, j.ID)
				if errors.Is(err, schemas.ErrNotFound) && time.Now().Before(end) {
					continue
				}
				if err != nil || got.ReportedBy != schemas.ReportedByCallback || got.State != c.state ||
					got.ExitCode == nil || *got.ExitCode != c.exit || strings.TrimSpace(got.Logs) != "hello" {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
		})
	}
}

// awaitEnd waits until a job has ended and what watches over it has said what it can.
func awaitEnd(t *testing.T, p providers.Provider, ref schemas.JobRef) {
	t.Helper()
	control, ok := providers.As[providers.JobController](p)
	if !ok {
		t.Fatal("the supervised provider controls no jobs")
	}
	testwait.Eventually(t, "the end of the job", func() bool {
		s, err := control.JobStatus(t.Context(), ref)
		return err == nil && !s.Running
	})
}
