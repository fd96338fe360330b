package sandboxapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// house is what gateways share: the records, the calls and the instances of one account, in memory. A call takes a second.
type house struct {
	mu       sync.Mutex
	sessions schemas.SandboxSessions
	places   map[schemas.WorkspaceID]bool // workspaces with files
	records  map[schemas.WorkspaceID]bool
	calls    map[schemas.CallID]*running
	boxes    map[schemas.WorkspaceID]time.Time // instances, and when a call was last in them
	lingers  time.Duration                     // how long after that they end; 0: at once
	emptied  int
}

// process is one gateway's way to the house. before is called at each step; an error is that of the step.
type process struct {
	*house

	before func() error
}

// instances is its way to the instances of the house.
type instances struct{ process }

type running struct {
	call   schemas.Call
	over   chan struct{}
	status schemas.Status
}

const tenant = schemas.AccountID("acct_a")

func openHouse() *house {
	return &house{
		sessions: schemas.SandboxSessions{Account: tenant}, places: map[schemas.WorkspaceID]bool{},
		records: map[schemas.WorkspaceID]bool{}, calls: map[schemas.CallID]*running{}, boxes: map[schemas.WorkspaceID]time.Time{},
	}
}

// gateway opens one that stops when ctx ends.
func (h *house) gateway(ctx context.Context) *API {
	return h.gatewayWith(ctx, func() error { return nil })
}

func (h *house) gatewayWith(ctx context.Context, before func() error) *API {
	p := process{h, before}
	return New(Options{
		Calls: p, Store: p, Boxes: instances{p}, Log: slog.New(slog.DiscardHandler), Now: time.Now, Draining: ctx, MaxSessions: 10,
		Spec:    schemas.SandboxSpec{Config: schemas.SandboxConfig{Provider: "local"}},
		Metrics: Metrics{Started: func(time.Duration) {}, Evicted: func(string) {}},
	})
}

func (h *house) Get(context.Context, schemas.AccountID) (schemas.SandboxSessions, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return schemas.SandboxSessions{Account: tenant, Sessions: slices.Clone(h.sessions.Sessions)}, nil
}

func (h process) All() []schemas.SandboxSessions {
	l, _ := h.Get(context.Background(), tenant)
	return []schemas.SandboxSessions{l}
}

