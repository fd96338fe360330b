package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
)

// serve asks without a connection.
func (e *edge) serve(method, path, key string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(e.t.Context(), method, path, body)
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	e.gw.ServeHTTP(w, r)
	return w
}

// metric reads a number of the gateway.
func (e *edge) metric(name string) float64 {
	e.t.Helper()
	for line := range strings.Lines(e.get("/metrics").body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				e.t.Fatal(err)
			}
			return n
		}
	}
	e.t.Fatalf("there is no %s", name)
	return 0
}

// TestAThousandWaitersAreOneReader: those who wait for calls of a conversation share what is read of it, another account's
// calls go their way meanwhile, and everybody gets the result.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAThousandWaitersAreOneReader(t *testing.T) {
	t.Parallel()
	const calls, waiters, events = 100, 1000, 600
	e := open(t)
	for n := range calls {
		body := fmt.Sprintf(`{"id":"w_%d","conversation":"c_1","tool":"bash","input":{"command":"echo %d"}}`, n, n)
		if w := e.serve(http.MethodPost, "/v1/calls", aliceKey, strings.NewReader(body)); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	for n := range events {
		e.note("c_1", n, "something")
	}
	pages := natstest.Dial(t, e.server.URL(), "role", "role").Count(t, "$JS.API.DIRECT.GET.EVENTS_00")
	var waiting sync.WaitGroup
	for n := range waiters {
		waiting.Go(func() {
			w := e.serve(http.MethodGet, fmt.Sprintf("/v1/calls/w_%d?wait=60s", n%calls), aliceKey, nil)
			if want := fmt.Sprintf(`"text":"%d"`, n%calls); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
				t.Errorf("waiter %d got %d %s, want %s", n, w.Code, w.Body, want)
			}
		})
	}
	eventually(t, "all wait", func() bool { return e.metric("sandjet_waiting_requests") == waiters })
	if n := e.metric("sandjet_requests_in_hand"); n != 0 { // /metrics belongs to no account
		t.Errorf("%v requests are in hand, though all wait", n)
	}
	for n := range 10 {
		body := fmt.Sprintf(`{"id":"b_%d","tool":"bash","input":{"command":"echo bob"}}`, n)
		if w := e.serve(http.MethodPost, "/v1/calls", bobKey, strings.NewReader(body)); w.Code != http.StatusAccepted {
			t.Fatalf("bob: %d %s", w.Code, w.Body)
		}
		if w := e.serve(http.MethodGet, fmt.Sprintf("/v1/calls/b_%d", n), bobKey, nil); w.Code != http.StatusAccepted {
			t.Fatalf("bob: %d %s", w.Code, w.Body)
		}
	}
	e.work()
	waiting.Wait()
	if n := pages(); n == 0 || n > waiters/2 { // three for each when each reads for itself
		t.Errorf("%d pages were read for %d waiters", n, waiters)
	}
	if n := e.metric("sandjet_waiting_requests"); n != 0 {
		t.Errorf("%v still wait", n)
	}
}

