package e2b_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestListsEnd: a list without an end is an error, and not a part of it.
//
//guarantee:bounds
func TestListsEnd(t *testing.T) {
	t.Parallel()
	cloudtest.ListsEnd(t, func(w http.ResponseWriter, n int64) {
		w.Header().Set("X-Next-Token", fmt.Sprint(n))
		_, _ = fmt.Fprintf(w, `[{"sandboxID":"i%d"}]`, n)
	}, func(url string) providers.Lister { return on(t, url, nil) })
}

// TestAgesAreByTheServicesClock: neither the clock of this host nor that of the worker that has made a sandbox makes it older than it is.
func TestAgesAreByTheServicesClock(t *testing.T) {
	t.Parallel()
	service := time.Now().Add(-48 * time.Hour).UTC().Truncate(time.Second) // of its clock
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", service.Format(http.TimeFormat))
		_, _ = fmt.Fprintf(w, `[{"sandboxID":"i1","state":"running","startedAt":"%s","metadata":{"sandjet-made":"1"}}]`, service.Add(-20*time.Minute).Format(time.RFC3339))
	}))
	t.Cleanup(s.Close)
	boxes, err := on(t, s.URL, nil).ListKept(t.Context(), "dep-1")
	if err != nil || len(boxes) != 1 || boxes[0].Age != 20*time.Minute {
		t.Errorf("%+v, %v", boxes, err)
	}
}
