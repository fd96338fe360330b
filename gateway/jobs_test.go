package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/jobs"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const jobToken = string(alice) + ".secret"

// job puts the record of a running job of alice on the log. Its worker is the one below.
func (e *edge) job(change ...func(*schemas.Job)) schemas.Job {
	e.t.Helper()
	now := time.Now().UTC()
	sum := sha256.Sum256([]byte(jobToken))
	j := schemas.Job{
		ID: schemas.NewJobID(), Account: alice, Conversation: "c_1", Call: schemas.NewCallID(), Tool: schemas.ToolBash, Command: "sleep 9",
		Provider: "fake", Workspace: "ws_1", Sandbox: "sb_1", State: schemas.JobRunning, Worker: "keeper", Actions: schemas.JobActions(),
		Places: []schemas.JobPlace{{Key: "place"}}, TokenHash: hex.EncodeToString(sum[:]), Created: now,
		Launched: now, Deadline: now.Add(time.Hour),
	}
	for _, c := range change {
		c(&j)
	}
	if _, err := lifecycle.OpenJobs(e.bus).Create(e.t.Context(), j.Key(), j, 0); err != nil {
		e.t.Fatal(err)
	}
	return j
}

// settle changes a job's record to a final state.
func (e *edge) settle(j schemas.Job, c schemas.Completion) {
	e.t.Helper()
	c.Job, c.Account, c.Finished = j.ID, j.Account, time.Now().UTC()
	j.State, j.Completion = c.State, &c
	if _, err := lifecycle.OpenJobs(e.bus).Put(e.t.Context(), j.Key(), j); err != nil {
		e.t.Fatal(err)
	}
}

// The type below is the worker that answers for jobs, with one log for all of them.
type keeper struct {
	mu    sync.Mutex
	log   []byte
	first int64 // of what is kept of the log
	ended bool
	asked []schemas.JobCommand
}

func (e *edge) keeper() *keeper {
	e.t.Helper()
	k := &keeper{}
	ready := make(chan struct{})
	e.background(func(ctx context.Context) error {
		return e.bus.Answer(ctx, streams.JobControlSubject("keeper"), func() { close(ready) }, k.answer)
	})
	<-ready
	return k
}

func (k *keeper) print(text string, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log, k.ended = append(k.log, text...), ended
}

func (k *keeper) commands() []schemas.JobCommand {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]schemas.JobCommand(nil), k.asked...)
}

func (k *keeper) answer(_ context.Context, data []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var cmd schemas.JobCommand
	if err := json.Unmarshal(data, &cmd); err != nil {
		return nil, err
	}
	k.asked = append(k.asked, cmd)
	r := schemas.JobReply{Running: !k.ended, Ended: k.ended}
	switch cmd.Action {
	case schemas.JobActionLogs:
		r.Size = int64(len(k.log))
		r.Offset = min(max(cmd.Offset, k.first), r.Size)
		if cmd.Offset < 0 {
			r.Offset = max(k.first, r.Size-int64(cmd.Limit))
		}
		r.Data = k.log[r.Offset:min(r.Offset+int64(cmd.Limit), r.Size)]
	case schemas.JobActionStdin:
		r.Written = len(cmd.Data)
	case schemas.JobActionStatus, schemas.JobActionStop, schemas.JobActionSignal:
	}
	return json.Marshal(r)
}

func TestABackgroundCallGetsItsJob(t *testing.T) {
	e := open(t)
	const body = `{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"make","background":true},"group":{"id":"g","size":2}}`
	st := decode[calls.State](t, e.post("/v1/calls", body))
	if st.StatusID.Validate() != nil {
		t.Fatalf("answered %+v", st)
	}
	if again := decode[calls.State](t, e.post("/v1/calls", body)); again != st {
		t.Errorf("the repeat has another job: %+v, then %+v", st, again)
	}
	a := e.get("/v1/jobs/" + string(st.StatusID))
	j := decode[schemas.Job](t, a)
	if a.status != http.StatusOK || j.State != schemas.JobWaiting || j.Call != "mine" || j.Command != "make" || j.Conversation != "c_1" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if st := decode[calls.State](t, e.post("/v1/calls", bash("true"))); st.StatusID != "" {
		t.Errorf("a call in the foreground has the job %s", st.StatusID)
	}
}

