//go:build linux

package docker_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/schemas"
)

// refusing is a way to an engine on which containers do not start while refuse is set, as without a device that they need.
func refusing(t *testing.T, e *dockertest.Engine) (host string, refuse *atomic.Bool) {
	t.Helper()
	at, err := client.ParseHostURL(e.Host)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, at.Scheme, at.Host+at.Path)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport:     &http.Transport{DialContext: dial},
		FlushInterval: -1,
	}
	refuse = new(atomic.Bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() && strings.HasSuffix(r.URL.Path, "/start") {
			http.Error(w, `{"message":"could not select device driver"}`, http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return "tcp://" + s.Listener.Addr().String(), refuse
}

// A container that was created and cannot be started occupies no slot. A container that has run keeps what is in it.
func TestAContainerThatCannotStartIsNotKept(t *testing.T) {
	t.Parallel()
	e := dockertest.Get(t)
	host, refuse := refusing(t, e)
	p := openOn(t, e, func(o *docker.Options) { o.Host, o.Boxes = host, 1 })
	refuse.Store(true)
	for _, key := range []string{"one", "two", "two"} {
		_, err := p.Reserve(t.Context(), key, spec())
		if err == nil || schemas.CodeOf(err) == schemas.Exhausted {
			t.Errorf("%s: %v, want that it cannot be started", key, err)
		}
	}
	refuse.Store(false)
	ref := reserve(t, p, spec())
	ok(t, p, in(ref, "echo kept > ~/file"))
	e.Run(t, "stop", "-t", "0", ref.ID)
	refuse.Store(true)
	if _, err := p.Reserve(t.Context(), t.Name(), spec()); err == nil {
		t.Error("it was started")
	}
	refuse.Store(false)
	again := reserve(t, p, spec())
	if got := ok(t, p, in(again, "cat ~/file")); again.ID != ref.ID || got != "kept" {
		t.Errorf("it is %+v with %q, want that of %+v", again, got, ref)
	}
}
