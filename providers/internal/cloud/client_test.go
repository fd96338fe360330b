package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

const token = "sk_0123456789abcdef"

// service starts a server with the handler h, and returns a client of it with a table.
func service(t *testing.T, h http.HandlerFunc, table ...cloud.Retry) *cloud.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	base, err := cloud.ParseBase("url", s.URL+"/v1/")
	if err != nil {
		t.Fatal(err)
	}
	return &cloud.Client{Base: base, Auth: http.Header{"Authorization": {"Bearer " + token}}, Retries: table}
}

// answers returns a handler that uses one handler after the other, the last repeatedly, and counts the requests.
func answers(n *atomic.Int32, all ...http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { all[min(int(n.Add(1)), len(all))-1](w, r) }
}

func status(code int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"code":%d,"message":"status %d"}`, code, code)
	}
}

func drop(w http.ResponseWriter, _ *http.Request) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func TestTableOfRetries(t *testing.T) {
	t.Parallel()
	table := []cloud.Retry{
		{Route: "POST /start", On: nil},
		{Route: "GET *", On: []int{http.StatusServiceUnavailable}, Lost: true, Tries: 3},
		{Route: "POST /make", On: []int{http.StatusTooManyRequests}, Unsent: true},
	}
	ok := status(http.StatusOK, "")
	for name, c := range map[string]struct {
		method, path string
		answers      []http.HandlerFunc
		tries        int32
		status       int // of the error; 0: no error; -1: no status
	}{
		"a read is repeated":                       {"GET", "/x", []http.HandlerFunc{status(503, ""), drop, ok}, 3, 0},
		"not for ever":                             {"GET", "/x", []http.HandlerFunc{status(503, "")}, 3, 503},
		"not for another status":                   {"GET", "/x", []http.HandlerFunc{status(500, ""), ok}, 1, 500},
		"what starts something is not repeated":    {"POST", "/start", []http.HandlerFunc{status(503, ""), ok}, 1, 503},
		"nor where the connection broke":           {"POST", "/start", []http.HandlerFunc{drop, ok}, 1, -1},
		"what has no row is not repeated":          {"DELETE", "/x", []http.HandlerFunc{status(503, ""), ok}, 1, 503},
		"too many requests":                        {"POST", "/make", []http.HandlerFunc{status(429, "0"), ok}, 2, 0},
		"a sent request that may have had effects": {"POST", "/make", []http.HandlerFunc{drop, ok}, 1, -1},
		"a service that wants more time than is":   {"POST", "/make", []http.HandlerFunc{status(429, "600"), ok}, 1, 429},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			client := service(t, answers(&n, c.answers...), table...)
			_, err := client.Do(t.Context(), cloud.Call{Method: c.method, Path: c.path})
			switch {
			case (err == nil) != (c.status == 0) || n.Load() != c.tries:
				t.Errorf("%v after %d tries, want %d", err, n.Load(), c.tries)
			case c.status > 0 && cloud.StatusOf(err) != c.status, c.status < 0 && cloud.StatusOf(err) != 0:
				t.Errorf("status %d of %v, want %d", cloud.StatusOf(err), err, c.status)
			case c.status < 0 && !sent(err):
				t.Errorf("%v says that nothing was sent", err)
			}
		})
	}
}

// TestRetryAfterIsKept: the explained error still contains the requested delay.
func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	_, err := service(t, status(429, "7")).Do(t.Context(), cloud.Call{Method: "POST", Path: "/x"})
	if got := schemas.RetryAfterOf(cloud.Explain("create", "Acme", err)); got != 7*time.Second {
		t.Errorf("in %s, want 7s", got)
	}
}

func sent(err error) bool {
	var e *cloud.Error
	return errors.As(err, &e) && e.Sent
}

// TestNoListener: a request that was not sent is reported as such, and is retried if the table says so.
func TestNoListener(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base, err := cloud.ParseBase("url", "http://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	client := &cloud.Client{Base: base}
	_, err = client.Do(t.Context(), cloud.Call{Method: "POST", Path: "/x"})
	if err == nil || sent(err) || schemas.CodeOf(cloud.Explain("x", "Acme", err)) != schemas.Unavailable {
		t.Errorf("%v, sent %v", err, sent(err))
	}
}

func TestSecretsAreNotSaid(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, "{\"code\":401,\"message\":\"bad key %s, bad token\\n%s\"}", r.Header.Get("Authorization"), r.Header.Get("X-Token"))
	}
	client := service(t, echo)
	_, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Auth: http.Header{"X-Token": {"of the box"}}})
	for _, text := range []string{err.Error(), cloud.Explain("x", "Acme", err).Error()} {
		if strings.Contains(text, token) || strings.Contains(text, "of the box") {
			t.Errorf("it shows a secret: %s", text)
		}
	}
	if !strings.Contains(err.Error(), "bad key Bearer [redacted], bad token [redacted]") ||
		schemas.CodeOf(cloud.Explain("x", "Acme", err)) != schemas.Denied {
		t.Errorf("got %v", err)
	}
}

// TestRedirects: no redirect is followed, to whatever host, because the request's secrets would be sent there.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(other.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		for name, to := range map[string]string{"another host": other.URL + "/v1/x", "the same host": "/v1/y"} {
			var n atomic.Int32
			redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, code) }
			client := service(t, answers(&n, redirect))
			call := cloud.Call{Method: "POST", Path: "/x", Body: "secret", Auth: http.Header{"X-Access-Token": {token}}}
			_, err := client.Do(t.Context(), call)
			_, err2 := client.Stream(t.Context(), call, time.Minute)
			explained := cloud.Explain("x", "Acme", err)
			if cloud.StatusOf(err) != code || n.Load() != 2 || asked.Load() != 0 || err2 == nil {
				t.Errorf("%d to %s: %v, %v after %d requests, and %d elsewhere", code, name, err, err2, n.Load(), asked.Load())
			}
			if schemas.CodeOf(explained) != schemas.Unsupported || !strings.Contains(explained.Error(), "set the address") {
				t.Errorf("%d to %s: %v", code, name, explained)
			}
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	long := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `"`+strings.Repeat("x", 200)+`"`)
	}
	client := service(t, long)
	client.MaxBody = 100
	var got string
	if _, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Into: &got}); err == nil || !sent(err) {
		t.Errorf("got %v", err)
	}
	client.MaxBody = 1000
	if _, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Into: &got}); err != nil || len(got) != 200 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestSlowAnswers: a call ends at its time limit, without a response.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	client := service(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := client.Do(t.Context(), cloud.Call{Method: "POST", Path: "/x", Wait: 50 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !sent(err) || schemas.CodeOf(cloud.Explain("x", "Acme", err)) != schemas.Unavailable {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Do(ctx, cloud.Call{Method: "POST", Path: "/x"})
	if got := cloud.Explain("x", "Acme", err); !errors.Is(got, context.Canceled) {
		t.Errorf("got %v", got)
	}
}

// trickle returns a handler that responds with a status, and then byte by byte without an end.
func trickle(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "\x00\x00\x00\x40\x00") // as the beginning of a long message
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ") // the client may be gone
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestTricklingAnswers: a response that arrives byte by byte forever is cut off at the time limit of the call. The caller's context has no
// deadline.
func TestTricklingAnswers(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusOK, http.StatusBadGateway} {
		client := service(t, trickle(code))
		ways := map[string]func() error{
			"an answer": func() error {
				_, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Wait: 100 * time.Millisecond})
				return err
			},
			"one try of an answer": func() error {
				_, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Each: 100 * time.Millisecond})
				return err
			},
			"lines": func() error {
				lines, err := client.Lines(t.Context(), cloud.Call{Method: "GET", Path: "/x"}, 100*time.Millisecond)
				if err != nil {
					return err
				}
				defer lines.Close()
				return lines.Next(new(any))
			},
			"a stream": func() error {
				frames, err := client.Stream(t.Context(), cloud.Call{Method: "POST", Path: "/x"}, 100*time.Millisecond)
				if err != nil {
					return err
				}
				defer frames.Close()
				return frames.Next(new(any))
			},
		}
		for name, ask := range ways {
			t.Run(fmt.Sprintf("%s, %d", name, code), func(t *testing.T) {
				t.Parallel()
				err := ask()
				if broken, ok := errors.AsType[*cloud.Error](err); !ok || broken.Status != 0 {
					t.Errorf("got %v, want that it broke", err)
				}
			})
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"https://api.e2b.app": true, "http://127.0.0.1:80/x/": true, "": false, "api.e2b.app": false, "ftp://x": false,
		"https://user:pass@x": false, "https://x?y": false,
	} {
		if _, err := cloud.ParseBase("url", text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
