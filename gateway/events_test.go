package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
)

func TestPages(t *testing.T) {
	e := open(t)
	for n := range 5 {
		e.note("c/1", n, "x")
	}
	const path = "/v1/conversations/c%2F1/events?limit=2"
	after, seen := "-1", 0
	for {
		p := decode[conversations.Page](t, e.get(path+"&after="+after))
		if !p.Recovered || p.Gap != nil {
			t.Fatalf("%+v", p)
		}
		for _, ev := range p.Events {
			if want := fmt.Sprintf("c/1.%d", seen); ev.Event.ID != want {
				t.Errorf("event %s, want %s", ev.Event.ID, want)
			}
			seen++
		}
		after = p.Next.String()
		if p.UpToDate {
			break
		}
	}
	if seen != 5 {
		t.Errorf("%d events", seen)
	}
	if p := decode[conversations.Page](t, e.get(path+"&after="+after)); len(p.Events) != 0 || !p.UpToDate || p.Next.String() != after {
		t.Errorf("after the end: %+v", p)
	}
}

func TestLongPoll(t *testing.T) {
	e := open(t)
	e.note("c_1", 0, "x")
	next := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events")).Next.String()
	for _, after := range []string{next, "now"} {
		done := make(chan answer, 1)
		go func() { done <- e.get("/v1/conversations/c_1/events?wait=60s&after=" + after) }()
		select {
		case a := <-done:
			t.Fatalf("answered with nothing there: %s", a.body)
		case <-time.After(100 * time.Millisecond):
		}
		var a answer
		for a.status == 0 { // it is not known when the poll has found the end: events before that are not sent
			e.note("c_1", int(time.Now().UnixNano()), "y")
			select {
			case a = <-done:
			case <-time.After(100 * time.Millisecond):
			}
		}
		if p := decode[conversations.Page](t, a); len(p.Events) == 0 || !strings.Contains(string(p.Events[0].Event.Data), `"y"`) {
			t.Errorf("after %s: %s", after, a.body)
		}
	}
	if p := decode[conversations.Page](t, e.get("/v1/conversations/c_empty/events?wait=20ms")); len(p.Events) != 0 || !p.UpToDate {
		t.Errorf("a wait that passes: %+v", p)
	}
}

// stream opens a conversation as server-sent events.
func (e *edge) stream(ctx context.Context, path string, header http.Header) *bufio.Scanner {
	e.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+aliceKey)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		e.t.Fatalf("%s, Content-Type %q", resp.Status, got)
	}
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, 2<<20)
	return s
}

// chunk reads the next event or comment.
func chunk(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	var lines []string
	for s.Scan() { // to the end
		if s.Text() == "" {
			return strings.Join(lines, "\n")
		}
		lines = append(lines, s.Text())
	}
	t.Fatalf("the stream ended: %v", s.Err())
	return ""
}

// said reads the next event: heartbeats come at any time.
func said(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	for {
		if got := chunk(t, s); !strings.HasPrefix(got, ":") {
			return got
		}
	}
}

//guarantee:a-conversation-has-no-holes
func TestSSEReplaysThenGoesLive(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.Heartbeat = 50 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	e.note("c_1", 0, "x")
	e.note("c_1", 1, "a\r\nid: 9")
	page := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events"))
	s := e.stream(ctx, "/v1/conversations/c_1/events?after=now", http.Header{"Last-Event-Id": {page.Events[0].Cursor.String()}})
	if got := chunk(t, s); !strings.HasPrefix(got, "retry: ") {
		t.Errorf("first: %s", got)
	}
	got := said(t, s)
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || lines[2] != "id: "+page.Events[1].Cursor.String() || lines[0] != "event: call.output" {
		t.Fatalf("the replayed event:\n%s", got)
	}
	var ev schemas.Event
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &ev); err != nil || ev.ID != "c_1.1" {
		t.Errorf("%s: %v", lines[1], err)
	}
	if got := said(t, s); !strings.Contains(got, "event: control\n") || !strings.Contains(got, `"upToDate":true`) {
		t.Errorf("the live mark:\n%s", got)
	}
	if got := chunk(t, s); !strings.HasPrefix(got, ":") {
		t.Errorf("the heartbeat: %s", got)
	}
	e.note("c_1", 2, "z")
	if got := said(t, s); !strings.Contains(got, `"id":"c_1.2"`) {
		t.Errorf("live: %s", got)
	}
	e.gw.Drain()
	for s.Scan() {
	}
	if err := s.Err(); err != nil {
		t.Errorf("a drained stream ended with %v", err)
	}
}

