package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/schemas"
)

// stop runs a part, stops it after a moment (below 0: before it is started) and wants it to end
// without an error.
func stop(t *testing.T, after time.Duration, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after < 0 {
		cancel()
	}
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	if after > 0 {
		<-time.After(after)
	}
	for range 10 {
		go cancel()
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("stopped after %s: %v", after, err)
		}
	case <-time.After(within):
		t.Fatalf("stopped after %s: it did not", after)
	}
}

func TestPartsStartAndStop(t *testing.T) {
	e := open(t)
	for range 10 {
		for _, after := range []time.Duration{-1, 0, time.Millisecond} {
			stop(t, after, natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
			stop(t, after, natsapi.Service{Bus: e.bus, Records: book{}, Version: "dev"}.Run)
			stop(t, after, func(ctx context.Context) error {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				return gateway.New(gateway.Options{Bus: e.bus, Records: book{}}).Run(ctx, l)
			})
		}
	}
}

// TestRunDrains: a stop ends waits, streams and sockets, and is not left waiting for its grace.
func TestRunDrains(t *testing.T) {
	e := open(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{Bus: e.bus, Records: book{}, Grace: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx, l) }()
	e.url = "http://" + l.Addr().String()
	ws := e.socket()
	ws.write(`{"op":"attach","conv":"c_1"}`)
	ws.until("live")
	s := e.stream(t.Context(), "/v1/conversations/c_1/events", nil)
	chunk(t, s)
	waits := make(chan answer, 1)
	go func() { waits <- e.post("/v1/calls?wait=60s", bash("hang")) }()
	eventually(t, "a request waits", func() bool {
		return strings.Contains(e.do(ask{method: http.MethodGet, path: "/metrics", key: "-"}).body, "sandjet_waiting_requests 1")
	})
	cancel()
	if code, _ := ws.closedWith(); code != int(live.CloseDrain) {
		t.Errorf("the socket was closed with %d", code)
	}
	if a := <-waits; a.status != http.StatusAccepted {
		t.Errorf("the wait ended with %d %s", a.status, a.body)
	}
	for s.Scan() { // to the end
	}
	if err := s.Err(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(within):
		t.Errorf("it goes on %s after the stop", within)
	}
}

// TestLogRestart: the server is stopped under a stream, a socket and a client that waits. All of them continue when it is back, and no
// event is missing or sent twice.
func TestLogRestart(t *testing.T) {
	e := openOnDisk(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for n := range 3 {
		e.note("c_1", n, "before")
	}
	ws := e.socket()
	ws.write(`{"op":"attach","conv":"c_1"}`)
	ws.until("live")
	cl := client.New(e.url, aliceKey)
	cl.Pause = 20 * time.Millisecond
	told := make(chan string, 64)
	go func() {
		defer close(told)
		for it, err := range cl.Events(ctx, "c_1", schemas.Cursor{}) {
			if err != nil {
				return
			}
			if it.Gap != nil {
				told <- "gap"
			}
			if it.Event.ID != "" {
				told <- it.Event.ID
			}
		}
	}()
	if err := e.server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log is reachable again", func() bool {
		return e.do(ask{method: http.MethodGet, path: "/readyz", key: "-"}).status == http.StatusOK
	})
	for n := 3; n < 6; n++ {
		e.note("c_1", n, "after")
	}
	for n := range 6 {
		if got, want := <-told, fmt.Sprintf("c_1.%d", n); got != want {
			t.Fatalf("the client was told %s, want %s", got, want)
		}
	}
	for n := 3; n < 6; n++ {
		if f := ws.next(); f.Op != "ev" || f.Data.ID != fmt.Sprintf("c_1.%d", n) {
			t.Fatalf("the socket was told %+v, want number %d", f, n)
		}
	}
	cancel()
	for range told { // to the end
	}
}

