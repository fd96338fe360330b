package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/schemas"
)

//guarantee:a-conversation-has-no-holes
func TestSocketReplaysThenGoesLive(t *testing.T) {
	e := open(t)
	for n := range 3 {
		e.note("c_1", n, "x")
	}
	s := e.socket()
	s.write(`{"op":"attach","id":5,"conv":"c_1"}`)
	all := s.until("live")
	if f := all[0]; f.Op != "attached" || f.ID == nil || *f.ID != 5 || f.Recovered == nil || !*f.Recovered || f.Head != all[3].Cur {
		t.Errorf("%+v", f)
	}
	prev := "-1"
	for n, f := range all[1:4] {
		if f.Op != "ev" || !f.Replay || f.Prev != prev || f.Data.ID != fmt.Sprintf("c_1.%d", n) || f.Conv != "c_1" {
			t.Errorf("event %d: %+v", n, f)
		}
		prev = f.Cur
	}
	e.note("c_1", 3, "y")
	if f := s.next(); f.Op != "ev" || f.Replay || f.Prev != prev || f.Data.ID != "c_1.3" {
		t.Errorf("live: %+v", f)
	}

	again := e.socket()
	again.write(`{"op":"attach","conv":"c_1","after":"` + prev + `"}`)
	if all := again.until("live"); len(all) != 3 || all[1].Data.ID != "c_1.3" || all[1].Prev != prev {
		t.Errorf("resumed: %+v", all)
	}
	now := e.socket()
	now.write(`{"op":"attach","conv":"c_1","after":"now"}`)
	all = now.until("live")
	if len(all) != 2 {
		t.Errorf("from now: %+v", all)
	}
	e.note("c_1", 4, "z")
	if f := now.next(); f.Data.ID != "c_1.4" || f.Prev != all[0].Head {
		t.Errorf("from now: %+v, want the event after %s", f, all[0].Head)
	}
}

func TestSocketCalls(t *testing.T) {
	e := open(t)
	e.work()
	s := e.socket()
	s.write(`{"op":"send","id":1,"request":{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"hang"}}}`)
	if f := s.next(); f.Op != "accepted" || *f.ID != 1 || f.Call != "mine" || f.Conversation != "c_1" || f.Existing {
		t.Fatalf("%+v", f)
	}
	s.write(`{"op":"send","id":2,"request":{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"hang"}}}`)
	if f := s.next(); f.Op != "accepted" || !f.Existing {
		t.Errorf("the repeat: %+v", f)
	}
	s.write(`{"op":"send","id":3,"request":{"id":"mine","tool":"bash","input":{"command":"other"}}}`)
	if f := s.next(); f.Op != "error" || *f.ID != 3 || f.Error.Code != schemas.Conflict || f.Error.Field != "request.id" {
		t.Errorf("other content: %+v", f)
	}
	s.write(`{"op":"send","id":4,"request":{"input":{}}}`)
	if f := s.next(); f.Op != "error" || f.Error.Field != "request.tool" {
		t.Errorf("no tool: %+v", f)
	}
	s.write(`{"op":"cancel","id":5,"call":"nobodys"}`)
	if f := s.next(); f.Op != "error" || f.Error.Code != schemas.NotFound {
		t.Errorf("cancel of nothing: %+v", f)
	}
	s.write(`{"op":"cancel","id":6,"call":"mine"}`)
	if f := s.next(); f.Op != "cancelling" || f.Call != "mine" {
		t.Errorf("cancel: %+v", f)
	}
	s.write(`{"op":"attach","conv":"c_1"}`)
	for {
		f := s.next()
		if f.Op == "ev" && f.Data.Type == schemas.CallFinished {
			break
		}
	}
	s.write(`{"op":"ping","id":7}`)
	if f := s.until("pong"); *f[len(f)-1].ID != 7 {
		t.Errorf("%+v", f)
	}
}

