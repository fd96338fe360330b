package denotest

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// The codes with which a connection is closed for what it brought.
const (
	closeInvalidJSON = 4000
	closeInvalidRPC  = 4001
)

// socket is a connection to a sandbox.
type socket struct {
	s    *Service
	box  *box
	conn *websocket.Conn
	work sync.WaitGroup
	over chan struct{} // closed when it has ended

	writing sync.Mutex

	mu      sync.Mutex
	streams map[int]*inbound // of the client, by its ids
	next    int              // the id of the next stream of ours
}

// inbound is a stream sent by the client. A request may refer to it before or after it begins.
type inbound struct {
	r *os.File
	w *os.File
}

// message is a JSON-RPC message.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// outcome is the result of a request: a value, or an error in the sandbox.
type outcome struct {
	OK  any
	Err *sandboxError
}

type sandboxError struct {
	Constructor string `json:"constructorName"`
	Message     string `json:"message"`
	Code        string `json:"code,omitempty"`
}

func (o outcome) MarshalJSON() ([]byte, error) {
	if o.Err != nil {
		return json.Marshal(map[string]any{"error": o.Err})
	}
	return json.Marshal(map[string]any{"ok": o.OK})
}

func failed(constructor, text string) outcome {
	code := map[string]string{"NotFound": "ENOENT", "PermissionDenied": "EACCES", "AlreadyExists": "EEXIST", "IsADirectory": "EISDIR"}
	return outcome{Err: &sandboxError{Constructor: constructor, Message: text, Code: code[constructor]}}
}

// speak upgrades a request to a WebSocket with a sandbox, and returns when that has ended. First says that this connection made the
// sandbox.
func (s *Service) speak(w http.ResponseWriter, r *http.Request, b *box, first bool) {
	header := http.Header{"Date": w.Header()["Date"], "X-Deno-Trace-Id": w.Header()["X-Deno-Trace-Id"], "X-Deno-Sandbox-Id": {b.id}}
	conn, err := upgrader.Upgrade(w, r, header)
	c := &socket{s: s, box: b, conn: conn, over: make(chan struct{}), streams: map[int]*inbound{}}
	if err == nil {
		s.mu.Lock()
		s.sockets[c] = true
		gone := !b.stopped.IsZero()
		closing := s.closing
		s.mu.Unlock()
		if closing {
			_ = conn.NetConn().Close()
		}
		if gone {
			c.bye()
		}
		c.read()
		_ = conn.Close()
		close(c.over)
		c.forget()
		c.work.Wait()
		s.mu.Lock()
		delete(s.sockets, c)
		s.mu.Unlock()
	}
	if s.mu.Lock(); first && b.stops.IsZero() {
		b.end()
	}
	s.mu.Unlock()
}

// bye closes the connection as the service does when a sandbox has ended.
func (c *socket) bye() {
	_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "sandbox stopped"),
		time.Now().Add(time.Second)) // it may be gone
	_ = c.conn.NetConn().Close()
}

// forget ends the streams that the client was sending.
func (c *socket) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, in := range c.streams {
		_ = in.w.Close()
		_ = in.r.Close()
		delete(c.streams, id)
	}
}

// read processes the client's messages until the connection ends.
func (c *socket) read() {
	for {
		kind, text, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		if kind == websocket.TextMessage && string(text) == "ping" {
			c.write([]byte("pong"))
			continue
		}
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			c.close(closeInvalidJSON, "Invalid JSON")
			return
		}
		switch {
		case m.Version != "2.0" || m.Method == "":
			c.close(closeInvalidRPC, "Invalid message")
			return
		case m.ID == nil:
			c.notified(m)
		default:
			c.work.Go(func() { c.request(m) })
		}
	}
}

func (c *socket) close(code int, text string) {
	_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(time.Second))
}

func (c *socket) write(text []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.conn.WriteMessage(websocket.TextMessage, text) // the reader sees that it broke
}

func (c *socket) send(m message) {
	m.Version = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // it is our own
	}
	c.write(text)
}

// half sends half of a frame and breaks the connection.
func (c *socket) half(m message) {
	m.Version = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // it is our own
	}
	frame := []byte{0x81, 127}
	frame = binary.BigEndian.AppendUint64(frame, uint64(len(text)))
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.conn.NetConn().Write(append(frame, text[:len(text)/2]...)) // the client may be gone
	_ = c.conn.NetConn().Close()
}

// request carries out and answers a request, or applies a fault.
func (c *socket) request(m message) {
	f := c.s.faults.Take("RPC "+m.Method, func(text string) bool { return has(m.Params, text) })
	if f == nil {
		f = &Fault{}
	}
	if f.Slow > 0 {
		select {
		case <-time.After(f.Slow):
		case <-c.over:
		}
	}
	answer := message{ID: m.ID}
	switch {
	case f.Drop == Before:
		_ = c.conn.NetConn().Close()
		return
	case f.Status != 0:
		answer.Error = &rpcError{-32603, "the fault of a test"}
	default:
		h := methods()[m.Method]
		if h == nil {
			answer.Error = &rpcError{-32601, "Method not found"}
			break
		}
		result, err := h(c, m.Params)
		if err != nil {
			answer.Error = &rpcError{-32602, "Invalid params: " + err.Error()}
			break
		}
		answer.Result = result
	}
	switch f.Drop {
	case After:
		_ = c.conn.NetConn().Close()
	case Half:
		c.half(answer)
	default:
		c.send(answer)
	}
}

// has reports whether a text is in the strings of a request.
func has(params json.RawMessage, text string) bool {
	var all any
	if json.Unmarshal(params, &all) != nil {
		return false
	}
	return within(all, text)
}

// notified processes a notification: a part of a stream from the client.
func (c *socket) notified(m message) {
	var part struct {
		Stream int    `json:"streamId"`
		Data   []byte `json:"data"`
	}
	if json.Unmarshal(m.Params, &part) != nil {
		return
	}
	switch m.Method {
	case "$sandbox.stream.start":
		c.inbound(part.Stream)
	case "$sandbox.stream.enqueue":
		if in := c.inbound(part.Stream); in != nil {
			_, _ = in.w.Write(part.Data) // who reads it may have ended
		}
	case "$sandbox.stream.end", "$sandbox.stream.error":
		if in := c.inbound(part.Stream); in != nil {
			_ = in.w.Close()
		}
	}
}

// inbound returns a stream of the client, creating it if necessary; nil if there cannot be one.
func (c *socket) inbound(id int) *inbound {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := c.streams[id]; in != nil {
		return in
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	c.streams[id] = &inbound{r, w}
	return c.streams[id]
}

// outbound sends the data of r to the client as a stream, and returns the stream's id. Without a client the data is lost.
func (c *socket) outbound(r io.ReadCloser) int {
	c.mu.Lock()
	id := c.next
	c.next++
	c.mu.Unlock()
	c.notify("start", map[string]any{"streamId": id})
	c.s.work.Go(func() {
		defer r.Close() //nolint:errcheck // it was only read
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			if n > 0 {
				c.notify("enqueue", map[string]any{"streamId": id, "data": buf[:n]})
			}
			if err != nil {
				c.notify("end", map[string]any{"streamId": id})
				return
			}
		}
	})
	return id
}

func (c *socket) notify(what string, params any) {
	text, err := json.Marshal(params)
	if err != nil {
		panic(err) // it is our own
	}
	c.send(message{Method: "$sandbox.stream." + what, Params: text})
}
