package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

func TestJobsAreAskedFor(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.RequestURI() {
		case "GET /v1/jobs?conversation=c%2F1&limit=2&state=running":
			answer(w, http.StatusOK, `{"jobs":[{"id":"job_2"},{"id":"job_1"}],"more":true}`)
		case "GET /v1/jobs/job_1":
			answer(w, http.StatusOK, `{"id":"job_1","state":"failed","completion":{"exit_code":3}}`)
		case "GET /v1/jobs/job_1/logs?limit=3&offset=5":
			answer(w, http.StatusOK, `{"text":"abc","offset":6,"next":9,"size":12,"ended":true}`)
		case "GET /v1/jobs/job_1/logs?offset=-1":
			answer(w, http.StatusOK, `{"data":"/w==","offset":0,"next":1,"size":1,"ended":false}`)
		case "POST /v1/jobs/job_1/stop":
			answer(w, http.StatusAccepted, `{"id":"job_1","state":"running"}`)
		default:
			t.Errorf("asked %s %s", r.Method, r.URL.RequestURI())
		}
	})
	ctx := t.Context()
	if jobs, err := c.Jobs().List(ctx, client.JobsQuery{State: "running", Conversation: "c/1", Limit: 2}); err != nil ||
		len(jobs) != 2 || jobs[0].ID != "job_2" {
		t.Errorf("%+v, %v", jobs, err)
	}
	if j, err := c.Jobs().Get(ctx, "job_1"); err != nil || j.State != schemas.JobFailed || *j.Completion.ExitCode != 3 {
		t.Errorf("%+v, %v", j, err)
	}
	if p, err := c.Jobs().Logs(ctx, "job_1", 5, 3); err != nil || string(p.Data) != "abc" || p.Offset != 6 ||
		p.Next != 9 || p.Size != 12 || !p.Ended {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := c.Jobs().Logs(ctx, "job_1", -1, 0); err != nil || string(p.Data) != "\xff" || p.Ended {
		t.Errorf("%+v, %v", p, err)
	}
	if j, err := c.Jobs().Stop(ctx, "job_1", "enough"); err != nil || j.ID != "job_1" {
		t.Errorf("%+v, %v", j, err)
	}
}

// What would do harm when it is done twice is not sent again.
func TestWhatCountsTwiceIsTriedOnce(t *testing.T) {
	var tries atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"the worker is away"}}`)
	})
	ctx := t.Context()
	for name, try := range map[string]func() error{
		"signal": func() error { return c.Jobs().Signal(ctx, "job_1", "TERM") },
		"write":  func() error { _, err := c.Jobs().Write(ctx, "job_1", []byte("x"), false); return err },
		"add": func() error {
			_, err := c.Webhooks().Add(ctx, client.WebhookSpec{URL: "https://example.com"})
			return err
		},
		"rotate": func() error { _, err := c.Webhooks().RotateSecret(ctx, "wh_1", 0); return err },
		"test":   func() error { _, err := c.Webhooks().Test(ctx, "wh_1"); return err },
		"replay": func() error { _, err := c.Webhooks().Replay(ctx, client.WebhookReplay{ID: "msg_1"}); return err },
	} {
		tries.Store(0)
		if err := try(); !errors.Is(err, schemas.ErrUnavailable) || tries.Load() != 1 {
			t.Errorf("%s: %v after %d tries", name, err, tries.Load())
		}
	}
}

func TestWriteJobSendsTheBytes(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || string(b) != "a\x00\xff" || r.URL.RequestURI() != "/v1/jobs/job_1/stdin?eof=1" ||
			r.Header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s %q %v", r.URL, b, r.Header)
		}
		answer(w, http.StatusOK, `{"written":3}`)
	})
	if n, err := c.Jobs().Write(t.Context(), "job_1", []byte("a\x00\xff"), true); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// logServer is a gateway with one log, whose streams break after some bytes.
func logServer(t *testing.T, log string, first int64, breaks func(n int32) (bytes int, abort bool)) *client.Client {
	t.Helper()
	var conns atomic.Int32
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		size := int64(len(log))
		offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
		if err != nil {
			t.Error(err)
		}
		if offset < 0 {
			offset = size - 4
		}
		offset = min(max(offset, first), size)
		if r.URL.Query().Get("follow") == "" { // the page that reports whether it is all: nothing of it yet, unless it is
			answer(w, http.StatusOK, fmt.Sprintf(`{"offset":%d,"next":%d,"size":%d,"ended":true}`, offset, offset, size))
			return
		}
		n := conns.Add(1)
		if n == 1 {
			answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"stopping"}}`)
			return
		}
		part, abort := breaks(n)
		w.Header().Set("Sandjet-Offset", strconv.FormatInt(offset, 10))
		_, _ = io.WriteString(w, log[offset:min(offset+int64(part), size)])
		if abort {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
}

