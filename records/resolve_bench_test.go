package records

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// BenchmarkResolve is the resolution of one request. Aim: a million a second on one core for requests that
// bring their ids, as those of a client that may repeat itself do; making two ids costs more than all else.
func BenchmarkResolve(b *testing.B) {
	off := false
	x := house()
	x.put(record{Agent: &schemas.Agent{ID: "agent_1", Account: alice, Name: "one", AgentConfig: schemas.AgentConfig{
		Sandbox:    "sb_1",
		Workspaces: []schemas.AgentWorkspace{entry("main", schemas.SandboxChoice{}), entry("look", chosen(""))},
		Tools:      map[schemas.Tool]schemas.ToolConfig{schemas.ToolGrep: {Enabled: &off}},
	}}}, stand{})
	s := storeOf(&cache{index: x})
	own := schemas.Request{ID: "call_1", Conversation: "c_1", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"go test ./..."}`)}
	of := func(change func(*schemas.Request)) schemas.Request {
		r := own
		change(&r)
		return r
	}
	for _, c := range []struct {
		name string
		r    schemas.Request
	}{
		{"default", own},
		{"agent", of(func(r *schemas.Request) { r.Agent = "agent_1" })},
		{"agent and workspace", of(func(r *schemas.Request) { r.Agent, r.Workspace, r.Tool = "agent_1", "look", schemas.ToolRead })},
		{"workspace in the input", of(func(r *schemas.Request) {
			r.Agent, r.Input = "agent_1", json.RawMessage(`{"command":"go test ./...","workspace":"main"}`)
		})},
		{"ids to be made", of(func(r *schemas.Request) { r.ID, r.Conversation = "", "" })},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Resolve(b.Context(), alice, c.r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(time.Second)*float64(b.N)/float64(b.Elapsed()), "calls/s")
		})
	}
}
