package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// atRest is an instance in a state, with a life of an hour.
func atRest(s schemas.InstanceState, now time.Time) schemas.Instance {
	return schemas.Instance{
		Account: "acct_1", Sandbox: "sb_1", Workspace: "ws_1", Provider: "docker", State: s, Ref: schemas.Ref{ID: "box", Epoch: "1"},
		Made: now, Used: now, Deadline: now.Add(time.Hour), Hooked: now,
	}
}

func TestABoxIsEnteredUnlessItIsBeingPutAway(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const late = 30 * time.Minute
	same, other := schemas.Ref{ID: "box", Epoch: "1"}, schemas.Ref{ID: "box", Epoch: "2"}
	for name, c := range map[string]struct {
		state   schemas.InstanceState
		ref     schemas.Ref
		refused bool
		renewed bool // it has a life of its own
	}{
		"as it was":                {state: schemas.InstanceReady, ref: same},
		"another one":              {state: schemas.InstanceReady, ref: other, renewed: true},
		"for the first time":       {state: schemas.InstanceReserving, ref: other, renewed: true},
		"awake again":              {state: schemas.InstancePaused, ref: same},
		"awake, with other inside": {state: schemas.InstancePaused, ref: other},
		"being paused":             {state: schemas.InstancePausing, ref: same, refused: true},
		"being released":           {state: schemas.InstanceEnding, ref: same, refused: true},
		"woken while it is paused": {state: schemas.InstancePausing, ref: other, refused: true},
		"woken while it is ended":  {state: schemas.InstanceEnding, ref: other, refused: true},
		"after one was released":   {state: schemas.InstanceEnding, ref: schemas.Ref{ID: "next", Epoch: "1"}, renewed: true},
	} {
		i := atRest(c.state, now)
		err := lifecycle.ReadyInstance(&i, c.ref, now.Add(late), 2*time.Hour, true)
		if (err != nil) != c.refused || err != nil && schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if c.refused {
			continue
		}
		deadline := now.Add(time.Hour)
		if c.renewed {
			deadline = now.Add(late + 2*time.Hour)
		}
		if i.State != schemas.InstanceReady || i.Ref != c.ref || !i.Deadline.Equal(deadline) || i.Hooked.IsZero() != (c.ref != same) {
			t.Errorf("%s: %+v", name, i)
		}
		if err := lifecycle.ReadyInstance(&i, c.ref, deadline, time.Hour, true); schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("%s, at its end: %v", name, err)
		}
	}
}

func TestABoxIsPausedFromReadyOnly(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, s := range schemas.InstanceStates() {
		i := atRest(s, now)
		i.Wanted = schemas.InstanceWish{State: schemas.WantPaused, At: now}
		awake := s == schemas.InstanceReady || s == schemas.InstancePausing
		if err := lifecycle.PauseInstance(&i, now); (err == nil) != awake || err != nil && schemas.CodeOf(err) != schemas.Conflict {
			t.Errorf("pause while %s: %v", s, err)
		}
		err := lifecycle.PausedInstance(&i, now)
		if (err == nil) != awake || awake && (i.State != schemas.InstancePaused || i.Wanted.State != "") {
			t.Errorf("paused while %s: %v, %+v", s, err, i)
		}
		lifecycle.EndInstance(&i, now)
		if i.State != schemas.InstanceEnding || i.Ending.IsZero() {
			t.Errorf("ended while %s: %+v", s, i)
		}
		lifecycle.ReserveInstance(&i, "worker_1", now)
		if i.State != schemas.InstanceReserving || i.Worker != "worker_1" || !i.Ref.IsZero() || !i.Deadline.IsZero() {
			t.Errorf("reserved after %s: %+v", s, i)
		}
	}
}

func TestAWishIsOnRecordUntilItIsSo(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		rows := lifecycle.OpenInstances(b)
		i := atRest(schemas.InstanceReady, b.Now())
		if _, err := lifecycle.WantInstance(t.Context(), b, i.Key(), schemas.WantPaused); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("a wish for what is not there: %v", err)
		}
		rev, err := rows.Create(t.Context(), i.Key(), i, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := func(w, on schemas.InstanceTarget, code schemas.Code) {
			t.Helper()
			got, err := lifecycle.WantInstance(t.Context(), b, i.Key(), w)
			if schemas.CodeOf(err) != code || err == nil && got.Wanted.State != on {
				t.Errorf("after a wish for %s: %+v, %v", w, got.Wanted, err)
			}
			p, err := rows.Get(t.Context(), i.Key())
			if err != nil || p.Value.Wanted.State != on {
				t.Errorf("on record after a wish for %s: %+v, %v", w, p.Value.Wanted, err)
			}
			rev = p.Revision
		}
		want("asleep", "", schemas.Invalid)
		want(schemas.WantPaused, schemas.WantPaused, "")
		before := rev
		want(schemas.WantPaused, schemas.WantPaused, "")
		if rev != before {
			t.Error("the same wish was written twice")
		}
		want(schemas.WantRemoved, schemas.WantRemoved, "")
		want(schemas.WantRunning, "", "") // it runs
		lifecycle.EndInstance(&i, b.Now())
		if _, err := rows.Update(t.Context(), i.Key(), i, rev); err != nil {
			t.Fatal(err)
		}
		want(schemas.WantRemoved, "", "")
		want(schemas.WantRunning, "", schemas.Conflict)
	})
}
