package deno_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestListsEnd: a list without an end is an error, and not a part of it.
//
//guarantee:bounds
func TestListsEnd(t *testing.T) {
	t.Parallel()
	cloudtest.ListsEnd(t, func(w http.ResponseWriter, _ int64) {
		_, err := fmt.Fprint(w, `[{"id":"sbx_ord_1","status":"stopped"}`)
		for long := `,{"id":"sbx_ord_2","status":"stopped","labels":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`; err == nil; {
			_, err = fmt.Fprint(w, long)
		}
	}, func(url string) providers.Lister { return on(t, url, nil) })
}

// TestStoppedSandboxesInLists: a list has what has stopped for as long as the service keeps it, and that may be more than any other answer.
//
//guarantee:bounds
func TestStoppedSandboxesInLists(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	kept := spec()
	kept.Deployment = "dep-1"
	ref, err := p.Reserve(t.Context(), "key", kept)
	testwait.OK(t, err)
	s.Ended(40 << 20)
	boxes, err := p.ListKept(t.Context(), "dep-1")
	if err != nil || len(boxes) != 1 || boxes[0].Ref != ref {
		t.Errorf("it lists %+v, %v", boxes, err)
	}
	s.Ended(0)
	testwait.OK(t, p.Release(t.Context(), ref))
}

// TestAgesAreByTheServicesClock: neither the clock of this host nor that of the worker that has made a sandbox makes it older than it is.
func TestAgesAreByTheServicesClock(t *testing.T) {
	t.Parallel()
	service := time.Now().Add(-48 * time.Hour).UTC() // of its clock
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", service.Format(http.TimeFormat))
		_, _ = fmt.Fprintf(w, `[{"id":"sbx_ord_1","status":"running","createdAt":"%s","labels":{"sandjet":"sandjet","sandjet-box":"kept-1",`+
			`"sandjet-key":"key","sandjet-facts":"rules.%s..1.acct_1"}}]`, service.Add(-20*time.Minute).Format(time.RFC3339), cloud.Digest("dep-1")[:16])
	}))
	t.Cleanup(s.Close)
	boxes, err := on(t, s.URL, nil).ListKept(t.Context(), "dep-1")
	if err != nil || len(boxes) != 1 || boxes[0].Age > time.Hour || boxes[0].Age < 10*time.Minute {
		t.Errorf("%+v, %v", boxes, err)
	}
}