// TestWaitsTakeAPlace: a waiting request occupies a slot as a long poll does. When no slot is free it is refused before anything happens.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWaitsTakeAPlace(t *testing.T) {
	t.Parallel()
	e := open(t, func(o *gateway.Options) { o.Limits.Sockets = 2 })
	call := func(id string) io.Reader {
		return strings.NewReader(`{"id":"` + id + `","tool":"bash","input":{"command":"echo x"}}`)
	}
	var waiting sync.WaitGroup
	for _, id := range []string{"one", "two"} {
		waiting.Go(func() {
			if w := e.serve(http.MethodPost, "/v1/calls?wait=60s", aliceKey, call(id)); w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	eventually(t, "both wait", func() bool { return e.metric("sandjet_waiting_requests") == 2 })
	w := e.serve(http.MethodPost, "/v1/calls?wait=60s", aliceKey, call("three"))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("the third who waits: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if a := e.get("/v1/calls/three"); a.status != http.StatusNotFound {
		t.Errorf("the call of who was refused: %d %s", a.status, a.body)
	}
	if w := e.serve(http.MethodGet, "/v1/calls/one?wait=60s", aliceKey, nil); w.Code != http.StatusTooManyRequests {
		t.Errorf("the third who asks and waits: %d %s", w.Code, w.Body)
	}
	if w := e.serve(http.MethodPost, "/v1/calls", aliceKey, call("three")); w.Code != http.StatusAccepted {
		t.Errorf("who does not wait: %d %s", w.Code, w.Body)
	}
	waiting.Go(func() {
		if w := e.serve(http.MethodPost, "/v1/calls?wait=60s", bobKey, call("bobs")); w.Code != http.StatusOK {
			t.Errorf("bob: %d %s", w.Code, w.Body)
		}
	})
	e.work()
	waiting.Wait()
	if w := e.serve(http.MethodGet, "/v1/calls/three?wait=60s", aliceKey, nil); w.Code != http.StatusOK {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}

// stalled is a body whose first byte was taken, and whose rest comes when the test says so.
type stalled struct {
	io.Reader

	taken chan struct{}
	once  sync.Once
}

func (s *stalled) Read(b []byte) (int, error) {
	s.once.Do(func() { close(s.taken) })
	return s.Reader.Read(b)
}

// slowly sends a call whose body does not end before the returned function is called, which returns the status.
func (e *edge) slowly(key string, length int64) (end func() int) {
	e.t.Helper()
	in, out := io.Pipe()
	body := &stalled{Reader: in, taken: make(chan struct{})}
	r := httptest.NewRequestWithContext(e.t.Context(), http.MethodPost, "/v1/calls", body)
	r.ContentLength = length
	r.Header.Set("Authorization", "Bearer "+key)
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		e.gw.ServeHTTP(w, r)
	}()
	select {
	case <-body.taken:
	case <-done:
	}
	return func() int {
		go func() { _, _ = io.WriteString(out, `{"tool":"bash","input":{"command":"true"}}`); _ = out.Close() }()
		<-done
		_ = in.Close()
		return w.Code
	}
}

// TestBodiesInMemoryAreBounded: an account's bodies take no more than their share, known before the first byte where the
// length is announced, and all of them no more than all may.
//
//guarantee:what-one-tenant-can-do-to-another
func TestBodiesInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	const announced = 40 << 10
	for _, c := range []struct {
		name             string
		limits           gateway.Limits
		first, second    int64 // lengths; -1: not announced
		alices, bobs     int
		padding          int // of a body that is not announced
		wantCode         schemas.Code
		wantAfterRelease int
	}{
		{"an account's", gateway.Limits{Bodies: 64 << 10}, announced, announced, 429, 202, 0, schemas.Exhausted, 202},
		{"of all", gateway.Limits{AllBodies: 64 << 10}, announced, announced, 503, 503, 0, schemas.Unavailable, 202},
		{"enough for both", gateway.Limits{Bodies: 128 << 10}, announced, announced, 202, 202, 0, "", 202},
		{"one that grows", gateway.Limits{Bodies: 64 << 10}, announced, -1, 429, 202, 50 << 10, schemas.Exhausted, 202},
		{"one alone that is too large", gateway.Limits{Bodies: 16 << 10}, -1, -1, 429, 429, 50 << 10, schemas.Exhausted, 429},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := open(t, func(o *gateway.Options) { o.Limits = c.limits })
			send := func(key string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/calls",
					strings.NewReader(`{"tool":"bash","input":{"command":"true"}}`+strings.Repeat(" ", c.padding)))
				r.Header.Set("Authorization", "Bearer "+key)
				r.ContentLength = c.second
				w := httptest.NewRecorder()
				e.gw.ServeHTTP(w, r)
				return w
			}
			end := e.slowly(aliceKey, c.first)
			for key, want := range map[string]int{aliceKey: c.alices, bobKey: c.bobs} {
				w := send(key)
				if w.Code != want || want > 400 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), string(c.wantCode))) {
					t.Errorf("%s beside a body: %d %v %s, want %d", key, w.Code, w.Header(), w.Body, want)
				}
			}
			if got := end(); got != http.StatusAccepted {
				t.Errorf("the first: %d", got)
			}
			if w := send(aliceKey); w.Code != c.wantAfterRelease {
				t.Errorf("afterwards: %d %s", w.Code, w.Body)
			}
			if n := e.metric("sandjet_body_bytes"); n != 0 {
				t.Errorf("%v bytes are still counted", n)
			}
		})
	}
}

// TestRequestsInHandAreBounded: one account's slow requests leave others theirs.
//
//guarantee:what-one-tenant-can-do-to-another
func TestRequestsInHandAreBounded(t *testing.T) {
	t.Parallel()
	e := open(t, func(o *gateway.Options) { o.Limits.Requests, o.Limits.AllRequests = 2, 3 })
	first, second := e.slowly(aliceKey, 1000), e.slowly(aliceKey, 1000)
	for _, path := range []string{"/v1/calls/x", "/v1/conversations/c_1/events", "/v1/streams/s"} {
		if a := e.get(path); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("%s beside two of the account: %d %v %s", path, a.status, a.header, a.body)
		}
	}
	third := e.slowly(bobKey, 1000)
	if a := e.do(ask{method: http.MethodGet, path: "/v1/calls/x", key: bobKey}); a.status != http.StatusServiceUnavailable ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("beside three of all: %d %v %s", a.status, a.header, a.body)
	}
	for _, end := range []func() int{first, second, third} {
		if got := end(); got != http.StatusAccepted {
			t.Errorf("a slow one: %d", got)
		}
	}
	if a := e.get("/v1/calls/x"); a.status != http.StatusNotFound {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}
