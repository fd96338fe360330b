package crashtest_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// TestMCPOutlivesItsProcesses: whichever process is killed while a client of the Model Context Protocol waits for a call, follows a task
// or shows a question to its user, a client that comes again finds the one call, and its command has run once. The short form has a call
// and a task when the gateway is killed.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestMCPOutlivesItsProcesses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), sizeOf().ends)
	defer cancel()
	brief := freePort(t)
	c := startCluster(ctx, t, func(c *cluster, worker []string) []string {
		c.role("gateway-brief", append([]string{"gateway", "--listen", brief, "--mcp-wait", "50ms"}, c.identity()...)...)
		return worker
	})
	// The server of the log comes first.
	m := &mcpKills{c: c, brief: brief, briefs: c.roles[1:2], gateways: c.roles[2:3], workers: c.roles[3:]}
	m.asker(ctx, t)
	t.Run("a task and the gateway", func(t *testing.T) { m.taskAndGateway(ctx, t) })
	if !longtest.Asked() { // each other death costs seconds
		t.Run("a call and the gateway", func(t *testing.T) { m.callAndGateway(ctx, t, mcpModern) })
		return
	}
	interrupted := m.allAndWorkers(ctx, t) // which takes some seconds to be noticed
	for _, revision := range []string{mcpModern, mcpOlder} {
		t.Run("a call and the gateway, "+revision, func(t *testing.T) { m.callAndGateway(ctx, t, revision) })
		t.Run("a client that gives up, "+revision, func(t *testing.T) { m.timeOut(ctx, t, revision) })
		t.Run("a call that takes long, "+revision, func(t *testing.T) { m.long(ctx, t, revision) })
	}
	t.Run("a question and the gateway", func(t *testing.T) { m.questionAndGateway(ctx, t) })
	t.Run("a task's question and the gateway", func(t *testing.T) { m.taskQuestionAndGateway(ctx, t) })
	t.Run("a program and the gateway", func(t *testing.T) { m.programAndGateway(ctx, t) })
	t.Run("all of them and the workers", interrupted)
}

// mcpKills is a cluster with two gateways. The first holds an MCP request until its call has a result; the second holds it only for a
// moment.
type mcpKills struct {
	c                         *cluster
	brief                     string // where the second gateway listens
	gateways, briefs, workers []*process
}

// killed kills all of the processes with SIGKILL, and then starts them again.
func (m *mcpKills) killed(t *testing.T, all []*process) {
	t.Helper()
	for _, p := range all {
		m.c.log.note("--- kill -9 " + p.name)
		p.kill()
	}
	for _, p := range all {
		m.c.revive(t, p)
	}
}

