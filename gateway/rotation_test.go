package gateway_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// pipes is a listener within a bubble of virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestWhatAKeyOpenedEndsWithIt: sockets and streams of a key that was rotated away, or of a token that was made
// with it, end within a minute; those of another account stay.
func TestWhatAKeyOpenedEndsWithIt(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		k := newKeys(t)
		gw := gateway.New(gateway.Options{Bus: b, Records: book{}, Keys: k})
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- gw.Run(ctx, l) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()

		dialer := websocket.Dialer{NetDialContext: l.dial}
		sockets := map[string]*websocket.Conn{}
		for name, h := range map[string]http.Header{
			"by its key":     {"Authorization": {"Bearer " + aliceKey}},
			"by its token":   asProtocol(signed(t, k, alice, aliceKey, time.Hour)),
			"first frame":    {"Sec-Websocket-Protocol": {"sandjet.v1, sandjet.auth"}},
			"of another":     {"Authorization": {"Bearer " + bobKey}},
			"another, token": asProtocol(signed(t, k, bob, bobKey, time.Hour)),
		} {
			c, _, err := dialer.DialContext(ctx, "ws://gateway/v1/ws", h)
			if err != nil {
				t.Fatal(name, err)
			}
			defer c.Close()
			sockets[name] = c
		}
		if err := sockets["first frame"].WriteMessage(websocket.TextMessage, []byte(`{"op":"auth","token":"`+aliceKey+`"}`)); err != nil {
			t.Fatal(err)
		}
		codes := map[string]chan int{}
		for name, c := range sockets {
			code := make(chan int, 1)
			codes[name] = code
			go func() { code <- closeCode(c) }()
		}
		streamed := map[string]chan string{}
		for name, credential := range map[string]string{
			"by its key": aliceKey, "by its token": signed(t, k, alice, aliceKey, time.Hour), "of another": bobKey,
		} {
			body := make(chan string, 1)
			streamed[name] = body
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/conversations/c_1/events", nil)
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Authorization", "Bearer "+credential)
			go func() {
				w := httptest.NewRecorder()
				gw.ServeHTTP(w, r)
				body <- w.Body.String()
			}()
		}

		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for name, code := range codes {
			if len(code) > 0 {
				t.Errorf("a socket %s ended with %d while its key was good", name, <-code)
			}
		}
		k.rotate(alice)
		time.Sleep(time.Minute)
		synctest.Wait()
		for name, code := range codes {
			other := strings.Contains(name, "another")
			switch {
			case other && len(code) > 0:
				t.Errorf("a socket %s ended with %d", name, <-code)
			case !other && len(code) == 0:
				t.Errorf("a socket %s is still there a minute after its key", name)
			case !other:
				if got := <-code; got != int(live.CloseAuth) {
					t.Errorf("a socket %s ended with %d; want 4002", name, got)
				}
			}
		}
		for name, body := range streamed {
			other := name == "of another"
			if other != (len(body) == 0) {
				t.Errorf("a stream %s: ended is %t", name, len(body) > 0)
			} else if !other {
				if text := <-body; !strings.Contains(text, "no longer valid") || !strings.Contains(text, string(schemas.Denied)) {
					t.Errorf("a stream %s ended with %s", name, text[max(0, len(text)-300):])
				}
			}
		}
	})
}

// closeCode reads a socket to its end.
func closeCode(c *websocket.Conn) int {
	for {
		_, _, err := c.ReadMessage()
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
			return ce.Code
		}
		if err != nil {
			return -1
		}
	}
}
