package deno

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// pipe is a listener with one connection.
type pipe struct {
	conns chan net.Conn
	over  chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error   { close(p.over); return nil }
func (p *pipe) Addr() net.Addr { return &net.UnixAddr{} }

// talk opens a link to a sandbox that does what speak says, in the bubble of the test.
func talk(t *testing.T, speak func(*websocket.Conn)) *link {
	t.Helper()
	p := &pipe{make(chan net.Conn, 1), make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		speak(conn)
	})}
	go func() { _ = server.Serve(p) }() // it ends with the test
	t.Cleanup(func() { _ = server.Close() })
	dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		p.conns <- there
		return here, nil
	}}
	conn, res, err := dialer.DialContext(t.Context(), "ws://sandbox/", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	l := newLink(conn)
	t.Cleanup(l.Close)
	return l
}

func say(conn *websocket.Conn, format string, args ...any) {
	_ = conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)) // the other end may be gone
}

// drain reads what comes until the end, and counts pings.
func drain(conn *websocket.Conn, pings *atomic.Int32) {
	for {
		_, text, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if string(text) == "ping" && pings != nil {
			pings.Add(1)
		}
	}
}

// TestSilence: a sandbox that sends nothing is pinged, and abandoned after a while. One that answers pings is waited for.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var pings atomic.Int32
		l := talk(t, func(conn *websocket.Conn) { drain(conn, &pings) })
		begun := time.Now()
		err := l.call(t.Context(), "spawn", map[string]any{}, nil)
		var broken *brokenError
		if took := time.Since(begun); !errors.As(err, &broken) || took < silence || took > silence+pingEvery || pings.Load() < 8 {
			t.Errorf("%v after %s and %d pings", err, took, pings.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := talk(t, func(conn *websocket.Conn) {
			for n := 0; ; {
				_, text, err := conn.ReadMessage()
				switch {
				case err != nil:
					return
				case string(text) != "ping":
				case n < 100:
					say(conn, "pong")
					n++
				default:
					say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{"pid":1}}}`)
				}
			}
		})
		begun := time.Now()
		if err := l.call(t.Context(), "spawn", map[string]any{}, nil); err != nil || time.Since(begun) < 3*time.Minute {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// TestStreams: a stream may begin before the answer that names it, or after; one that is too long, and too many of them, are bounded.
func TestStreams(t *testing.T) {
	t.Parallel()
	const part = `{"jsonrpc":"2.0","method":"$sandbox.stream.%s","params":{"streamId":%d,"data":%q}}`
	for name, c := range map[string]struct {
		speak func(conn *websocket.Conn)
		want  string
	}{
		"it begins before the answer": {func(conn *websocket.Conn) {
			say(conn, part, "start", 4, "")
			say(conn, part, "enqueue", 4, "aGVs")
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			say(conn, part, "enqueue", 4, "bG8=")
			say(conn, part, "end", 4, "")
			say(conn, part, "enqueue", 4, "bG8=") // belongs to no request
		}, "hello <nil>"},
		"it begins after the answer": {func(conn *websocket.Conn) {
			say(conn, `{"jsonrpc":"2.0","id":77,"result":{"ok":{}}}`) // belongs to no request
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			say(conn, part, "start", 4, "")
			say(conn, part, "enqueue", 9, "bG8=") // belongs to no request
			say(conn, part, "enqueue", 4, "aGVsbG8=")
			say(conn, part, "end", 4, "")
		}, "hello <nil>"},
		"it is too long": {func(conn *websocket.Conn) {
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			for range mostStream/(3<<18) + 1 {
				say(conn, part, "enqueue", 4, strings.Repeat("AAAA", 1<<18))
			}
		}, errTooLong.Error()},
		"it cannot be read": {func(conn *websocket.Conn) {
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			say(conn, part, "error", 4, "")
		}, "could not read"},
		"the connection ends": {func(conn *websocket.Conn) {
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			say(conn, part, "enqueue", 4, "aGVsbG8=")
			_ = conn.Close()
		}, "broke"},
		"there are too many": {func(conn *websocket.Conn) {
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			for i := range mostStreams + 1 {
				say(conn, part, "start", 100+i, "")
			}
		}, errTooLong.Error()},
		"it is no JSON-RPC": {func(conn *websocket.Conn) {
			say(conn, `{"jsonrpc":"2.0","id":0,"result":{"ok":{}}}`)
			say(conn, `{}`)
		}, errNoRPC.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := talk(t, func(conn *websocket.Conn) {
					for {
						if _, text, err := conn.ReadMessage(); err != nil || string(text) != "ping" {
							break
						}
					}
					c.speak(conn)
					drain(conn, nil)
				})
				s := l.claim(4)
				if err := l.call(t.Context(), "spawn", map[string]any{}, nil); err != nil && !strings.Contains(err.Error(), c.want) {
					t.Fatal(err)
				}
				<-s.done
				if got := fmt.Sprintf("%s %v", s.data[:min(len(s.data), 100)], s.err); !strings.Contains(got, c.want) {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}