// TestCursorOfAnotherStream: the epoch in the cursor is not this stream's, so nothing is known of
// the place; the reader gets a gap, and then all that is there.
//
//guarantee:a-conversation-has-no-holes
func TestCursorOfAnotherStream(t *testing.T) {
	e := open(t)
	e.note("c_1", 0, "x")
	const foreign = "zzzz_00000000000000000007"
	p := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events?after="+foreign))
	if p.Recovered || p.Gap == nil || len(p.Events) != 1 {
		t.Errorf("page: %+v", p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s := e.stream(ctx, "/v1/conversations/c_1/events?after="+foreign, nil)
	chunk(t, s)
	if got := chunk(t, s); !strings.Contains(got, `"recovered":false`) || !strings.Contains(got, `"gap":{`) || strings.Contains(got, "id:") {
		t.Errorf("not told in band: %s", got)
	}
	if got := chunk(t, s); !strings.Contains(got, `"id":"c_1.0"`) {
		t.Errorf("then: %s", got)
	}
	ws := e.socket()
	ws.write(`{"op":"attach","conv":"c_1","after":"` + foreign + `"}`)
	all := ws.until("live")
	if f := all[0]; f.Op != "attached" || f.Recovered == nil || *f.Recovered || f.Gap == nil || len(all) != 3 {
		t.Errorf("socket: %+v", all)
	}
}

// TestCursorBelowRetention: events after the cursor are gone.
//
//guarantee:a-conversation-has-no-holes
func TestCursorBelowRetention(t *testing.T) {
	e := open(t)
	for n := range 4 {
		e.note("c_1", n, "x")
	}
	first := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events?limit=1"))
	natstest.Dial(t, e.server.URL(), "role", "role").Purge(t, "EVENTS_00", "sandjet.events.00.acct_alice.>", 1)
	p := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events?after="+first.Next.String()))
	if p.Recovered || p.Gap == nil || len(p.Events) != 1 || p.Events[0].Event.ID != "c_1.3" {
		t.Errorf("%+v", p)
	}
}

// TestClientOverAGateway runs the Go client against the real thing, over a restart of the log.
func TestClientOverAGateway(t *testing.T) {
	e := open(t)
	e.work()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	c := client.New(e.url, aliceKey)
	c.Pause = 10 * time.Millisecond
	res, err := c.Call(ctx, schemas.Request{Tool: schemas.ToolBash, Conversation: "c_1", Input: json.RawMessage(`{"command":"echo one"}`)})
	if err != nil || res.Text != "one" {
		t.Fatalf("%+v, %v", res, err)
	}
	st, err := c.Submit(ctx, schemas.Request{Tool: schemas.ToolBash, Conversation: "c_1", Input: json.RawMessage(`{"command":"hang"}`)})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, types := false, []string{}
	for it, err := range c.Events(ctx, "c_1", schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		if it.Live || it.Event.Subject != string(st.ID) {
			continue
		}
		types = append(types, string(it.Event.Type))
		if it.Event.Type == schemas.CallStarted && !cancelled {
			if err := c.Cancel(ctx, st.ID, "enough"); err != nil {
				t.Fatal(err)
			}
			cancelled = true
		}
		if it.Event.Type == schemas.CallFinished {
			break
		}
	}
	if !cancelled || len(types) != 3 {
		t.Errorf("told %v", types)
	}
	if res, err := c.Wait(ctx, st.ID); err != nil || res.Status != schemas.StatusCancelled {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestAPageOfLargeEventsIsShort: a page that would be above 1 MiB ends earlier, read from the log or from the memory that readers share.
func TestAPageOfLargeEventsIsShort(t *testing.T) {
	for from, path := range map[string]string{"the log": "", "memory": "&wait=1"} {
		t.Run(from, func(t *testing.T) {
			e := open(t)
			for n := range 5 {
				e.note("c_1", n, strings.Repeat("x", 400<<10))
			}
			var pages []int
			for after := "-1"; ; {
				p := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events?limit=1000&after="+after+path))
				if len(p.Events) == 0 {
					break
				}
				pages, after = append(pages, len(p.Events)), p.Next.String()
			}
			if !slices.Equal(pages, []int{2, 2, 1}) {
				t.Errorf("five events of 400 KiB are pages of %d", pages)
			}
		})
	}
}
