package workers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// asks makes the call one of bash with this command.
func asks(command string) func(*schemas.Call) {
	return func(c *schemas.Call) {
		c.Input, _ = json.Marshal(schemas.BashInput{Command: command, Background: c.Job != ""})
	}
}

func TestARefusedCommandIsDeniedAndNotStarted(t *testing.T) {
	for _, c := range []struct {
		name, command string
		sandbox       schemas.Sandbox
		persistent    bool
		want          string // of the text; empty: it is run
	}{
		{name: "a durable write without a policy", command: "echo x > /etc/a",
			want: "refused by the bash guard (durable): it would write to /etc/a"},
		{name: "in a kept box", command: "rm -rf /srv", persistent: true, want: "refused by the bash guard (durable)"},
		{name: "reading is fine", command: "cat /etc/hosts"},
		{name: "strict", command: "cat /etc/hosts", sandbox: schemas.Sandbox{Guard: schemas.GuardStrict},
			want: "refused by the bash guard (strict): /etc/hosts is outside"},
		{name: "off", command: "echo x > /etc/a; find /", sandbox: schemas.Sandbox{Guard: schemas.GuardOff}},
		{name: "a runtime that is not listed", command: "npm test", sandbox: schemas.Sandbox{Runtimes: []string{"python"}},
			want: "needs the runtime node"},
		{name: "one that is", command: "python3 a.py", sandbox: schemas.Sandbox{Runtimes: []string{"python"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.specs.persistent = c.persistent
				w.specs.change = func(s *schemas.Sandbox) { s.Guard, s.Runtimes = c.sandbox.Guard, c.sandbox.Runtimes }
				p := &fake{}
				w.employ(p)
				call := w.publish(w.call("call_1", schemas.ToolBash, asks(c.command)))
				if c.want == "" {
					w.want(call, schemas.StatusCompleted)
					return
				}
				r := w.want(call, schemas.StatusDenied)
				if !strings.HasPrefix(r.Text, "refused by the bash guard") || !strings.Contains(r.Text, c.want) {
					t.Errorf("the text is %q, want %q in it", r.Text, c.want)
				}
				if r.Error == nil || r.Error.Code != schemas.Denied || r.Error.Field != "input.command" {
					t.Errorf("result %+v, error %+v", r, r.Error)
				}
				// Who looks at nothing but the output of a command must not take it for an empty one.
				if o := r.Output; o == nil || o.OK || o.ExitCode != 126 || o.Stderr != r.Text+"\n" || o.Denied == nil || o.Denied.By != "bash_guard" ||
					o.Denied.Rule == "" || o.Denied.Policy == "" {
					t.Errorf("output %+v", o)
				}
				w.once(call)
				if got := w.types(call); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallFinished}) || p.count() != 0 {
					t.Errorf("events %v and %d runs: nothing may be started", got, p.count())
				}
			})
		})
	}
}

func TestTheGuardLooksAtBashAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.change = func(s *schemas.Sandbox) { s.Guard = schemas.GuardStrict }
		w.employ(&fake{run: answer(schemas.ToolRead)})
		c := w.call("call_1", schemas.ToolRead, func(c *schemas.Call) { c.Input = []byte(`{"file_path":"etc/hosts"}`) })
		w.want(w.publish(c), schemas.StatusCompleted)
	})
}

func TestARefusedBackgroundCommandSettlesItsJob(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		memory := new(limits.Memory)
		w.settleJobs(func(s *maintenance.Settler) { s.Limiter = memory })
		w.employ(h, func(wk *Worker) { wk.Limiter, wk.JobLimit = memory, 1 })
		call := w.publish(w.background("one", "", asks("touch /opt/a")))
		r := w.want(call, schemas.StatusDenied)
		done := w.ended(call)
		if r.StatusID != "" || done.State != schemas.JobUnstarted || !strings.Contains(done.Reason, "bash guard (durable)") {
			t.Errorf("the job ended as %+v, want it not started because of the guard", done)
		}
		w.once(call)
		types := w.types(call)
		if slices.Contains(types, schemas.CallStarted) || slices.Contains(types, schemas.JobStarted) || h.started() != 0 || len(h.boxes) != 0 {
			t.Errorf("events %v, %d starts, boxes %v: nothing may be started", types, h.started(), h.boxes)
		}
		if !free(t, memory, "jobs."+sandboxes.Key(call), 1) {
			t.Error("its place is held")
		}
	})
}
