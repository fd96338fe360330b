package workers

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

func TestACallThatAdmissionRefusedIsNotStarted(t *testing.T) {
	for name, why := range map[schemas.Tool]string{
		schemas.ToolBash:        "no sandbox available for this command",
		schemas.ToolRead:        "the tool read is not enabled for this agent",
		schemas.ToolAsyncStatus: "no sandbox available for this command",
	} {
		t.Run(string(name), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.specs.persistent = true
				p := &keeps{}
				w.employ(p)
				call := w.publish(w.call("call_1", name, func(c *schemas.Call) { c.Agent, c.Refused, c.Sandbox = "agent_1", why, "" }))
				r := w.want(call, schemas.StatusDenied)
				if r.Text != why || r.Error == nil || r.Error.Code != schemas.Denied {
					t.Errorf("the text is %q and the error %+v, want %q", r.Text, r.Error, why)
				}
				w.once(call)
				if got := w.types(call); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallFinished}) || p.count() != 0 {
					t.Errorf("events %v and %d runs: nothing may be started", got, p.count())
				}
			})
		})
	}
}

// The model is notified of its mistake in the result, and the call costs nothing.
func TestAMisusedToolIsNotStarted(t *testing.T) {
	for name, tool := range map[string]schemas.Tool{"an input": schemas.ToolBash, "a tool": "browse", "a status": schemas.ToolAsyncStatus} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.specs.persistent = true
				p := &keeps{}
				w.employ(p)
				call := w.publish(w.call("call_1", tool, func(c *schemas.Call) {
					c.Input, c.Misuse = json.RawMessage(`{"cmd":"ls"}`), &schemas.Error{Code: schemas.Invalid, Field: "input.cmd", Message: "is unknown"}
				}))
				r := w.want(call, schemas.StatusFailed)
				if r.Text != "Error: input.cmd: is unknown" || r.Error == nil || r.Error.Code != schemas.Invalid || r.Error.Field != "input.cmd" {
					t.Errorf("the text is %q and the error %+v", r.Text, r.Error)
				}
				w.once(call)
				if got := w.types(call); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallFinished}) || p.count() != 0 {
					t.Errorf("events %v and %d runs: nothing may be started", got, p.count())
				}
			})
		})
	}
}

func TestAMisusedBackgroundCallSettlesItsJob(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h)
		call := w.background("one", "", func(c *schemas.Call) {
			c.Group, c.Input = &schemas.GroupRef{ID: "g", Size: 1}, json.RawMessage(`{"cmd":"ls"}`)
			c.Misuse = &schemas.Error{Code: schemas.Invalid, Field: "input.cmd", Message: "is unknown"}
		})
		if !lifecycle.AsksForJob(call) {
			t.Error("its group would wait for a job that it does not ask for")
		}
		call = w.publish(call)
		w.want(call, schemas.StatusFailed)
		w.once(call)
		if got := w.types(call); slices.Contains(got, schemas.CallStarted) || slices.Contains(got, schemas.JobStarted) || h.started() != 0 {
			t.Errorf("events %v and %d starts: nothing may be started", got, h.started())
		}
		if done := w.ended(call); done.State != schemas.JobUnstarted || done.Reason != "input.cmd: is unknown" {
			t.Errorf("the job ended as %+v, want it not started because of its input", done)
		}
	})
}

func TestARefusedBackgroundCallSettlesItsJob(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h)
		call := w.publish(w.background("one", "sleep 1m", func(c *schemas.Call) {
			c.Agent, c.Refused, c.Workspace = "agent_1", "this agent has no workspace", ""
		}))
		w.want(call, schemas.StatusDenied)
		w.once(call)
		if got := w.types(call); slices.Contains(got, schemas.CallStarted) || slices.Contains(got, schemas.JobStarted) || h.started() != 0 {
			t.Errorf("events %v and %d starts: nothing may be started", got, h.started())
		}
	})
}

// What an agent without a sandbox may read is read in a box that reaches nothing.
func TestACallWithoutASandboxOnlyReads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		w.specs.err = schemas.Errorf(schemas.NotFound, "no sandbox is to be looked for")
		p := &keeps{fake: fake{run: answer(schemas.ToolRead)}}
		w.employ(p)
		call := w.call("call_1", schemas.ToolRead, func(c *schemas.Call) { c.Agent, c.Sandbox = "agent_1", "" })
		w.want(w.publish(call), schemas.StatusCompleted)
		cmd := p.runs[0]
		if len(cmd.Mounts) != 1 || !cmd.Mounts[0].ReadOnly || cmd.Mounts[0].Namespace != schemas.Namespace(testAccount, "ws_1") {
			t.Errorf("the mounts are %+v, want the workspace to read", cmd.Mounts)
		}
		if cmd.Network.Mode != schemas.DenyAll || cmd.Spec.Network.Mode != schemas.DenyAll || len(cmd.Env) != 0 || !cmd.Sandbox.IsZero() {
			t.Errorf("the command is %+v, want no network, no variables, and a fresh box", cmd)
		}
		if cmd.Timeout != schemas.DefaultTimeout {
			t.Errorf("the timeout is %s", cmd.Timeout)
		}
	})
}

// A box can only be kept for a workspace.
func TestACallWithoutAWorkspaceHasAFreshBox(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		p := &keeps{}
		w.employ(p)
		call := w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Agent, c.Workspace = "agent_1", "" })
		w.want(w.publish(call), schemas.StatusCompleted)
		if cmd := p.runs[0]; len(cmd.Mounts) != 0 || !cmd.Sandbox.IsZero() || cmd.Env["SECRET"] != "s3cret" {
			t.Errorf("the command is %+v, want no mounts, a fresh box, and the sandbox's variables", cmd)
		}
	})
}