func (h process) Change(ctx context.Context, _ schemas.AccountID, change func(*schemas.SandboxSessions) error) (
	schemas.SandboxSessions, error,
) {
	if err := errors.Join(h.before(), ctx.Err()); err != nil {
		return schemas.SandboxSessions{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := schemas.SandboxSessions{Account: tenant, Sessions: slices.Clone(h.sessions.Sessions)}
	err := change(&l)
	if err == nil {
		h.sessions = l
	}
	return l, err
}

func (h process) Ensure(_ context.Context, _ schemas.AccountID, s schemas.SandboxSession, _ schemas.SandboxSpec) error {
	if err := h.before(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records[s.Workspace], h.places[s.Workspace] = true, true
	return nil
}

func (h process) Reopen(_ context.Context, _ schemas.AccountID, s schemas.SandboxSession, _ schemas.SandboxSpec) (bool, error) {
	err := h.before()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.records[s.Workspace], err
}

func (h process) Remove(_ context.Context, _ schemas.AccountID, s schemas.SandboxSession) error {
	err := h.before()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.records, s.Workspace)
	}
	return err
}

func (h process) Idle(schemas.AccountID, schemas.SandboxID) time.Duration { return time.Hour }

func (h process) SandboxOf(schemas.AccountID, string) schemas.SandboxID { return "sb_a" }

func (h instances) Look(context.Context, schemas.AccountID, schemas.SandboxSession) (there, busy bool, err error) {
	return false, false, nil
}

func (h instances) State(context.Context, schemas.AccountID, schemas.SandboxSession) (schemas.InstanceState, time.Time, error) {
	return "", time.Time{}, nil
}

// Remove cancels what runs in a session, whichever client started it, and waits 20 seconds for the end of its instance.
func (h instances) Remove(_ context.Context, _ schemas.AccountID, s schemas.SandboxSession, _ bool) error {
	err := h.before()
	h.mu.Lock()
	for _, r := range h.calls {
		if r.call.Workspace == s.Workspace && r.status == "" {
			r.status = schemas.StatusCancelled
			close(r.over)
		}
	}
	left := h.lingers - time.Since(h.boxes[s.Workspace])
	h.mu.Unlock()
	if err != nil || left <= 0 {
		return err
	}
	time.Sleep(min(left, 20*time.Second))
	if left > 20*time.Second {
		return schemas.Errorf(schemas.Timeout, "the session's instance has not ended yet")
	}
	return nil
}

func (h process) Submit(_ context.Context, a schemas.AccountID, q schemas.Request, _ time.Duration) (schemas.Call, error) {
	if err := h.before(); err != nil {
		return schemas.Call{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := schemas.Call{
		ID: q.ID, Account: a, Workspace: schemas.WorkspaceID(q.Workspace), Accepted: time.Now(), Deadline: time.Now().Add(time.Minute),
	}
	if !h.records[c.Workspace] {
		return c, schemas.OpErrorf(schemas.NotFound, "workspace", "there is no such workspace")
	}
	h.calls[c.ID] = &running{call: c, over: make(chan struct{})}
	h.boxes[c.Workspace] = time.Now()
	return c, nil
}

func (h process) Find(context.Context, schemas.AccountID, schemas.CallID) (schemas.Call, error) {
	return schemas.Call{}, schemas.Errorf(schemas.NotFound, "there is no such call")
}

func (h process) Await(ctx context.Context, c schemas.Call, within time.Duration) (*schemas.Result, error) {
	h.mu.Lock()
	r := h.calls[c.ID]
	h.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.over:
	case <-time.After(min(within, time.Second)):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.status == "" {
		r.status = schemas.StatusCompleted
		close(r.over)
		h.emptied++
		delete(h.places, c.Workspace)
	}
	return &schemas.Result{Status: r.status, Output: &schemas.Output{OK: r.status == schemas.StatusCompleted}}, nil
}

func (h process) Cancel(context.Context, schemas.Call, string) error { return nil }

// made has a session.
func (h *house) made(t *testing.T, id string, lease *schemas.SandboxLease) {
	t.Helper()
	if _, _, err := h.gateway(t.Context()).session(t.Context(), tenant, id, entry{lease: lease}); err != nil {
		t.Fatal(err)
	}
}

// nothing is left of any session.
func (h *house) nothing(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sessions.Sessions)+len(h.places)+len(h.records) > 0 {
		t.Errorf("left are %+v, files %v, workspaces %v", h.sessions, h.places, h.records)
	}
}

// TestASessionIsDestroyedByOneAtATime: requests of several gateways and the end by itself come together, and each says that it is gone.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestASessionIsDestroyedByOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse()
		ctx, cancel := context.WithCancel(t.Context())
		h.made(t, "s", &schemas.SandboxLease{Expires: time.Now().Add(time.Second)})
		time.Sleep(overdueEvery - 100*time.Millisecond)
		var all sync.WaitGroup
		for range 3 {
			a := h.gateway(ctx)
			all.Go(func() { _ = a.EndExpired(ctx) })
			all.Go(func() {
				if err := a.Remove(ctx, tenant, "s"); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Minute)
		h.nothing(t)
		if h.emptied != 1 {
			t.Errorf("its files were removed %d times", h.emptied)
		}
		if err := h.gateway(ctx).Remove(ctx, tenant, "s"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
		cancel()
		all.Wait()
	})
}

// TestAnInstanceThatEndsLate: the call that removes the files is the last one of the session, also where its instance ends later than is
// waited for.
func TestAnInstanceThatEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse()
		h.lingers = 50 * time.Second
		h.made(t, "s", nil)
		h.boxes[h.sessions.Sessions[0].Workspace] = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		a := h.gateway(ctx)
		var ends sync.WaitGroup
		ends.Go(func() { _ = a.EndExpired(ctx) })
		if err := a.Remove(ctx, tenant, "s"); schemas.CodeOf(err) != schemas.Timeout {
			t.Errorf("while its instance is there: %v", err)
		}
		time.Sleep(5 * time.Minute)
		h.nothing(t)
		if h.emptied != 1 {
			t.Errorf("its files were removed %d times", h.emptied)
		}
		cancel()
		ends.Wait()
	})
}

// TestACallThatEmptiesIsMadeAgain: a suspended gateway resumes ending the instance while another has the files removed.
func TestACallThatEmptiesIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse()
		h.made(t, "s", nil)
		s := h.sessions.Sessions[0]
		var late sync.WaitGroup
		late.Go(func() {
			time.Sleep(500 * time.Millisecond)
			if err := (instances{process{h, func() error { return nil }}}).Remove(t.Context(), tenant, s, true); err != nil {
				t.Error(err)
			}
		})
		if err := h.gateway(t.Context()).Remove(t.Context(), tenant, "s"); err != nil {
			t.Error(err)
		}
		late.Wait()
		h.nothing(t)
	})
}

// TestWhoEntersTooLateLeavesNothing: a gateway that was suspended after it made a session makes its workspace when the session is
// destroyed.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestWhoEntersTooLateLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse()
		steps := 0
		slow := h.gatewayWith(t.Context(), func() error {
			if steps++; steps == 2 {
				time.Sleep(11 * time.Minute)
			}
			return nil
		})
		var entered sync.WaitGroup
		entered.Go(func() {
			if _, _, err := slow.session(t.Context(), tenant, "s", entry{}); !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("it entered: %v", err)
			}
		})
		time.Sleep(time.Minute)
		if err := h.gateway(t.Context()).Remove(t.Context(), tenant, "s"); err != nil {
			t.Error(err)
		}
		entered.Wait()
		delete(h.places, slices.Collect(maps.Keys(h.places))[0]) // no call has made files
		h.nothing(t)
	})
}

