package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// TestAnswersInMemoryAreBounded: answers that the clients of one account do not read take no more memory than its share, and those of all
// accounts no more than the total. Small answers are still given. A call whose result has no room is never answered with an error, after
// which the client might send it again.
//
//guarantee:what-one-tenant-can-do-to-another
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

// TestStreamsWaitForRoom: who follows a conversation gets what is small while the account's clients leave their answers unread, and a large
// event once there is room for it again. Nothing is lost meanwhile, and nothing is out of its order.
//
//guarantee:what-one-tenant-can-do-to-another
func TestStreamsWaitForRoom(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]func(e *edge) (next func() (says string, ok bool)){
		"socket": func(e *edge) func() (string, bool) {
			s := e.socket()
			s.write(`{"op":"attach","conv":"c_1"}`)
			return func() (string, bool) {
				f, err := s.read()
				return f.Op + " " + f.Data.ID, err == nil
			}
		},
		"event stream": func(e *edge) func() (string, bool) {
			s := e.stream(e.t.Context(), "/v1/conversations/c_1/events", nil)
			s.Buffer(nil, 1<<20)
			return func() (string, bool) {
				for s.Scan() {
					if _, id, found := strings.Cut(s.Text(), `"id":"c_1`); found {
						return "ev c_1" + id[:2], true
					}
					if strings.Contains(s.Text(), "upToDate") {
						return "live ", true
					}
				}
				return "", false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, func(o *gateway.Options) { o.Limits.Answers = 400 << 10 })
			e.note("c_1", 0, "small")
			e.note("c_1", 1, strings.Repeat("x", 100<<10))
			e.note("c_1", 2, "small")
			for n := range 2 {
				e.note("c_2", n, strings.Repeat("x", 150<<10))
			}
			take := e.leave("/v1/conversations/c_2/events", aliceKey)
			next, heard := follow(e), make(chan string)
			go func() {
				defer close(heard)
				for says, ok := next(); ok; says, ok = next() {
					heard <- says
				}
			}()
			for says := range heard {
				if says == "ev c_1.0" {
					break
				}
			}
			select {
			case says := <-heard:
				t.Errorf("%q while the account's answers are not read", says)
			case <-time.After(time.Second):
			}
			if got := take(); got != http.StatusOK {
				t.Errorf("the answer that was not read: %d", got)
			}
			for _, want := range []string{"ev c_1.1", "ev c_1.2", "live "} {
				if says := <-heard; says != want {
					t.Errorf("%q, want %q", says, want)
				}
			}
			eventually(t, "nothing to be counted", func() bool { return e.metric("sandjet_answer_bytes") == 0 })
		})
	}
}

// TestTheLargestResultIsSent: with the least memory for answers that an operator may give, the largest result that there can be comes on a
// socket, on an event stream and as a page of events.
func TestTheLargestResultIsSent(t *testing.T) {
	t.Parallel()
	e := open(t, func(o *gateway.Options) {
		o.Limits.Answers, o.Limits.AllAnswers = gateway.LeastAnswers, gateway.LeastAnswers
	})
	c := schemas.Call{ID: "c", Account: alice, Conversation: "c_1", Tool: schemas.ToolBash}
	out := strings.Repeat("\x01", schemas.MaxOutputLimit)
	e.publish(schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(alice, c.ID), time.Now(), schemas.Result{
		Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: schemas.StatusCompleted, Finished: time.Now().UTC(),
		Text: out + out, Output: &schemas.Output{Stdout: out, Stderr: out},
	}))
	const size = 4 * 6 * schemas.MaxOutputLimit // of its texts as JSON

	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1"}`)
	longest := 0
	for _, f := range s.until("live") {
		longest = max(longest, len(f.Data.Data))
	}
	if longest < size {
		t.Errorf("the longest frame of the socket has %d bytes", longest)
	}
	lines := e.stream(t.Context(), "/v1/conversations/c_1/events", nil)
	lines.Buffer(nil, 2*size)
	longest = 0
	for lines.Scan() && !strings.Contains(lines.Text(), "upToDate") {
		longest = max(longest, len(lines.Text()))
	}
	if longest < size {
		t.Errorf("the longest line of the event stream is %d bytes: %v", longest, lines.Err())
	}
	if w := e.serve(http.MethodGet, "/v1/conversations/c_1/events", aliceKey, http.NoBody); w.Code != http.StatusOK || w.Body.Len() < size {
		t.Errorf("the page: %d with %d bytes", w.Code, w.Body.Len())
	}
	eventually(t, "nothing to be counted", func() bool { return e.metric("sandjet_answer_bytes") == 0 })
}
