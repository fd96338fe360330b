package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/instances"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// instance puts the record of an instance of alice on the log.
func (e *edge) instance(change ...func(*schemas.Instance)) schemas.Instance {
	e.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	i := schemas.Instance{
		Account: alice, Sandbox: "sb_1", Workspace: "ws_1", Provider: "fake", State: schemas.InstanceReady,
		Ref: schemas.Ref{ID: "box", Epoch: "1"}, Made: now.Add(-time.Hour), Used: now.Add(-time.Minute), Deadline: now.Add(time.Hour),
	}
	for _, c := range change {
		c(&i)
	}
	if _, err := lifecycle.OpenInstances(e.bus).Put(e.t.Context(), i.Key(), i); err != nil {
		e.t.Fatal(err)
	}
	return i
}

// openJob is job with the mark of one that has not settled.
func (e *edge) openJob(change ...func(*schemas.Job)) schemas.Job {
	e.t.Helper()
	j := e.job(change...)
	marks := streams.OpenBucket[map[string]string](e.bus, streams.OpenJobMarks)
	if _, err := marks.Put(e.t.Context(), j.Key(), map[string]string{"provider": j.Provider}); err != nil {
		e.t.Fatal(err)
	}
	return j
}

func at(i schemas.Instance) string { return "/v1/instances/" + string(i.Document().ID) }

// carryOut does once what is wanted of an instance, as a worker would.
func (e *edge) carryOut(i schemas.Instance, do func(*schemas.Instance) (gone bool)) {
	e.t.Helper()
	eventually(e.t, "something is wanted", func() bool {
		p, err := lifecycle.OpenInstances(e.bus).Get(e.t.Context(), i.Key())
		if err != nil || p.Value.Wanted.State == "" {
			return false
		}
		if v := p.Value; do(&v) {
			err = lifecycle.OpenInstances(e.bus).DeleteRevision(e.t.Context(), i.Key(), p.Revision)
		} else {
			v.Wanted = schemas.InstanceWish{}
			_, err = lifecycle.OpenInstances(e.bus).Update(e.t.Context(), i.Key(), v, p.Revision)
		}
		return err == nil
	})
}

func TestInstancesAreListed(t *testing.T) {
	e := open(t)
	one := e.instance()
	two := e.instance(func(i *schemas.Instance) { i.Sandbox, i.State, i.Paused = "sb_2", schemas.InstancePaused, time.Now() })
	e.instance(func(i *schemas.Instance) { i.Account = bob })
	for query, want := range map[string][]schemas.Instance{
		"": {two, one}, "?sandbox=sb_1": {one}, "?workspace=ws_1&state=paused": {two}, "?provider=fake": {two, one}, "?provider=other": {},
		"?state=ready": {one}, "?sandbox=sb_3": {}, "?limit=1": {two},
	} {
		a := e.get("/v1/instances" + query)
		list := decode[instances.List](t, a)
		if a.status != http.StatusOK || len(list.Instances) != len(want) || list.More != (query == "?limit=1") {
			t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		for n, i := range want {
			if got := list.Instances[n]; got.ID != i.Document().ID || got.State != i.State || got.Account != alice {
				t.Errorf("%s: %+v, want %+v", query, got, i.Document())
			}
		}
	}
	if a := e.get("/v1/instances"); strings.Contains(a.body, "epoch") || strings.Contains(a.body, `"ref"`) {
		t.Errorf("the provider's own names are shown: %s", a.body)
	}
	for _, query := range []string{
		"?sandbox=x", "?workspace=sb_1", "?state=removed", "?state=x", "?provider=*", "?provider=a.b", "?limit=0", "?limit=501",
		"?sandbox=sb_1&sandbox=sb_2", "?x=1",
	} {
		if a := e.get("/v1/instances" + query); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
}

// Reading is no use: neither the record nor its revision changes.
func TestReadingAnInstanceChangesNothing(t *testing.T) {
	e := open(t)
	i := e.instance()
	before, err := lifecycle.OpenInstances(e.bus).Get(t.Context(), i.Key())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/instances", at(i), at(i)} {
		if a := e.get(path); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
	}
	after, err := lifecycle.OpenInstances(e.bus).Get(t.Context(), i.Key())
	if err != nil || after.Revision != before.Revision || after.Value != before.Value {
		t.Errorf("%+v, %v was %+v", after, err, before)
	}
}

func TestAnInstanceShowsWhatIsInIt(t *testing.T) {
	e := open(t)
	i := e.instance()
	j := e.openJob()
	e.openJob(func(j *schemas.Job) { j.Workspace = "ws_2" })
	e.openJob(func(j *schemas.Job) { j.DedicatedSandbox = true })
	e.settle(e.openJob(), schemas.Completion{State: schemas.JobCompleted})
	a := e.get(at(i))
	got := decode[schemas.InstanceDocument](t, a)
	if a.status != http.StatusOK || len(got.Jobs) != 1 || got.Jobs[0] != j.ID || len(got.Calls) != 0 {
		t.Errorf("%d %s, want the job %s", a.status, a.body, j.ID)
	}
	for path, status := range map[string]int{
		"/v1/instances/fake.sb_1.ws_9": http.StatusNotFound, "/v1/instances/x": http.StatusBadRequest,
		"/v1/instances/%2a.sb_1.ws_1":        http.StatusBadRequest,
		"/v1/instances/owner.fake.sb_1.ws_1": http.StatusBadRequest, at(i) + "?x=1": http.StatusBadRequest,
	} {
		if a := e.get(path); a.status != status {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.body, status)
		}
	}
}

func TestAWishIsPutOnRecordAndAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		method, verb string
		from         schemas.InstanceState
		want         schemas.InstanceTarget
		do           func(*schemas.Instance) bool
		then         schemas.InstanceState
	}{
		"pause": {http.MethodPost, "/pause", schemas.InstanceReady, schemas.WantPaused, func(i *schemas.Instance) bool {
			i.State, i.Paused = schemas.InstancePaused, time.Now()
			return false
		}, schemas.InstancePaused},
		"resume": {http.MethodPost, "/resume", schemas.InstancePaused, schemas.WantRunning, func(i *schemas.Instance) bool {
			i.State = schemas.InstanceReady
			return false
		}, schemas.InstanceReady},
		"remove": {http.MethodDelete, "", schemas.InstanceReady, schemas.WantRemoved, func(*schemas.Instance) bool { return true },
			schemas.InstanceRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			i := e.instance(func(i *schemas.Instance) { i.State = c.from })
			asked := i
			want := func(query string) (int, schemas.InstanceDocument) {
				a := e.do(ask{method: c.method, path: at(i) + c.verb + query})
				return a.status, decode[schemas.InstanceDocument](t, a)
			}
			for range 2 { // who asks again asks for the same
				if status, got := want(""); status != http.StatusAccepted || got.Wanted != c.want || got.State != c.from {
					t.Fatalf("%d %+v", status, got)
				}
			}
			if status, got := want("?wait=0.3"); status != http.StatusAccepted || got.Wanted != c.want {
				t.Errorf("after a wait in which nobody did it: %d %+v", status, got)
			}
			type answer struct {
				status int
				got    schemas.InstanceDocument
			}
			e.instance(func(i *schemas.Instance) { *i = asked }) // the wish is that of who waits
			answered := make(chan answer, 1)
			go func() {
				status, got := want("?wait=60")
				answered <- answer{status, got}
			}()
			e.carryOut(i, c.do)
			if a := <-answered; a.status != http.StatusOK || a.got.State != c.then || a.got.Wanted != "" {
				t.Errorf("when it was done: %+v", a)
			}
			if c.want == schemas.WantRemoved {
				if a := e.do(ask{method: c.method, path: at(i)}); a.status != http.StatusNotFound {
					t.Errorf("once more: %d %s", a.status, a.body)
				}
				return
			}
			if status, got := want("?wait=60"); status != http.StatusOK || got.State != c.then {
				t.Errorf("once more: %d %+v", status, got)
			}
		})
	}
}