// TestWhatBrokeOffIsFinished: a gateway cannot reach the log at one of its steps, or dies there, or is suspended for eleven minutes. The
// session still ends, without another request, and a session that is made meanwhile is not touched.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestWhatBrokeOffIsFinished(t *testing.T) {
	for _, what := range []string{"fails", "dies", "stands still"} {
		for n := 1; n <= 7; n++ {
			t.Run(fmt.Sprint(what, " at step ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { brokenOff(t, what, n) })
			})
		}
	}
}

func brokenOff(t *testing.T, what string, at int) {
	h := openHouse()
	h.made(t, "s", nil)
	was := h.sessions.Sessions[0].Workspace
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	steps, began, away := 0, time.Now(), false
	first := h.gatewayWith(ctx, func() error {
		h.mu.Lock()
		steps++
		away = away && what != "fails" || steps == at
		halted := away
		h.mu.Unlock()
		switch {
		case !halted:
			return nil
		case what == "dies":
			<-ctx.Done()
		case what == "stands still":
			time.Sleep(time.Until(began.Add(11 * time.Minute)))
			return nil
		}
		return schemas.Errorf(schemas.Unavailable, "the log cannot be reached")
	})
	var answer error
	over := false
	all.Go(func() {
		err := first.Remove(ctx, tenant, "s")
		h.mu.Lock()
		defer h.mu.Unlock()
		answer, over = err, true
	})
	all.Go(func() { _ = h.gateway(ctx).EndExpired(ctx) })
	time.Sleep(10 * time.Minute)
	unknown := at == 1 // no gateway knows yet that it is to end
	if !unknown {
		h.nothing(t)
		h.made(t, "s", nil) // a new one of its id
	}
	time.Sleep(10 * time.Minute)
	h.mu.Lock()
	defer h.mu.Unlock()
	if steps < at {
		t.Fatalf("it took %d steps only", steps)
	}
	switch l := h.sessions.Sessions; {
	case unknown && what == "stands still":
		if len(l)+len(h.records)+len(h.places) > 0 {
			t.Errorf("%+v, workspaces %v, files %v", l, h.records, h.places)
		}
	case len(l) != 1 || l[0].Ending || !h.records[l[0].Workspace] || !h.places[l[0].Workspace] || (l[0].Workspace == was) != unknown,
		len(h.records) != 1:
		t.Errorf("%+v, workspaces %v, files %v, the first was %s", l, h.records, h.places, was)
	}
	if what == "fails" && (!over || answer == nil) || what == "stands still" && !over || what == "dies" && over {
		t.Errorf("over: %v, it said %v", over, answer)
	}
}

// TestAccountsTakeTurnsAtTheEnd: whatever is due, each account has its turn, a session of it does not come back before its others did, and
// none has more at once than it may.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestAccountsTakeTurnsAtTheEnd(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	all := []schemas.SandboxSessions{}
	for a := range strings.SplitSeq("a b c d e f g h i j", " ") {
		l := schemas.SandboxSessions{Account: schemas.AccountID(a)}
		for n := range 5 {
			l.Sessions = append(l.Sessions, schemas.SandboxSession{ID: fmt.Sprint("s", n), Ending: true})
		}
		l.Sessions = append(l.Sessions, schemas.SandboxSession{ID: "t"}, // it has no end
			schemas.SandboxSession{ID: "u", Ending: true, DestroyerUntil: now.Add(time.Second)},
			schemas.SandboxSession{ID: "v", Lease: &schemas.SandboxLease{Expires: now.Add(time.Second)}})
		all = append(all, l)
	}
	q := newQueue()
	times := map[schemas.AccountID]map[string]int{}
	for round := range 50 { // none can be ended
		q.look(all, now)
		var begun []due
		for d, ok := q.next(); ok; d, ok = q.next() {
			if slices.Contains([]string{"t", "u", "v"}, d.session.ID) {
				t.Fatalf("%+v is not due", d)
			}
			begun = append(begun, d)
			if times[d.account] == nil {
				times[d.account] = map[string]int{}
			}
			times[d.account][d.session.ID]++
		}
		if len(begun) != overdueAtOnce {
			t.Fatalf("round %d: %d began", round, len(begun))
		}
		for a, e := range q.ending {
			if len(e) > overdueEach {
				t.Fatalf("round %d: %d of %s end at once", round, len(e), a)
			}
		}
		q.look(all, now)
		for d, ok := q.next(); ok; d, ok = q.next() {
			t.Fatalf("round %d: %+v began without a place", round, d)
		}
		for _, d := range begun {
			q.finished(d)
		}
	}
	for _, l := range all {
		for _, s := range l.Sessions[:5] {
			if n := times[l.Account][s.ID]; n < 50*overdueAtOnce/10/5-2 {
				t.Errorf("%s %s had %d turns", l.Account, s.ID, n)
			}
		}
	}
	if q.total != 0 || len(q.ending) != 0 {
		t.Errorf("left are %+v", q)
	}
}