// TestRouterSeesAPublicationAgain: the router died after the call was admitted and before its
// publication was acknowledged. It is handed out again, and is the same call.
func TestRouterSeesAPublicationAgain(t *testing.T) {
	e := open(t)
	nc := e.tenant()
	died := make(chan schemas.CallID, 1)
	ctx, cancel := context.WithCancel(t.Context())
	dying := natsapi.IntakeConsumer{Bus: e.bus, Records: dyingBook{stop: func(id schemas.CallID) {
		select {
		case died <- id:
		default:
		}
	}}}
	done := make(chan error, 1)
	go func() { done <- dying.Run(ctx) }()
	nc.Publish(t, "sandjet.calls.auto.acct_alice", nil, `{"conversation":"c_1","tool":"bash","input":{"command":"echo hi"}}`)
	first := <-died
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	ev := e.untilEvent("c_1", schemas.CallAccepted)
	if ev.Subject != string(first) {
		t.Errorf("the second time it is call %s, the first time %s", ev.Subject, first)
	}
}

// dyingBook reports which call it is asked for and then fails, like a process that dies.
type dyingBook struct {
	book

	stop func(schemas.CallID)
}

func (d dyingBook) Resolve(_ context.Context, _ schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	d.stop(r.ID)
	return schemas.Call{}, schemas.Errorf(schemas.Unavailable, "dying")
}

// TestManyCallsOverOneSocket is the usual use by an agent: calls go in and results come out over
// one connection.
func TestManyCallsOverOneSocket(t *testing.T) {
	e := open(t)
	e.work()
	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1"}`)
	s.until("live")
	const calls = 50
	for n := range calls {
		s.write(fmt.Sprintf(`{"op":"send","request":{"id":"n%d","conversation":"c_1","tool":"bash","input":{"command":"echo %d"}}}`, n, n))
	}
	accepted, results, prev := 0, map[string]string{}, ""
	for len(results) < calls || accepted < calls {
		f := s.next()
		switch {
		case f.Op == "accepted":
			accepted++
		case f.Op != "ev":
			t.Fatalf("%+v", f)
		default:
			if prev != "" && f.Prev != prev {
				t.Fatalf("the event at %s names %s as the one before, which was %s", f.Cur, f.Prev, prev)
			}
			prev = f.Cur
			if f.Data.Type == schemas.CallFinished {
				var res schemas.Result
				if err := json.Unmarshal(f.Data.Data, &res); err != nil || results[string(res.Call)] != "" {
					t.Fatalf("%s: %v, or a second result", f.Data.Data, err)
				}
				results[string(res.Call)] = res.Text
			}
		}
	}
	for n := range calls {
		if got := results[fmt.Sprintf("n%d", n)]; got != fmt.Sprint(n) {
			t.Errorf("call n%d: %q", n, got)
		}
	}
	if err := s.c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(time.Second)); err != nil {
		t.Error(err)
	}
}

// TestHTTP2WithoutTLS: a proxy that ends TLS may speak HTTP/2 to the gateway, for requests and for streams
// of events that share one connection.
func TestHTTP2WithoutTLS(t *testing.T) {
	e := open(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{Bus: e.bus, Records: book{}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx, l) }()
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: two}
	defer transport.CloseIdleConnections()
	get := func(accept string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/v1/conversations/c_two/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+aliceKey)
		r.Header.Set("Accept", accept)
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s; want 200 by HTTP/2", resp.Proto, resp.Status)
		}
		return resp
	}
	stream := get("text/event-stream")
	defer stream.Body.Close()
	for n := range 3 {
		e.note("c_two", n, "told")
	}
	told, lines := 0, bufio.NewScanner(stream.Body)
	for told < 3 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), `"conversation":"c_two"`) {
			told++
		}
	}
	if told != 3 {
		t.Errorf("%d events were told, want 3: %v", told, lines.Err())
	}
	page := get("application/json")
	var p conversations.Page
	if err := json.NewDecoder(page.Body).Decode(&p); err != nil || len(p.Events) != 3 {
		t.Errorf("a page of %d events, %v; want 3", len(p.Events), err)
	}
	_ = page.Body.Close()
	cancel()
	for lines.Scan() { // the drain ends the stream
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
