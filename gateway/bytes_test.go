package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAnEventHasTheSameBytesOnEveryWay: live and replayed, over WebSocket, as server-sent events and in pages, of what Sandjet says and
// of what a client added. Nothing is escaped that need not be, and nothing ends a line.
func TestAnEventHasTheSameBytesOnEveryWay(t *testing.T) {
	e := open(t)
	const text, path = "a < b && c > \u00e9\u2028\u2029d", "/v1/conversations/c_1/events"
	// event is that of the next message that has one.
	event := func(s *socket) string {
		t.Helper()
		for {
			if err := s.c.SetReadDeadline(time.Now().Add(within)); err != nil {
				t.Fatal(err)
			}
			_, b, err := s.c.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			var f struct {
				Op   string          `json:"op"`
				Data json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(b, &f); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			if f.Op == "ev" {
				return string(f.Data)
			}
		}
	}
	data := func(next func() string) string {
		t.Helper()
		for {
			for line := range strings.Lines(next()) {
				if d, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(d, `"specversion"`) {
					return strings.TrimSuffix(d, "\n")
				}
			}
		}
	}
	page := func(query string) []string {
		t.Helper()
		var p struct {
			Events []struct{ Event json.RawMessage }
		}
		a := e.get(path + query)
		if err := json.Unmarshal([]byte(a.body), &p); err != nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
		var all []string
		for _, ev := range p.Events {
			all = append(all, string(ev.Event))
		}
		return all
	}
	socket := e.socket()
	socket.write(`{"op":"attach","conv":"c_1"}`)
	socket.until("live")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	stream := e.stream(ctx, path, nil)
	var want []string
	for n, add := range []func(){
		func() { e.note("c_1", 1, text) },
		func() {
			if a := e.post(path, `{"type":"message","data":{"text":"`+text+`"}}`); a.status != http.StatusCreated {
				t.Fatalf("%d %s", a.status, a.body)
			}
		},
	} {
		add()
		live := event(socket)
		if !strings.Contains(live, `a < b && c > `+"\u00e9"+`\u2028\u2029d`) {
			t.Errorf("event %d: %s", n, live)
		}
		if sse := data(func() string { return chunk(t, stream) }); sse != live {
			t.Errorf("event %d is\n%s over WebSocket,\n%s as a server-sent event", n, live, sse)
		}
		want = append(want, live)
	}
	again := e.socket()
	again.write(`{"op":"attach","conv":"c_1","after":"-1"}`)
	replayed := e.stream(ctx, path, http.Header{"Last-Event-Id": {"-1"}})
	followed := page("?after=-1")
	other := open(t) // no reader follows it there: pages are read from the log
	other.note("c_1", 1, text)
	for n, live := range want {
		if got := event(again); got != live {
			t.Errorf("event %d is\n%s live,\n%s replayed", n, live, got)
		}
		if got := data(func() string { return chunk(t, replayed) }); got != live {
			t.Errorf("event %d is\n%s live,\n%s replayed as a server-sent event", n, live, got)
		}
		if followed[n] != live {
			t.Errorf("event %d is\n%s live,\n%s in a page", n, live, followed[n])
		}
	}
	if a := other.get(path + "?after=-1"); !strings.Contains(a.body, `a < b && c > `+"\u00e9"+`\u2028\u2029d`) {
		t.Errorf("a page from the log: %s", a.body)
	}
}