func TestFollowedLogsGoOnWhereTheyWere(t *testing.T) {
	const log = "the quick brown fox jumps over the lazy dog"
	for name, tc := range map[string]struct {
		offset, first int64
		want          string
	}{
		"from the start":  {0, 0, log},
		"from the middle": {10, 0, log[10:]},
		"the end of it":   {-1, 0, log[len(log)-4:]},
		"dropped bytes":   {0, 20, log[20:]},
	} {
		t.Run(name, func(t *testing.T) {
			c := logServer(t, log, tc.first, func(n int32) (int, bool) { return 3, n%2 == 0 })
			var out bytes.Buffer
			if err := c.Jobs().FollowLogs(t.Context(), "job_1", tc.offset, &out); err != nil || out.String() != tc.want {
				t.Errorf("%q, %v; want %q", out.String(), err, tc.want)
			}
		})
	}
}

func TestFollowedLogsEndWithAnErrorThatStays(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, `{"error":{"code":"not_found","message":"there is no job"}}`)
	})
	if err := c.Jobs().FollowLogs(t.Context(), "job_1", 0, io.Discard); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("%v: want not found", err)
	}
	full := errors.New("the disk is full")
	c = logServer(t, "hello", 0, func(int32) (int, bool) { return 5, false })
	if err := c.Jobs().FollowLogs(t.Context(), "job_1", 0, failing{full}); !errors.Is(err, full) {
		t.Errorf("%v: want the writer's error", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestAppendedEventsCarryAnID(t *testing.T) {
	ids := make(chan string, 8)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		e, err := schemas.DecodeAppendedEvent(b)
		if err != nil || r.URL.EscapedPath() != "/v1/conversations/c%2F1/events" {
			t.Errorf("%s %s: %v", r.URL.EscapedPath(), b, err)
		}
		if ids <- e.ID; len(ids) == 1 {
			panic(http.ErrAbortHandler) // it may have been added
		}
		answer(w, http.StatusOK, `{"id":"x","cursor":"e_00000000000000000007"}`)
	})
	got, err := c.AppendEvent(t.Context(), "c/1", schemas.AppendedEvent{Type: schemas.Message, Data: []byte(`{}`)})
	if err != nil || got.ID != "x" || got.Cursor.Seq != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if first := <-ids; first == "" || <-ids != first {
		t.Error("the tries did not carry one and the same id")
	}
}

func TestWebhooksAreKept(t *testing.T) {
	const one = `{"id":"wh_1","url":"https://example.com","secrets":[{"key":"whsec_x"}]}`
	url, off := "https://example.com/b", false
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch asked := r.Method + " " + r.URL.RequestURI() + " " + string(b); asked {
		case `GET /v1/webhooks `:
			answer(w, http.StatusOK, `{"webhooks":[`+one+`]}`)
		case `GET /v1/webhooks/wh_1 `:
			answer(w, http.StatusOK, one)
		case `POST /v1/webhooks {"url":"https://example.com","events":["message"]}`:
			answer(w, http.StatusCreated, one)
		case `PATCH /v1/webhooks/wh_1 {"url":"https://example.com/b","disabled":false}`:
			answer(w, http.StatusOK, one)
		case `DELETE /v1/webhooks/wh_1 `:
			w.WriteHeader(http.StatusNoContent)
		case `POST /v1/webhooks/wh_1/rotate-secret {"overlap":"1h0m0s"}`:
			answer(w, http.StatusOK, one)
		case `POST /v1/webhooks/wh_1/test `:
			answer(w, http.StatusAccepted, `{"delivery":"msg_1"}`)
		case `POST /v1/webhooks/replay {"since":"2030-01-02T03:04:05Z","endpoint":"wh_1"}`:
			answer(w, http.StatusOK, `{"replayed":3,"next":"e.1.5"}`)
		case `POST /v1/webhooks/replay {"since":"2030-01-02T03:04:05Z","endpoint":"wh_1","after":"e.1.5"}`:
			answer(w, http.StatusOK, `{"replayed":1}`)
		default:
			t.Errorf("asked %s", asked)
		}
	})
	ctx := t.Context()
	list, err := c.Webhooks().List(ctx)
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	for name, try := range map[string]func() (schemas.Endpoint, error){
		"one": func() (schemas.Endpoint, error) { return c.Webhooks().Get(ctx, "wh_1") },
		"add": func() (schemas.Endpoint, error) {
			return c.Webhooks().Add(ctx, client.WebhookSpec{URL: "https://example.com", Events: []schemas.EventType{schemas.Message}})
		},
		"update": func() (schemas.Endpoint, error) {
			return c.Webhooks().Update(ctx, "wh_1", client.WebhookPatch{URL: &url, Disabled: &off})
		},
		"rotate": func() (schemas.Endpoint, error) { return c.Webhooks().RotateSecret(ctx, "wh_1", time.Hour) },
	} {
		if e, err := try(); err != nil || e.ID != "wh_1" || e.Secrets[0].Key != "whsec_x" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if err := c.Webhooks().Remove(ctx, "wh_1"); err != nil {
		t.Error(err)
	}
	if id, err := c.Webhooks().Test(ctx, "wh_1"); err != nil || id != "msg_1" {
		t.Errorf("%s, %v", id, err)
	}
	n, err := c.Webhooks().Replay(ctx, client.WebhookReplay{Since: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Endpoint: "wh_1"})
	if err != nil || n != 4 {
		t.Errorf("%d, %v", n, err)
	}
}
