package records_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

const owner schemas.AccountID = "acct_owner"

func endpoint(n int) schemas.Endpoint {
	return schemas.Endpoint{
		ID: schemas.EndpointID(fmt.Sprintf("wh_%03d", n)), Account: owner, URL: "https://example.com/hook", Created: time.Now().UTC(),
		Secrets: []schemas.EndpointSecret{{Key: "whsec_x"}}, Events: []schemas.EventType{schemas.JobFinished},
	}
}

func put(t *testing.T, s *records.Store, n int) schemas.Endpoint {
	t.Helper()
	e := endpoint(n)
	if err := s.Endpoints.Add(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEndpointsAreKeptPerAccount(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	first, second := put(t, s, 2), put(t, s, 1) // the order of their making counts, whatever their ids
	for name, s := range map[string]*records.Store{"the same store": s, "one that is opened later": open(t, b)} {
		list, err := s.Endpoints.List(t.Context(), owner)
		if err != nil || len(list) != 2 || list[0].ID != first.ID || list[1].ID != second.ID {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		got, err := s.Endpoints.Get(t.Context(), owner, first.ID)
		if err != nil || got.URL != first.URL || got.Secrets[0].Key != "whsec_x" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if list, err := s.Endpoints.List(t.Context(), "acct_other"); err != nil || len(list) != 0 {
			t.Errorf("%s: somebody else sees %+v, %v", name, list, err)
		}
	}
	_, theirs := s.Endpoints.Get(t.Context(), "acct_other", first.ID)
	_, nobodys := s.Endpoints.Get(t.Context(), owner, "wh_999")
	if !errors.Is(theirs, schemas.ErrNotFound) || !errors.Is(nobodys, schemas.ErrNotFound) {
		t.Errorf("%v and %v: want not found", theirs, nobodys)
	}
	if err := s.Endpoints.Add(t.Context(), first); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("the same id again: %v", err)
	}
	if err := s.Endpoints.Remove(t.Context(), owner, first.ID); err != nil {
		t.Fatal(err)
	}
	if list, _ := s.Endpoints.List(t.Context(), owner); len(list) != 1 {
		t.Errorf("after the deletion there is %+v", list)
	}
	for name, err := range map[string]error{
		"deleted twice": s.Endpoints.Remove(t.Context(), owner, first.ID),
		"disabled":      s.Endpoints.Disable(t.Context(), owner, first.ID, "x"),
		"no id":         s.Endpoints.Remove(t.Context(), owner, "a.b"),
	} {
		if !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a caller does with an endpoint does not reach the copy that others read.
func TestEndpointsAreCopies(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	e := put(t, s, 1)
	got, err := s.Endpoints.Get(t.Context(), owner, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.Secrets[0].Key, got.Events[0] = "changed", "changed"
	list, err := s.Endpoints.List(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	list[0].Secrets[0].Key = "changed"
	if again, err := s.Endpoints.Get(t.Context(), owner, e.ID); err != nil || again.Secrets[0].Key != "whsec_x" ||
		again.Events[0] != schemas.JobFinished {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestEndpointsAreLimited(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	for n := range schemas.MaxEndpoints {
		put(t, s, n)
	}
	if err := s.Endpoints.Add(t.Context(), endpoint(999)); !errors.Is(err, schemas.ErrExhausted) {
		t.Errorf("%v: want exhausted", err)
	}
	other := endpoint(999)
	other.Account = "acct_other"
	if err := s.Endpoints.Add(t.Context(), other); err != nil {
		t.Errorf("another account: %v", err)
	}
}

// Of changes at the same time none is lost.
func TestChangesOfAnEndpointMeet(t *testing.T) {
	t.Parallel()
	b := bus(t)
	stores := []*records.Store{open(t, b), open(t, b), open(t, b)}
	e := put(t, stores[0], 1)
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			_, err := s.Endpoints.Update(t.Context(), owner, e.ID, func(e *schemas.Endpoint) error {
				e.Concurrency++
				e.ID = "wh_other" // who changes cannot move it
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := open(t, b).Endpoints.Get(t.Context(), owner, e.ID)
	if err != nil || got.Concurrency != len(stores) || got.ID != e.ID {
		t.Errorf("%+v, %v", got, err)
	}
	stop := errors.New("enough")
	if _, err := stores[0].Endpoints.Update(t.Context(), owner, e.ID, func(*schemas.Endpoint) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v: want the change's own error", err)
	}
	bad := func(e *schemas.Endpoint) error { e.URL = "nowhere"; return nil }
	if _, err := stores[0].Endpoints.Update(t.Context(), owner, e.ID, bad); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("%v: want invalid", err)
	}
}

func TestFailingIsNotedOnceAndForgotten(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	e := put(t, s, 1)
	begun := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, step := range []struct {
		failing bool
		now     time.Time
		want    time.Time
	}{
		{false, begun, time.Time{}},
		{true, begun, begun},
		{true, begun.Add(time.Hour), begun},
		{false, begun.Add(2 * time.Hour), time.Time{}},
		{true, begun.Add(3 * time.Hour), begun.Add(3 * time.Hour)},
	} {
		if err := s.Endpoints.Failing(t.Context(), owner, e.ID, step.failing, step.now); err != nil {
			t.Fatal(err)
		}
		got, err := open(t, b).Endpoints.Get(t.Context(), owner, e.ID)
		if err != nil || !got.FailingSince.Equal(step.want) {
			t.Errorf("%+v: failing since %s, %v", step, got.FailingSince, err)
		}
	}
	if err := s.Endpoints.Disable(t.Context(), owner, e.ID, "gone"); err != nil {
		t.Fatal(err)
	}
	if err := s.Endpoints.Disable(t.Context(), owner, e.ID, "again"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Endpoints.Get(t.Context(), owner, e.ID); err != nil || !got.Disabled || got.Reason != "gone" ||
		got.Wants(schemas.JobFinished) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Another process learns of an endpoint without being asked about it.
func TestEndpointsComeToOtherProcesses(t *testing.T) {
	t.Parallel()
	b := bus(t)
	writer, reader := open(t, b), open(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- reader.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	until := func(n int) {
		t.Helper()
		for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) { // the pace of polling
			if list, err := reader.Endpoints.List(t.Context(), owner); err == nil && len(list) == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the other process never saw %d endpoints", n)
			}
		}
	}
	e := put(t, writer, 1)
	until(1)
	if err := writer.Endpoints.Remove(t.Context(), owner, e.ID); err != nil {
		t.Fatal(err)
	}
	until(0)
}