// asker creates an agent whose commands need the approval of a person.
func (m *mcpKills) asker(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"sandboxes", "create", "asks", "--mode", "ask"}, {"agents", "create", "asker", "--sandbox", "asks", "--workspace", "default"},
	} {
		cmd := exec.CommandContext(ctx, m.c.program, args...)
		cmd.Env = append(settings(os.Environ()), "SANDJET_URL=http://"+m.c.gateway, "SANDJET_KEY="+m.c.key)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

// user returns an MCP client of the first gateway, whose calls belong to the conversation of this name.
func (m *mcpKills) user(revision, name string) mcpUser {
	return mcpUser{c: m.c, gateway: m.c.gateway, revision: revision, query: "?conversation=" + name}
}

// at returns the same client, connected to the second gateway.
func (m *mcpKills) at(u mcpUser) mcpUser {
	u.gateway = m.brief
	return u
}

// held returns a command that writes its mark and then runs until free is called with its name.
func held(name string) string {
	return "echo " + name + " >> " + mark + "; until [ -e " + name + ".free ]; do sleep 0.02; done; echo done " + name
}

// begun waits until the command of a request has written its mark, and fails if the request is answered before.
func (m *mcpKills) begun(ctx context.Context, t *testing.T, name string, by *inFlight) {
	t.Helper()
	for m.c.marks(t)[name] == 0 {
		select {
		case <-by.ended:
			t.Fatalf("%s has not begun, and is answered %+v %v", name, by.r, by.err)
		case <-ctx.Done():
			t.Fatalf("%s has not begun", name)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// unanswered returns a request that never ends, for begun: where the request that began the command may end at any time.
func unanswered() *inFlight { return &inFlight{ended: make(chan struct{})} }

// free lets the held command of this name end.
func (m *mcpKills) free(t *testing.T, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(m.c.data, "workspaces", "*", mark))
	if err != nil || len(found) != 1 {
		t.Fatalf("the workspace is not found: %v %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(found[0]), name+".free"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// once checks the result r, that the command ran once, and that the conversation of this name has one result of the call.
func (m *mcpKills) once(ctx context.Context, t *testing.T, name string, r mcpResult, want schemas.Status) {
	t.Helper()
	if r.Record.Status != want || r.IsError != (want != schemas.StatusCompleted) {
		t.Errorf("%s is answered %+v", name, r)
	}
	if want == schemas.StatusCompleted && (r.Record.Output == nil || r.Record.Output.Stdout != "done "+name+"\n") {
		t.Errorf("%s has the output of another call or none: %+v", name, r.Record)
	}
	if n := m.c.marks(t)[name]; n != 1 {
		t.Errorf("%s ran %d times", name, n)
	}
	ends := m.c.finished(ctx, t, []wanted{{conversation: name}})
	if all := ends[string(r.Record.Call)]; len(ends) != 1 || len(all) != 1 || all[0] != want {
		t.Errorf("the conversation of %s has the results %v, the answer is about %s", name, ends, r.Record.Call)
	}
}

// callAndGateway: the gateway is killed while it holds the request.
func (m *mcpKills) callAndGateway(ctx context.Context, t *testing.T, revision string) {
	name := "gateway-" + revision
	u := m.user(revision, name)
	ask := func() (mcpResult, error) { return u.call(ctx, "tool-use", held(name)) }
	got := begin(ask)
	m.begun(ctx, t, name, got)
	m.killed(t, m.gateways)
	got.cut(t)
	later := beginAgain(ctx, ask)
	m.free(t, name)
	m.once(ctx, t, name, later.answer(t), schemas.StatusCompleted)
	m.once(ctx, t, name, patiently(ctx, t, ask), schemas.StatusCompleted)
	r := patiently(ctx, t, func() (mcpResult, error) { return m.at(u).call(ctx, "tool-use", held(name)) })
	m.once(ctx, t, name, r, schemas.StatusCompleted)
}

// timeOut: the client stops waiting, and asks again.
func (m *mcpKills) timeOut(ctx context.Context, t *testing.T, revision string) {
	name := "left-" + revision
	u := m.user(revision, name)
	impatient, leave := context.WithCancel(ctx)
	got := begin(func() (mcpResult, error) { return u.call(impatient, "tool-use", held(name)) })
	m.begun(ctx, t, name, got)
	leave()
	got.cut(t)
	later := beginAgain(ctx, func() (mcpResult, error) { return u.call(ctx, "tool-use", held(name)) })
	m.free(t, name)
	m.once(ctx, t, name, later.answer(t), schemas.StatusCompleted)
}

// long: a client that knows no tasks gets the id of a call that takes long, asks for its result, and the gateway is killed meanwhile.
func (m *mcpKills) long(ctx context.Context, t *testing.T, revision string) {
	name := "long-" + revision
	u := m.user(revision, name)
	r := patiently(ctx, t, func() (mcpResult, error) { return m.at(u).call(ctx, "tool-use", held(name)) })
	id := string(r.Record.Call)
	if id == "" || r.IsError || r.Record.StatusID != id {
		t.Fatalf("a call that takes long is answered %+v", r)
	}
	m.begun(ctx, t, name, unanswered())
	ask := func() (mcpResult, error) { return u.status(ctx, id) }
	got := begin(ask)
	m.killed(t, slices.Concat(m.gateways, m.briefs))
	got.cut(t)
	later := beginAgain(ctx, ask)
	m.free(t, name)
	m.once(ctx, t, name, later.answer(t), schemas.StatusCompleted)
}

// withTasks is a client that takes a task for an answer.
func withTasks(u mcpUser) mcpUser {
	u.can = map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}
	return u
}

// newTask makes a task of a held command, which has begun.
func (m *mcpKills) newTask(ctx context.Context, t *testing.T, name string) (mcpUser, string) {
	t.Helper()
	u := m.at(withTasks(m.user(mcpModern, name)))
	r := patiently(ctx, t, func() (mcpResult, error) { return u.call(ctx, "tool-use", held(name)) })
	if r.ResultType != "task" || r.TaskID == "" {
		t.Fatalf("a call that takes long is no task: %+v", r)
	}
	m.begun(ctx, t, name, unanswered())
	return u, r.TaskID
}

// ended asks about a task until it has ended. It is never unknown on the way.
func (m *mcpKills) ended(ctx context.Context, t *testing.T, u mcpUser, id string) mcpResult {
	t.Helper()
	for {
		r := patiently(ctx, t, func() (mcpResult, error) { return u.task(ctx, id) })
		if r.TaskID != id {
			t.Fatalf("asked about %s, answered %+v", id, r)
		}
		if r.Result != nil {
			if r.Status != "completed" {
				t.Errorf("a task with a result is %s", r.Status)
			}
			return *r.Result
		}
		if r.Status != "working" {
			t.Fatalf("the task is %s", r.Status)
		}
		if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
			t.Fatal("the task has no end")
		}
	}
}

// taskAndGateway: the gateway that made a task is killed, and each of the two answers for it.
func (m *mcpKills) taskAndGateway(ctx context.Context, t *testing.T) {
	const name = "task-gateway"
	u, id := m.newTask(ctx, t, name)
	elsewhere := u
	elsewhere.gateway = m.c.gateway
	for _, p := range m.briefs {
		p.kill()
	}
	if r := patiently(ctx, t, func() (mcpResult, error) { return elsewhere.task(ctx, id) }); r.Status != "working" {
		t.Errorf("at another gateway the task is %+v", r)
	}
	for _, p := range m.briefs {
		m.c.revive(t, p)
	}
	if r := patiently(ctx, t, func() (mcpResult, error) { return u.task(ctx, id) }); r.Status != "working" {
		t.Errorf("after the start the task is %+v", r)
	}
	m.killed(t, m.briefs)
	m.free(t, name)
	m.once(ctx, t, name, m.ended(ctx, t, u, id), schemas.StatusCompleted)
	m.once(ctx, t, name, m.ended(ctx, t, elsewhere, id), schemas.StatusCompleted)
	r := patiently(ctx, t, func() (mcpResult, error) { return u.call(ctx, "tool-use", held(name)) })
	m.once(ctx, t, name, r, schemas.StatusCompleted)
}

// asking is a client that shows questions to its user, whose agent must ask.
func asking(u mcpUser) mcpUser {
	u.query += "&agent=asker"
	if u.can == nil {
		u.can = map[string]any{}
	}
	u.can["elicitation"] = map[string]any{"form": map[string]any{}}
	return u
}

// yes is what the client's user says to all questions of an answer.
func yes(r mcpResult) map[string]any {
	said := map[string]any{}
	for id := range r.InputRequests {
		said[id] = map[string]any{"action": "accept", "content": map[string]any{"decision": "Allow once"}}
	}
	return map[string]any{"requestState": r.RequestState, "inputResponses": said}
}

// questionAndGateway: the gateway is killed while the client's user decides, and again when the call that was allowed runs.
func (m *mcpKills) questionAndGateway(ctx context.Context, t *testing.T) {
	const name = "question"
	u := asking(m.user(mcpModern, name))
	ask := func() (mcpResult, error) { return u.call(ctx, "tool-use", held(name)) }
	asked := patiently(ctx, t, ask)
	if asked.ResultType != "input_required" || len(asked.InputRequests) != 1 || asked.RequestState == "" {
		t.Fatalf("a call that a person must allow is answered %+v", asked)
	}
	m.killed(t, m.gateways)
	if again := patiently(ctx, t, ask); !maps.EqualFunc(again.InputRequests, asked.InputRequests, slices.Equal) {
		t.Errorf("asked again, it is another question: %+v", again)
	}
	if n := m.c.marks(t)[name]; n != 0 {
		t.Errorf("it ran %d times before it was allowed", n)
	}
	answer := func() (mcpResult, error) { return u.call(ctx, "tool-use", held(name), yes(asked)) }
	got := begin(answer)
	m.begun(ctx, t, name, got)
	m.killed(t, m.gateways)
	got.cut(t)
	m.free(t, name)
	m.once(ctx, t, name, patiently(ctx, t, answer), schemas.StatusCompleted)
	m.once(ctx, t, name, patiently(ctx, t, ask), schemas.StatusCompleted)
	m.answeredOnce(ctx, t, name)
}

// answeredOnce checks that a conversation has one question and one answer to it.
func (m *mcpKills) answeredOnce(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	count := map[schemas.EventType]int{}
	m.c.eachEvent(ctx, t, name, func(e schemas.Event) { count[e.Type]++ })
	if count[schemas.ApprovalRequested] != 1 || count[schemas.ApprovalDecided] != 1 {
		t.Errorf("the conversation has %v", count)
	}
}

// taskQuestionAndGateway: a task waits for a person. The gateway is killed before its question is read and before it is answered.
func (m *mcpKills) taskQuestionAndGateway(ctx context.Context, t *testing.T) {
	const name = "question-task"
	u := m.at(asking(withTasks(m.user(mcpModern, name))))
	mute := u // it shows no questions: the answer has the id of the call
	mute.can = maps.Clone(u.can)
	delete(mute.can, "elicitation")
	id := string(patiently(ctx, t, func() (mcpResult, error) { return mute.call(ctx, "tool-use", held(name)) }).Record.Call)
	m.killed(t, m.briefs)
	asked := patiently(ctx, t, func() (mcpResult, error) { return u.task(ctx, id) })
	if asked.Status != "input_required" || len(asked.InputRequests) != 1 {
		t.Fatalf("a task that waits for a person is %+v", asked)
	}
	m.killed(t, m.briefs)
	params := yes(asked)
	delete(params, "requestState")
	params["taskId"] = id
	for range 2 { // the second answer changes nothing
		patiently(ctx, t, func() (mcpResult, error) { return u.ask(ctx, "tasks/update", id, maps.Clone(params)) })
		m.killed(t, m.briefs)
	}
	m.begun(ctx, t, name, unanswered())
	m.free(t, name)
	m.once(ctx, t, name, m.ended(ctx, t, u, id), schemas.StatusCompleted)
	m.answeredOnce(ctx, t, name)
}

// allAndWorkers: the workers are killed while they run what two clients wait for, a task, and what a person has allowed. All end as
// interrupted, and a client that asks again learns that: nothing is run a second time. The returned test waits for that, and the gateways may
// be killed meanwhile.
func (m *mcpKills) allAndWorkers(ctx context.Context, t *testing.T) func(t *testing.T) {
	t.Helper()
	type one struct {
		name string
		ask  func() (mcpResult, error)
		got  *inFlight
	}
	var all []one
	for _, revision := range []string{mcpModern, mcpOlder} {
		name := "worker-" + revision
		ask := func() (mcpResult, error) { return m.user(revision, name).call(ctx, "tool-use", held(name)) }
		all = append(all, one{name, ask, beginAgain(ctx, ask)})
	}
	const allowed, task = "worker-question", "worker-task"
	u := asking(m.user(mcpModern, allowed))
	asked := patiently(ctx, t, func() (mcpResult, error) { return u.call(ctx, "tool-use", held(allowed)) })
	answer := func() (mcpResult, error) { return u.call(ctx, "tool-use", held(allowed), yes(asked)) }
	all = append(all, one{allowed, answer, beginAgain(ctx, answer)})
	tasks, id := m.newTask(ctx, t, task)
	for _, o := range all {
		m.begun(ctx, t, o.name, o.got)
	}
	m.killed(t, m.workers)
	return func(t *testing.T) {
		for _, o := range all {
			m.once(ctx, t, o.name, o.got.answer(t), schemas.StatusInterrupted)
			m.once(ctx, t, o.name, patiently(ctx, t, o.ask), schemas.StatusInterrupted)
		}
		m.answeredOnce(ctx, t, allowed)
		m.once(ctx, t, task, m.ended(ctx, t, tasks, id), schemas.StatusInterrupted)
	}
}
