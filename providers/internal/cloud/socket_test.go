package cloud_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

func upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("X-Config") != "sesame-123" || r.URL.Path != "/v1/socket" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	conn, err := (&websocket.Upgrader{}).Upgrade(w, r, http.Header{"X-Id": {"seven"}})
	if err != nil {
		return
	}
	_ = conn.WriteMessage(websocket.TextMessage, []byte("hello")) // the client may be gone
	_ = conn.Close()
}

// TestSocket: a WebSocket is requested like any other call: with the common headers and retries by the table. Any other response is an
// error without secrets.
func TestSocket(t *testing.T) {
	t.Parallel()
	call := cloud.Call{Path: "/socket", Auth: http.Header{"X-Config": {"sesame-123"}}, Wait: 5 * time.Second}
	table := []cloud.Retry{{Route: "GET /socket", On: []int{http.StatusServiceUnavailable}}}
	telling := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"code":"LIMIT","message":"` + token + ` and ` + r.Header.Get("X-Config") + `"}`))
	}
	var n atomic.Int32
	c := service(t, answers(&n, status(http.StatusServiceUnavailable, ""), upgrade), table...)
	conn, a, err := c.Socket(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.ReadMessage(); err != nil || string(text) != "hello" || a.Header.Get("X-Id") != "seven" || n.Load() != 2 {
		t.Errorf("%q, %v, %v after %d requests", text, err, a, n.Load())
	}
	_ = conn.Close()
	n.Store(0)
	_, _, err = service(t, answers(&n, telling), table...).Socket(t.Context(), call)
	var e *cloud.Error
	if !errors.As(err, &e) || e.Status != http.StatusTooManyRequests || e.Kind != "LIMIT" || e.RetryAfter != 7*time.Second || !e.Sent ||
		n.Load() != 1 || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v, %+v after %d requests", err, e, n.Load())
	}
	n.Store(0)
	_, _, err = service(t, answers(&n, drop), table...).Socket(t.Context(), call)
	if !errors.As(err, &e) || e.Status != 0 || !e.Sent || n.Load() != 1 {
		t.Errorf("%v, %+v after %d requests", err, e, n.Load())
	}
	nobody := &cloud.Client{Base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	_, _, err = nobody.Socket(t.Context(), call)
	if !errors.As(err, &e) || e.Sent || schemas.CodeOf(cloud.Explain("x", "It", err)) != schemas.Unavailable {
		t.Errorf("%v, %+v", err, e)
	}
}
