package live

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wsconn"
)

const closeWithin = time.Second // for the end of a stream whose client may not read

// eventConn is the connection of an event stream over HTTP/1, taken over from net/http. While it is idle its only goroutine is a reader
// that notices when the client disconnects; a ring calls Turn for the keep-alives.
type eventConn struct {
	*eventStream

	net     net.Conn
	chunked bool    // HTTP/1.1; the response to an HTTP/1.0 client ends with the connection
	ended   func()  // updates the log and the metrics
	ahead   [1]byte // a buffer for what the client sends, which should be nothing
	slot    int     // of the ring
	writer  wsconn.Coalescer
	mu      sync.Mutex // held by the goroutine that writes, and guards the rest
	over    bool       // nothing is written any more
}

// outliving is a response writer whose connection can be taken over, for a response that continues after its handler has returned.
type outliving interface {
	// Outlive hijacks the connection. The caller must call ended at the end of the response.
	Outlive(r *http.Request, status int) (conn net.Conn, ended func(), err error)
}

// takeOver takes the connection over from net/http and writes the beginning of the response. It returns false if that is not possible, as
// on HTTP/2, where many requests share a connection.
func (s *eventStream) takeOver(w http.ResponseWriter, r *http.Request, first []byte) bool {
	writer, ok := w.(outliving)
	if !ok || r.ProtoMajor != 1 || r.Method != http.MethodGet {
		return false
	}
	conn, ended, err := writer.Outlive(r, http.StatusOK)
	if err != nil {
		return false
	}
	c := &eventConn{eventStream: s, net: conn, ended: ended, chunked: r.ProtoAtLeast(1, 1)}
	c.mu.Lock()
	if err := c.send(append(c.header(w.Header()), c.framed(append(make([]byte, chunkRoom), first...), false)...)); err != nil {
		c.drop(err)
	}
	c.room.free()
	c.mu.Unlock()
	s.away.Store(c)
	s.server.streams.Add(c) // if these are closed already, the check below sees that the gateway drains
	c.wake()
	s.server.running.Go(c.run)
	return true
}

// header returns the status line and header of the response. The connection serves no further request: a client that reconnects after the
// end of a stream may reach another gateway, or use another credential.
func (c *eventConn) header(h http.Header) []byte {
	b := bytes.NewBufferString("HTTP/1.1 200 OK\r\n")
	if c.chunked {
		h.Set("Transfer-Encoding", "chunked")
	} else {
		b = bytes.NewBufferString("HTTP/1.0 200 OK\r\n")
	}
	h.Set("Connection", "close")
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	_ = h.Write(b) // memory takes it
	b.WriteString("\r\n")
	return b.Bytes()
}

// run reads and discards what the client sends until the connection ends, and then releases everything.
func (c *eventConn) run() {
	for room := c.ahead[:]; ; {
		n, err := c.net.Read(room)
		if err != nil || n == 0 {
			break
		}
		if len(room) == len(c.ahead) { // the client sends, and is not read
			const some = 512
			room = make([]byte, some)
		}
	}
	_ = c.net.Close() // nothing can be done about an error; it ends a write that blocks
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.server.streams.Remove(c)
	c.close()
	c.ended()
}

// Slot implements [wsconn.Entry].
func (c *eventConn) Slot() *int { return &c.slot }

// Turn implements [wsconn.Entry]: it makes the stream send a keep-alive.
func (c *eventConn) Turn() {
	c.keepaliveDue.Store(true)
	c.wake()
}

// stop makes the stream end soon, even if a write blocks. It does not block.
func (c *eventConn) stop() {
	_ = c.net.SetWriteDeadline(time.Now().Add(closeWithin)) // shows at the write
	c.wake()
}

func (c *eventConn) wake() { c.writer.Wake(c.drain) }

// drain writes until nothing is left to write.
func (c *eventConn) drain() {
	buf := c.server.buffers.Get()
	defer c.server.buffers.Put(buf)
	for {
		for c.round(buf) { // there may be more
		}
		if !c.writer.Again() {
			return
		}
	}
}

// round does one write. It reports whether there may be more to write.
func (c *eventConn) round(buf *[]byte) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	b := append((*buf)[:0], make([]byte, chunkRoom)...)
	b, more, over := c.next(b)
	if cap(b) <= 2*wsconn.FlushAbove { // a larger one is not kept
		*buf = b
	}
	if len(b) > chunkRoom || over {
		if err := c.send(c.framed(b, over)); err != nil {
			c.drop(err)
			return false
		}
		c.room.free()
	}
	if over {
		c.finish()
	}
	return more
}

// chunkRoom is the space before a chunk's text for its size.
const chunkRoom = 16 + len("\r\n")

// framed returns the text in b after its first chunkRoom bytes as a chunk of the response, followed by the last chunk if last is true. It
// overwrites b.
func (c *eventConn) framed(b []byte, last bool) []byte {
	if !c.chunked {
		return b[chunkRoom:]
	}
	start := chunkRoom
	if n := len(b) - chunkRoom; n > 0 {
		size := append(strconv.AppendInt(make([]byte, 0, chunkRoom), int64(n), 16), "\r\n"...)
		start -= len(size)
		copy(b[start:], size)
		b = append(b, "\r\n"...)
	}
	if last {
		b = append(b, "0\r\n\r\n"...)
	}
	return b[start:]
}

// send writes b to the connection. The caller holds mu.
func (c *eventConn) send(b []byte) error {
	_ = c.net.SetWriteDeadline(time.Now().Add(c.server.Stall)) // shows at the write
	if c.server.Draining.Err() != nil {                        // by now what stop has set may have been overwritten
		_ = c.net.SetWriteDeadline(time.Now().Add(closeWithin)) // as above
	}
	_, err := c.net.Write(b)
	return err
}

// drop closes a connection on which a write failed. The caller holds mu.
func (c *eventConn) drop(err error) {
	c.over = true
	c.dropped(err)
	_ = c.net.Close() // nothing can be done about it
}

// finish ends the writing. Data that the client still sends is read for a moment, since closing with unread data would reset the
// connection, and the client might never see the end. The caller holds mu.
func (c *eventConn) finish() {
	c.over = true
	_ = c.net.SetReadDeadline(time.Now().Add(closeWithin)) // shows at the read
	if half, ok := c.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it is closed whole in a moment
	}
}