// TestRepeatMakesTheRecordOfAJob: the process died after the call was on the log and before its job was
// on record.
func TestRepeatMakesTheRecordOfAJob(t *testing.T) {
	e := open(t)
	req, err := schemas.DecodeRequest([]byte(`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"make","background":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	call, err := book{}.Resolve(t.Context(), alice, req)
	if err != nil {
		t.Fatal(err)
	}
	call.Job = schemas.NewJobID()
	if err := streams.Calls.Publish(t.Context(), e.bus, call); err != nil {
		t.Fatal(err)
	}
	if a := e.get("/v1/jobs/" + string(call.Job)); a.status != http.StatusNotFound {
		t.Fatalf("before the repeat: %d %s", a.status, a.body)
	}
	if got, err := admission.Admit(t.Context(), e.bus, book{}, alice, req); err != nil || got.Call.Job != call.Job {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := e.get("/v1/jobs/" + string(call.Job)); a.status != http.StatusOK {
		t.Errorf("after the repeat: %d %s", a.status, a.body)
	}
}

func TestListOfJobs(t *testing.T) {
	e := open(t)
	if a := e.get("/v1/jobs"); a.body != `{"jobs":[],"more":false}` {
		t.Errorf("with none: %s", a.body)
	}
	var ids []schemas.JobID
	for n := range 40 { // more than are read at a time
		j := e.job(func(j *schemas.Job) {
			j.ID = schemas.JobID(fmt.Sprintf("job_%02d", n))
			if n%2 == 0 {
				j.Conversation = "c_even"
			}
			if n == 7 {
				j.State = schemas.JobWaiting
			}
		})
		if ids = append(ids, j.ID); n < 5 {
			e.settle(j, schemas.Completion{State: schemas.JobCompleted, ReportedBy: schemas.ReportedByProbe, Logs: "printed", LogBytes: 7})
		}
	}
	e.job(func(j *schemas.Job) { j.Account, j.ID = bob, "job_99" })
	for query, want := range map[string]struct {
		jobs        int
		first, last schemas.JobID
		more        bool
	}{
		"":                           {40, ids[39], ids[0], false},
		"?limit=3":                   {3, ids[39], ids[37], true},
		"?state=completed":           {5, ids[4], ids[0], false},
		"?state=running":             {35, ids[39], ids[5], false},
		"?state=waiting":             {1, ids[7], ids[7], false},
		"?state=lost":                {0, "", "", false},
		"?conversation=c_even":       {20, ids[38], ids[0], false},
		"?conversation=none&limit=1": {0, "", "", false},
		"?conversation=c_even&state=completed&limit=3": {3, ids[4], ids[0], false},
	} {
		a := e.get("/v1/jobs" + query)
		list := decode[jobs.List](t, a)
		if a.status != http.StatusOK || len(list.Jobs) != want.jobs || list.More != want.more {
			t.Errorf("%s: %d, %d jobs, more %v", query, a.status, len(list.Jobs), list.More)
			continue
		}
		if want.jobs > 0 && (list.Jobs[0].ID != want.first || list.Jobs[want.jobs-1].ID != want.last) {
			t.Errorf("%s: from %s to %s", query, list.Jobs[0].ID, list.Jobs[want.jobs-1].ID)
		}
		if strings.Contains(a.body, "printed") || strings.Contains(a.body, "token_hash") || strings.Contains(a.body, "places") {
			t.Errorf("%s: shows too much: %s", query, a.body)
		}
	}
	if a := e.get("/v1/jobs/" + string(ids[0])); !strings.Contains(a.body, `"logs":"printed"`) || strings.Contains(a.body, "token_hash") {
		t.Errorf("one job: %s", a.body)
	}
}

//guarantee:a-jobs-token-is-its-own
func TestForeignJobsAreNotFound(t *testing.T) {
	e := open(t)
	k := e.keeper()
	j := e.job()
	for _, a := range []ask{
		{method: http.MethodGet, path: "/v1/jobs/%s"},
		{method: http.MethodGet, path: "/v1/jobs/%s/logs"},
		{method: http.MethodGet, path: "/v1/jobs/%s/logs?follow=1"},
		{method: http.MethodPost, path: "/v1/jobs/%s/stop"},
		{method: http.MethodPost, path: "/v1/jobs/%s/signal", body: `{"signal":"TERM"}`},
		{method: http.MethodPost, path: "/v1/jobs/%s/stdin", body: "x"},
	} {
		a.key = bobKey
		path := a.path
		a.path = fmt.Sprintf(path, j.ID)
		theirs := e.do(a)
		a.path = fmt.Sprintf(path, "job_nobodys")
		nobodys := e.do(a)
		if theirs.status != http.StatusNotFound || strings.ReplaceAll(theirs.body, string(j.ID), "job_nobodys") != nobodys.body {
			t.Errorf("%s %s: %d %s; one that never was: %s", a.method, path, theirs.status, theirs.body, nobodys.body)
		}
	}
	if asked := k.commands(); len(asked) > 0 {
		t.Errorf("the worker was asked for %+v", asked)
	}
}

func TestControlOfAJob(t *testing.T) {
	e := open(t)
	k := e.keeper()
	j := e.job()
	path := "/v1/jobs/" + string(j.ID)
	if a := e.post(path+"/signal", `{"signal":"SIGUSR1"}`); a.status != http.StatusOK || a.body != `{"signal":"USR1"}` {
		t.Errorf("signal: %d %s", a.status, a.body)
	}
	if a := e.do(ask{method: http.MethodPost, path: path + "/stdin?eof=1", body: "a\x00\xff",
		header: http.Header{"Content-Type": {"application/octet-stream"}}}); a.body != `{"written":3}` {
		t.Errorf("stdin: %d %s", a.status, a.body)
	}
	a := e.post(path+"/stop", `{"reason":"enough"}`)
	if a.status != http.StatusAccepted || decode[schemas.Job](t, a).ID != j.ID || strings.Contains(a.body, "token_hash") {
		t.Errorf("stop: %d %s", a.status, a.body)
	}
	asked := k.commands()
	if len(asked) != 3 || asked[0].Signal != "USR1" || string(asked[1].Data) != "a\x00\xff" || !asked[1].EOF || asked[2].Reason != "enough" {
		t.Errorf("the worker was asked for %+v", asked)
	}
	e.settle(j, schemas.Completion{State: schemas.JobStopped, ReportedBy: schemas.ReportedByProvider})
	for _, p := range []string{"/stop", "/signal", "/stdin"} {
		body := map[string]string{"/signal": `{"signal":"TERM"}`, "/stdin": "x"}[p]
		if a := e.post(path+p, body); a.status != http.StatusConflict || a.problem(t).Code != schemas.Conflict {
			t.Errorf("%s after the end: %d %s", p, a.status, a.body)
		}
	}
}

// TestStopOfAWaitingJob: nothing runs yet, so the call is cancelled instead.
func TestStopOfAWaitingJob(t *testing.T) {
	e := open(t)
	st := decode[calls.State](t, e.post("/v1/calls", `{"tool":"bash","input":{"command":"make","background":true}}`))
	if a := e.post("/v1/jobs/"+string(st.StatusID)+"/stop", ""); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for entry, err := range streams.Cancels.Replay(t.Context(), e.bus, string(alice), schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Value.Call == st.ID {
			return
		}
	}
	t.Error("the call was not cancelled")
}

func TestJobsThatOfferLess(t *testing.T) {
	e := open(t)
	e.keeper()
	j := e.job(func(j *schemas.Job) { j.Actions = []schemas.JobAction{schemas.JobActionStatus} })
	away := e.job(func(j *schemas.Job) { j.Worker = "nobody" })
	for _, p := range []string{"/stop", "/signal", "/stdin"} {
		body := map[string]string{"/signal": `{"signal":"TERM"}`, "/stdin": "x"}[p]
		if a := e.post("/v1/jobs/"+string(j.ID)+p, body); a.status != http.StatusNotImplemented ||
			!strings.Contains(a.problem(t).Message, "status") {
			t.Errorf("%s: %d %s", p, a.status, a.body)
		}
		if a := e.post("/v1/jobs/"+string(away.ID)+p, body); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("%s without a worker: %d %s", p, a.status, a.body)
		}
	}
	if a := e.get("/v1/jobs/" + string(j.ID) + "/logs"); a.status != http.StatusNotImplemented {
		t.Errorf("logs: %d %s", a.status, a.body)
	}
}

func TestBadRequestsAboutJobs(t *testing.T) {
	e := open(t)
	e.keeper()
	path := "/v1/jobs/" + string(e.job().ID)
	for name, tc := range map[string]struct {
		ask    ask
		status int
		field  string
	}{
		"unknown state":      {ask{path: "/v1/jobs?state=dead"}, 400, "state"},
		"no conversation":    {ask{path: "/v1/jobs?conversation=a%20b"}, 400, "conversation"},
		"too many":           {ask{path: "/v1/jobs?limit=501"}, 400, "limit"},
		"unknown parameter":  {ask{path: "/v1/jobs?stat=running"}, 400, "stat"},
		"negative offset":    {ask{path: path + "/logs?offset=-2"}, 400, "offset"},
		"page of nothing":    {ask{path: path + "/logs?limit=0"}, 400, "limit"},
		"page too large":     {ask{path: path + "/logs?limit=262145"}, 400, "limit"},
		"follow what":        {ask{path: path + "/logs?follow=yes"}, 400, "follow"},
		"no signal":          {ask{method: "POST", path: path + "/signal", body: `{}`}, 400, "signal"},
		"unknown signal":     {ask{method: "POST", path: path + "/signal", body: `{"signal":"SEGV"}`}, 400, "signal"},
		"nothing to write":   {ask{method: "POST", path: path + "/stdin"}, 400, ""},
		"too much to write":  {ask{method: "POST", path: path + "/stdin", body: strings.Repeat("x", schemas.MaxJobStdin+1)}, 413, ""},
		"unknown field":      {ask{method: "POST", path: path + "/stop", body: `{"why":"x"}`}, 400, "why"},
		"no key":             {ask{path: "/v1/jobs", key: "-"}, 401, ""},
		"malformed job":      {ask{path: "/v1/jobs/a%ffb"}, 404, ""},
		"another method":     {ask{method: "PUT", path: path}, 405, ""},
		"parameters of a go": {ask{method: "POST", path: path + "/stop?force=1"}, 400, "force"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.ask.method == "" {
				tc.ask.method = http.MethodGet
			}
			a := e.do(tc.ask)
			if p := a.problem(t); a.status != tc.status || p.Field != tc.field || p.Message == "" {
				t.Errorf("%d %s; want %d about %q", a.status, a.body, tc.status, tc.field)
			}
		})
	}
}
