package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

// unread is a client that does not take its answer until it is let.
type unread struct {
	*httptest.ResponseRecorder

	begun, read chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	select {
	case <-u.begun:
	default:
		close(u.begun)
	}
	<-u.read
	return u.ResponseRecorder.Write(b)
}

// leave asks for something whose answer it does not take, until the function that it returns is called.
func (e *edge) leave(path, key string) (take func() int) {
	e.t.Helper()
	r := httptest.NewRequestWithContext(e.t.Context(), http.MethodGet, path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+key)
	u, done := &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(done)
		e.gw.ServeHTTP(u, r)
	}()
	<-u.begun
	return func() int {
		close(u.read)
		<-done
		return u.Code
	}
}

// TestAnswersInMemoryAreBounded: what an account's clients do not read takes no more than its share of memory, and what those of all do
// not read no more than all may. Small answers are given all the same, and a call whose result has no room is never an error, by which it
// might be made again.
func TestAnswersInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		limits      gateway.Limits
		alice, bobs int // what a second answer is
		code        schemas.Code
		posted      int // what a call is whose result is waited for
	}{
		{"an account's", gateway.Limits{Answers: 64 << 10}, 429, 200, schemas.Exhausted, 202},
		{"of all", gateway.Limits{AllAnswers: 64 << 10}, 503, 503, schemas.Unavailable, 202},
		{"enough for both", gateway.Limits{Answers: 128 << 10, AllAnswers: 128 << 10}, 200, 200, "", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := open(t, func(o *gateway.Options) { o.Limits = c.limits })
			e.work()
			large := `{"id":"c","conversation":"c_1","tool":"bash","input":{"command":"echo ` + strings.Repeat("x", 40<<10) + `"}}`
			for _, key := range []string{aliceKey, bobKey} {
				if w := e.serve(http.MethodPost, "/v1/calls?wait=30", key, strings.NewReader(large)); w.Code != http.StatusOK {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			take := e.leave("/v1/calls/c", aliceKey)
			for key, want := range map[string]int{aliceKey: c.alice, bobKey: c.bobs} {
				for _, path := range []string{"/v1/calls/c", "/v1/calls/c?wait=5", "/v1/conversations/c_1/events?limit=2"} {
					w := e.serve(http.MethodGet, path, key, http.NoBody)
					if w.Code != want || want > 400 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), string(c.code))) {
						t.Errorf("%s %s: %d %v %s, want %d", key, path, w.Code, w.Header(), w.Body, want)
					}
				}
				if w := e.serve(http.MethodGet, "/v1/calls?limit=1", key, http.NoBody); w.Code != http.StatusOK {
					t.Errorf("%s, a small answer: %d %s", key, w.Code, w.Body)
				}
			}
			w := e.serve(http.MethodPost, "/v1/calls?wait=30", aliceKey, strings.NewReader(strings.Replace(large, `"c"`, `"c2"`, 1)))
			if w.Code != c.posted || w.Header().Get("Location") != "/v1/calls/c2" {
				t.Errorf("a call whose result is waited for: %d %v %.200s, want %d", w.Code, w.Header(), w.Body, c.posted)
			}
			if got := take(); got != http.StatusOK {
				t.Errorf("the first: %d", got)
			}
			if w := e.serve(http.MethodGet, "/v1/calls/c2", aliceKey, http.NoBody); w.Code != http.StatusOK {
				t.Errorf("afterwards: %d %s", w.Code, w.Body)
			}
			if n := e.metric("sandjet_answer_bytes"); n != 0 {
				t.Errorf("%v bytes are still counted", n)
			}
		})
	}
}