func TestAttachments(t *testing.T) {
	e := open(t)
	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1"}`)
	s.until("live")
	s.write(`{"op":"attach","id":2,"conv":"c_1"}`)
	if f := s.next(); f.Op != "error" || f.Error.Code != schemas.Conflict {
		t.Errorf("twice: %+v", f)
	}
	s.write(`{"op":"detach","conv":"c_1"}`)
	s.until("detached")
	e.note("c_1", 0, "x")
	s.write(`{"op":"detach","conv":"c_1"}`)
	if f := s.next(); f.Op != "error" || f.Error.Code != schemas.NotFound {
		t.Errorf("detached twice, or told after the detach: %+v", f)
	}
	for n := range live.MaxAttached {
		s.write(fmt.Sprintf(`{"op":"attach","conv":"many_%d"}`, n))
	}
	for range live.MaxAttached {
		s.until("live")
	}
	s.write(`{"op":"attach","conv":"one_more"}`)
	if f := s.next(); f.Op != "error" || f.Error.Code != schemas.Exhausted {
		t.Errorf("above the limit: %+v", f)
	}
}

// TestMalformedFrames: a frame that is no JSON object of the protocol ends the socket with 4503;
// one that is, but says something wrong, is answered and the socket lives on.
//
//guarantee:bad-input-is-answered-not-guessed
func TestMalformedFrames(t *testing.T) {
	e := open(t)
	for name, send := range map[string]func(*websocket.Conn) error{
		"not JSON":      func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, []byte(`attach c_1`)) },
		"an array":      func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, []byte(`[]`)) },
		"empty":         func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, nil) },
		"binary":        func(c *websocket.Conn) error { return c.WriteMessage(websocket.BinaryMessage, []byte(`{"op":"ping"}`)) },
		"invalid UTF-8": func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, []byte("{\"op\":\"\xff")) },
		"too large": func(c *websocket.Conn) error {
			return c.WriteMessage(websocket.TextMessage, []byte(`{"op":"`+strings.Repeat("x", 4*live.MaxFrame)+`"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := e.socket()
			s.t = t
			if err := send(s.c); err != nil {
				t.Fatal(err)
			}
			if code, _ := s.closedWith(); code != int(live.CloseProtocol) {
				t.Errorf("closed with %d", code)
			}
		})
	}
	s := e.socket()
	for _, frame := range []string{`{"op":"jump","id":1}`, `{"op":"attach","id":1}`, `{"op":"ping","id":1,"x":2}`} {
		s.write(frame)
		if f := s.next(); f.Op != "error" || f.ID == nil || *f.ID != 1 || f.Error.Code != schemas.Invalid {
			t.Errorf("%s: %+v", frame, f)
		}
	}
	s.write(`{"op":"ping"}`)
	s.until("pong")
}

// TestFramesInPieces: how a client cuts its messages and writes makes no difference.
func TestFramesInPieces(t *testing.T) {
	e := open(t)
	s := e.socket()
	masked := func(first byte, text string) []byte {
		return append([]byte{first, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
	}
	const text, ping, more, last = websocket.TextMessage, 0x80 | websocket.PingMessage, 0, 0x80
	whole := slices.Concat( // a message in three frames with a ping between them, and another in one
		masked(text, `{"op":`), masked(ping, "hello"), masked(more, `"ping",`), masked(last, `"id":1}`),
		masked(last|text, `{"op":"ping","id":2}`),
	)
	pongs := 0
	s.c.SetPongHandler(func(data string) error {
		if data == "hello" {
			pongs++
		}
		return nil
	})
	for _, size := range []int{len(whole), 1, 7} {
		for part := range slices.Chunk(whole, size) {
			if _, err := s.c.NetConn().Write(part); err != nil {
				t.Fatal(err)
			}
		}
		for id := range int64(2) {
			if f := s.next(); f.Op != "pong" || f.ID == nil || *f.ID != id+1 {
				t.Fatalf("in pieces of %d: %+v", size, f)
			}
		}
	}
	if pongs != 3 {
		t.Errorf("%d pings of 3 were answered", pongs)
	}
}

func TestSocketKeys(t *testing.T) {
	e := open(t)
	for name, tc := range map[string]struct {
		header http.Header
		status int
	}{
		"none":            {http.Header{"X": {"y"}}, http.StatusUnauthorized},
		"unknown":         {http.Header{"Authorization": {"Bearer nope"}}, http.StatusUnauthorized},
		"subprotocol":     {http.Header{"Sec-Websocket-Protocol": {"sandjet.v1, sandjet.key." + aliceKey}}, http.StatusSwitchingProtocols},
		"bad subprotocol": {http.Header{"Sec-Websocket-Protocol": {"sandjet.v1, sandjet.key.nope"}}, http.StatusUnauthorized},
		"other origin":    {http.Header{"Authorization": {"Bearer " + aliceKey}, "Origin": {"https://evil.example"}}, http.StatusForbidden},
		"own origin":      {http.Header{"Authorization": {"Bearer " + aliceKey}, "Origin": {e.url}}, http.StatusSwitchingProtocols},
	} {
		t.Run(name, func(t *testing.T) {
			s, resp, _ := e.dial(tc.header)
			if resp == nil || resp.StatusCode != tc.status {
				t.Fatalf("%+v, want %d", resp, tc.status)
			}
			if s != nil && strings.Contains(strings.Join(resp.Header.Values("Sec-Websocket-Protocol"), ""), "key") {
				t.Error("the key is repeated in the answer")
			}
		})
	}
}

//guarantee:cancelling-kills-and-stopping-finishes
func TestDrainSaysBye(t *testing.T) {
	e := open(t)
	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1"}`)
	s.until("live")
	e.gw.Drain()
	code, before := s.closedWith()
	if code != int(live.CloseDrain) || len(before) == 0 {
		t.Fatalf("closed with %d after %+v", code, before)
	}
	if bye := before[len(before)-1]; bye.Op != "bye" || bye.Code != code || bye.RetryMS <= 0 {
		t.Errorf("%+v", bye)
	}
	if _, resp, err := e.dial(nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a draining gateway takes sockets: %v", err)
	}
}

// TestSlowReader: a client that does not read is dropped once a write has stalled. Another client on the same conversation is not harmed,
// and the dropped one finds everything when it comes back.
//
//guarantee:a-conversation-has-no-holes
func TestSlowReader(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.Stall = 2 * time.Second })
	slow, quick := e.socket(), e.socket()
	if tcp, ok := slow.c.NetConn().(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(256 << 10); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*socket{slow, quick} {
		s.write(`{"op":"attach","conv":"c_1"}`)
		s.until("live")
	}
	const events, size = 80, 200 << 10 // far above what the kernel buffers of a connection hold
	text := strings.Repeat("x", size)
	for n := range events { // one by one: nothing may stall on the way to the quick one
		e.note("c_1", n, text)
		if f := quick.next(); f.Data.ID != fmt.Sprintf("c_1.%d", n) {
			t.Fatalf("the quick one got %s, want number %d", f.Data.ID, n)
		}
	}
	eventually(t, "the slow one is dropped", func() bool {
		return strings.Contains(e.do(ask{method: http.MethodGet, path: "/metrics", key: "-"}).body,
			`sandjet_readers_dropped_total{transport="websocket"} 1`)
	})
	got, last := 0, "-1"
	for {
		f, err := slow.read()
		if err != nil {
			break // what was on its way has arrived; then the connection ended
		}
		last = f.Cur
		got++
	}
	if got >= events {
		t.Fatal("nothing was held back: the test does not show what it should")
	}
	back := e.socket()
	back.write(`{"op":"attach","conv":"c_1","after":"` + last + `"}`)
	for _, f := range back.until("live") {
		if f.Op == "ev" {
			if f.Data.ID != fmt.Sprintf("c_1.%d", got) {
				t.Fatalf("after the return: %s, want number %d", f.Data.ID, got)
			}
			got++
		}
	}
	if got != events {
		t.Errorf("%d of %d events", got, events)
	}
}
