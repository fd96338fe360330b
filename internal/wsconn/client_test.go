package wsconn

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// echo sends every message back as it is.
type echo struct{ conn *Conn }

func (e echo) Message(kind Opcode, body []byte) {
	e.conn.Write(func(out *Out) { out.Message(kind, body) })
}
func (echo) Gather(*Out) bool { return false }
func (echo) Wrote(int)        {}
func (echo) Closing(error)    {}

// echoes returns a handler that upgrades to WebSockets and echoes their messages.
func echoes(t testing.TB, o Options) http.Handler {
	t.Helper()
	s := NewServer(o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := s.Upgrade(w, r); err == nil {
			c.Begin(echo{c})
			go c.Run()
		}
	})
}

// client is a WebSocket client that writes and reads plain bytes, so that it can also break the protocol.
type client struct {
	t        testing.TB
	net      net.Conn
	r        *bufio.Reader
	deflates bool // compression was agreed
}

// serverFrame is a frame that the server has sent, with its body decompressed.
type serverFrame struct {
	first byte
	body  string
	err   error // the connection ended
}

func dialEcho(t testing.TB, url, extensions string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	c := &client{t: t, net: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	head := "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
	if extensions != "" {
		head += "Sec-WebSocket-Extensions: " + extensions + "\r\n"
	}
	c.send([]byte(head + "\r\n"))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	c.deflates = strings.Contains(resp.Header.Get("Sec-Websocket-Extensions"), deflateExtension)
	return c
}

// send writes bytes. It ignores errors: a connection that the server has closed is noticed at the next read.
func (c *client) send(b []byte) { _, _ = c.net.Write(b) }

// next reads one frame and fails unless it is a complete message or control frame, not masked, with its length in the fewest possible
// bytes.
func (c *client) next() serverFrame {
	c.t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(c.r, head); err != nil {
		return serverFrame{err: err}
	}
	n := int(head[1])
	if n&bitMasked != 0 || head[0]&bitLast == 0 || head[0]&bitsUnknown != 0 || head[0]&bitDeflated != 0 && !c.deflates {
		c.t.Fatalf("a frame of the server begins with %x", head)
	}
	switch n {
	case lengthInTwo:
		long := make([]byte, 2)
		_, _ = io.ReadFull(c.r, long)
		if n = int(binary.BigEndian.Uint16(long)); n <= maxControl {
			c.t.Fatalf("a length of %d is written in two bytes", n)
		}
	case lengthInEight:
		long := make([]byte, 8)
		_, _ = io.ReadFull(c.r, long)
		if n = int(binary.BigEndian.Uint64(long)); n < 1<<16 {
			c.t.Fatalf("a length of %d is written in eight bytes", n)
		}
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return serverFrame{err: err}
	}
	if head[0]&bitDeflated != 0 {
		r := flate.NewReader(io.MultiReader(bytes.NewReader(body), strings.NewReader(inflateTail)))
		whole, err := io.ReadAll(r)
		if err != nil {
			c.t.Fatalf("a compressed frame: %v", err)
		}
		return serverFrame{first: head[0] &^ bitDeflated, body: string(whole)}
	}
	return serverFrame{first: head[0], body: string(body)}
}

// ended reports whether the server closes the connection. A reset counts too: it happens when the server has not read everything that was
// sent.
func (c *client) ended() bool {
	c.t.Helper()
	f := c.next()
	var timeout net.Error
	return f.err != nil && (!errors.As(f.err, &timeout) || !timeout.Timeout())
}
