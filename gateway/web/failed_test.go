package web

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRequestsThatFailAreLoggedOnceAMinute: a client that has a route fail without end fills no disk with lines about it.
//
//guarantee:bounds
func TestRequestsThatFailAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		e := &Edge{Log: slog.New(slog.NewTextHandler(&text, nil))}
		h := e.Handle(func(http.ResponseWriter, *http.Request) error { return errors.New("broken") })
		fail := func(route string) {
			r := httptest.NewRequest(http.MethodGet, "/x", nil)
			r.Pattern = route
			h(httptest.NewRecorder(), r)
		}
		for range 500 {
			fail("GET /a")
			fail("GET /b")
		}
		if n := strings.Count(text.String(), "\n"); n != 2 {
			t.Fatalf("%d lines, want one of each route:\n%.1000s", n, text.String())
		}
		time.Sleep(time.Minute)
		text.Reset()
		fail("GET /a")
		if !strings.Contains(text.String(), "left_out=499") {
			t.Errorf("after a minute: %s", text.String())
		}
	})
}