// A wish that was replaced, and an instance that ended instead, end the wait.
func TestAWaitForAnInstanceEndsWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(*schemas.Instance) bool
		status int
	}{
		"somebody asked for something else": {func(*schemas.Instance) bool { return false }, http.StatusConflict},
		"it ended":                          {func(*schemas.Instance) bool { return true }, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			i := e.instance()
			answered := make(chan answer, 1)
			go func() { answered <- e.do(ask{method: http.MethodPost, path: at(i) + "/pause?wait=60"}) }()
			e.carryOut(i, c.do)
			if a := <-answered; a.status != c.status {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

func TestWhatIsInAnInstanceIsNotTakenAway(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.CanPause = func(provider string) bool { return provider == "fake" } })
	i := e.instance()
	other := e.instance(func(i *schemas.Instance) { i.Provider = "other" })
	j := e.openJob()
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{http.MethodPost, at(i) + "/pause", http.StatusConflict, string(j.ID)},
		{http.MethodDelete, at(i), http.StatusConflict, "force"},
		{http.MethodPost, at(i) + "/resume", http.StatusOK, "ready"},
		{http.MethodPost, at(other) + "/pause", http.StatusNotImplemented, "remove the instance"},
		{http.MethodDelete, at(i) + "?force=x", http.StatusBadRequest, "force"},
		{http.MethodPost, at(i) + "/pause?force=1", http.StatusBadRequest, "force"},
		{http.MethodPost, at(i) + "/pause?wait=-1", http.StatusBadRequest, "wait"},
		{http.MethodPost, at(i) + "/halt", http.StatusNotFound, "no such route"},
	} {
		if a := e.do(ask{method: c.method, path: c.path}); a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s %s: %d %s, want %d and %q", c.method, c.path, a.status, a.body, c.status, c.says)
		}
	}
	p, err := lifecycle.OpenInstances(e.bus).Get(t.Context(), i.Key())
	if err != nil || p.Value.Wanted.State != "" {
		t.Errorf("what was refused is wanted: %+v, %v", p.Value, err)
	}
	if a := e.do(ask{method: http.MethodDelete, path: at(i) + "?force=true"}); a.status != http.StatusAccepted {
		t.Errorf("with force: %d %s", a.status, a.body)
	}
}

// With force a running call is cancelled, whether or not the removal was requested before.
func TestARemovalWithForceCancelsWhatRuns(t *testing.T) {
	for name, before := range map[string]schemas.InstanceWish{
		"first": {}, "after one without": {State: schemas.WantRemoved, At: time.Now().UTC().Truncate(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			e.work()
			i := e.instance(func(i *schemas.Instance) { i.Wanted = before })
			call := e.post("/v1/calls", `{"id":"mine","tool":"bash","input":{"command":"hang","background":true}}`)
			if call.status >= 300 {
				t.Fatalf("%d %s", call.status, call.body)
			}
			eventually(t, "the call runs in it", func() bool {
				return len(decode[schemas.InstanceDocument](t, e.get(at(i))).Calls) == 1
			})
			for range 2 { // the second finds that it has ended, or is about to
				a := e.do(ask{method: http.MethodDelete, path: at(i) + "?force=1"})
				if got := decode[schemas.InstanceDocument](t, a); a.status != http.StatusAccepted || got.Wanted != schemas.WantRemoved {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
			if r := decode[schemas.Result](t, e.get("/v1/calls/mine?wait=60")); r.Status != schemas.StatusCancelled {
				t.Errorf("the call ended with %+v", r)
			}
			e.carryOut(i, func(*schemas.Instance) bool { return true })
			if a := e.get(at(i)); a.status != http.StatusNotFound {
				t.Errorf("the instance: %d %s", a.status, a.body)
			}
		})
	}
}
