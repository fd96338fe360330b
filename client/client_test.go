package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// serve starts a stand-in for a gateway.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := client.New(srv.URL+"/", "the key")
	c.Pause = time.Millisecond
	return c
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func bash(command string) schemas.Request {
	return schemas.Request{Tool: schemas.ToolBash, Input: json.RawMessage(fmt.Sprintf(`{"command":%q}`, command))}
}

//guarantee:the-same-id-is-the-same-call
func TestCallTriesAgainWithTheSameID(t *testing.T) {
	var tries atomic.Int32
	ids := make(chan schemas.CallID, 8)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer the key" {
			t.Errorf("Authorization %q", got)
		}
		if r.Method == http.MethodGet {
			answer(w, http.StatusOK, `{"call":"x","conversation":"c","tool":"bash","status":"completed","text":"hi"}`)
			return
		}
		var req schemas.Request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		ids <- req.ID
		switch tries.Add(1) {
		case 1:
			answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"stopping"}}`)
		case 2:
			panic(http.ErrAbortHandler) // the connection just ends
		default:
			answer(w, http.StatusAccepted, `{"id":"`+string(req.ID)+`","conversation":"c","status":"queued"}`)
		}
	})
	res, err := c.Call(t.Context(), bash("echo hi"))
	if err != nil || res.Text != "hi" {
		t.Fatalf("%+v, %v", res, err)
	}
	first := <-ids
	if first == "" || <-ids != first || <-ids != first {
		t.Error("the tries did not carry one and the same id")
	}
}

// TestWhatTheRequestNamesIsNotTriedAgain: waiting alone does not bring a worker for a provider that no worker serves.
func TestWhatTheRequestNamesIsNotTriedAgain(t *testing.T) {
	var tries atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) > 1 {
			answer(w, http.StatusBadRequest, `{"error":{"code":"invalid","message":"asked again"}}`)
			return
		}
		answer(w, http.StatusServiceUnavailable,
			`{"error":{"code":"unavailable","field":"sandbox","message":"no worker serves its provider e2b"}}`)
	})
	_, err := c.Call(t.Context(), bash("true"))
	if schemas.CodeOf(err) != schemas.Unavailable || !strings.Contains(err.Error(), "e2b") || tries.Load() != 1 {
		t.Errorf("after %d tries: %v", tries.Load(), err)
	}
}

func TestCallGivesUpWithItsContext(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"stopping"}}`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, bash("true"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: want the context's error", err)
	}
}

func TestFailuresKeepTheirCode(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   error
	}{
		{http.StatusBadRequest, `{"error":{"code":"invalid","field":"tool","message":"is missing"}}`, schemas.ErrInvalid},
		{http.StatusUnauthorized, `{"error":{"code":"denied","message":"no"}}`, schemas.ErrDenied},
		{http.StatusConflict, `{"error":{"code":"conflict","message":"no"}}`, schemas.ErrConflict},
		{http.StatusNotFound, `<html>nginx</html>`, schemas.ErrNotFound},
		{http.StatusInternalServerError, `oops`, schemas.ErrInternal},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, tc.status, tc.body) })
		if _, err := c.Submit(t.Context(), bash("true")); !errors.Is(err, tc.want) {
			t.Errorf("%d %s: %v, want %v", tc.status, tc.body, err, tc.want)
		}
	}
}

// event is one SSE frame with an event.
func event(n int) string {
	return fmt.Sprintf("id: e_%020d\nevent: call.output\ndata: {\"specversion\":\"1.0\",\"id\":\"%d\",\"type\":\"call.output\","+
		"\"source\":\"/accounts/acct_a\",\ndata: \"conversation\":\"c/1\",\"data\":{}}\n\n", n, n)
}

//guarantee:a-conversation-has-no-holes
func TestEventsResumeAfterTheLastOne(t *testing.T) {
	var conns atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/conversations/c%2F1/events" {
			t.Errorf("path %s", r.URL.EscapedPath())
		}
		w.Header().Set("Content-Type", "text/event-stream")
		after := r.URL.Query().Get("after")
		switch conns.Add(1) {
		case 1:
			if after != "-1" {
				t.Errorf("the first connection asks after %s", after)
			}
			fmt.Fprint(w, "retry: 1\n\n: hello\n\n", event(1), event(2), "event: control\ndata: {\"upToDate\":true}\n\n", "id: e_0000") // cut
		case 2:
			answer(w, http.StatusBadGateway, "proxy")
		case 3:
			if want := fmt.Sprintf("e_%020d", 2); after != want {
				t.Errorf("the next connection asks after %s, want %s", after, want)
			}
			fmt.Fprint(w, "event: control\ndata: {\"recovered\":false,\"gap\":{\"from\":\"a\"}}\n\n", event(5),
				"event: control\ndata: {\"upToDate\":true}\n\n", event(6))
		default:
			t.Errorf("connection %d", conns.Load())
		}
	})
	var got []string
	for it, err := range c.Events(t.Context(), "c/1", schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case it.Live:
			got = append(got, "live")
		case it.Gap != nil:
			got = append(got, "gap "+string(it.Gap))
		default:
			if it.Event.Account != "acct_a" || it.Cursor.Seq == 0 {
				t.Errorf("event %+v at %s", it.Event, it.Cursor)
			}
			got = append(got, it.Event.ID)
		}
		if it.Event.ID == "6" {
			break
		}
	}
	if want := `1 2 live gap {"from":"a"} 5 6`; strings.Join(got, " ") != want {
		t.Errorf("told %v, want %s", got, want)
	}
}

func TestEventsEndOnWhatWillNotPass(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"wrong key": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusUnauthorized, `{"error":{"code":"denied","message":"no"}}`)
		},
		"no cursor":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "id: x\ndata: {}\n\n") },
		"no event":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: {\n\n") },
		"endless line": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: ", strings.Repeat("x", 9<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, err := range serve(t, h).Events(t.Context(), "c", schemas.Cursor{}) {
				if err == nil {
					t.Error("told something")
				}
				n++
			}
			if n != 1 {
				t.Errorf("%d steps, want the one error", n)
			}
		})
	}
}

func TestEventsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	var last error
	for _, err := range c.Events(ctx, "c", schemas.Cursor{}) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("ended with %v, want the context's error", last)
	}
}

func ExampleClient_Call() {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // `sandjet up` in earnest
		answer(w, http.StatusOK, `{"call":"call_1","conversation":"c_1","tool":"bash","status":"completed","text":"hello\n"}`)
	}))
	defer gateway.Close()

	c := client.New(gateway.URL, "sk_…")
	res, err := c.Call(context.Background(), schemas.Request{
		Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"echo hello"}`),
	})
	if err != nil {
		fmt.Println("not run:", err)
		return
	}
	fmt.Print(res.Status, ": ", res.Text)
	// Output: completed: hello
}

func TestQuestionsAboutRecordsEndWithThePatience(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 3 {
			answer(w, http.StatusOK, `{"id":"acct_a"}`)
			return
		}
		answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"its key is missing"}}`)
	})
	if a, err := c.Accounts().Get(t.Context(), ""); err != nil || a.ID != "acct_a" {
		t.Errorf("%+v, %v", a, err)
	}
	c.Patience = time.Millisecond
	_, err := c.Accounts().Get(t.Context(), "")
	if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "its key is missing") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Jobs().Get(ctx, "job_1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a job was asked for until %v", err)
	}
}
