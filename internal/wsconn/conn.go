package wsconn

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Handler handles one connection.
type Handler interface {
	// Message is called for each message of the client. Nothing more is read until it returns. body is only valid until then.
	Message(kind Opcode, body []byte)
	// Gather adds the messages to send now, after a [Conn.Wake]. If it returns true, it is called again when what it added is written. It
	// should return when [Out.Full] returns true. No other goroutine writes meanwhile.
	Gather(out *Out) (more bool)
	// Wrote is called before each further Gather, with the number of bytes written since the last call. It may block, which delays Gather
	// and nothing else.
	Wrote(n int)
	// Closing is called once, as soon as the connection ends, with a [*CloseError], a [*WriteError], [ErrGone] or [ErrSilent]. It must
	// neither block nor write.
	Closing(why error)
}

// Conn is the server's end of one WebSocket. All methods except Run are safe for concurrent use.
type Conn struct {
	server   *Server
	handler  Handler
	net      net.Conn
	ahead    [1]byte // first byte of the next frame
	deflates bool    // compression was negotiated

	received, said atomic.Int64 // when something was last received and sent, by the server's uptime
	pingDue        atomic.Bool
	closing        atomic.Bool
	writer         Coalescer

	// mu is held by the goroutine that writes, and guards the fields below.
	mu     sync.Mutex
	broken bool // a write has failed, perhaps in the middle of a frame
	sent   int  // bytes since the last Wrote
}

// Begin sets the handler. It is called once, before any other method.
func (c *Conn) Begin(h Handler) { c.handler = h }

// Run reads until the connection has ended, and closes it. An idle connection needs only this goroutine, with a small stack.
func (c *Conn) Run() {
	c.read()
	c.Drop(ErrGone)
	c.linger()
}

// Closed reports whether the connection has begun to end: nothing that is written from then on is sent.
func (c *Conn) Closed() bool { return c.closing.Load() }

// KeepAlive must be called once in each [Round]. It sends a ping if nothing was sent for a round, so that no pause is longer than two
// rounds, or if nothing was received for some. If nothing was received for five rounds it drops the connection. It never blocks.
func (c *Conn) KeepAlive() {
	now := c.server.uptime()
	switch silent(now-time.Duration(c.received.Load()), now-time.Duration(c.said.Load())) {
	case silenceEnds:
		c.Drop(ErrSilent)
	case silenceBroken:
		c.pingDue.Store(true)
		c.Wake()
	case silenceShort:
	}
}

// read reads frames until the connection ends. It waits for the first byte of a frame with almost nothing on its stack, because very many
// idle connections each have such a stack. Frames are processed on the stack of another goroutine, which ends afterwards.
func (c *Conn) read() {
	for {
		if n, err := c.net.Read(c.ahead[:]); n == 0 || err != nil {
			return
		}
		done := make(chan bool)
		go func() { done <- c.take() }()
		if !<-done {
			return
		}
	}
}

// take reads what the client sends now and passes it to the handler, message by message, until no partial frame or message is left. It
// returns false when the connection has ended.
func (c *Conn) take() bool {
	buf := c.server.read.get()
	defer c.server.read.put(buf)
	b, most := append(*buf, c.ahead[0]), c.server.options.MaxMessage
	var m message
	for at := 0; ; {
		f, size, err := splitFrame(b[at:], most, c.deflates)
		switch {
		case err != nil:
			c.fail(err)
			return false
		case size > 0:
			at += size
			c.received.Store(int64(c.server.uptime()))
			if c.closing.Load() || !c.frame(f, &m) {
				return false
			}
			if at == len(b) && !m.open {
				return true
			}
			continue
		}
		b = append(b[:0], b[at:]...)
		at = 0
		if len(b) == cap(b) { // the buffer grows with the bytes that arrive, not with the length that a frame announces
			const more = 4
			b = append(make([]byte, 0, min(more*cap(b), most+maxHeader)), b...)
		}
		n, err := c.net.Read(b[len(b):cap(b)])
		if n == 0 && err != nil {
			return false
		}
		b = b[:len(b)+n]
	}
}

// frame processes one frame. It returns false when the connection has ended.
func (c *Conn) frame(f frame, m *message) bool {
	switch f.opcode {
	case opPing:
		c.control(opPong, f.body)
		return true
	case opPong:
		return true
	case opClose:
		if err := checkCloseBody(f.body); err != nil {
			c.fail(err)
		} else {
			c.end(ErrGone, appendHeader(nil, bitLast|byte(opClose), min(len(f.body), codeSize)), f.body[:min(len(f.body), codeSize)])
		}
		return false
	case opContinuation, Text, Binary: // a frame of a message
	}
	whole, err := m.add(f, c.server.options.MaxMessage)
	body := m.text
	if whole && m.deflated && err == nil {
		if body, err = c.server.inflaters.message(body); err == nil && m.kind == Text && validPrefix(body) < len(body) {
			err = errInvalidText
		}
	}
	if err != nil {
		c.fail(err)
		return false
	}
	if whole {
		c.handler.Message(m.kind, body)
	}
	return !c.closing.Load()
}

// fail closes a connection whose client has violated the protocol.
func (c *Conn) fail(err error) {
	why, ok := errors.AsType[*CloseError](err)
	if !ok {
		why = &CloseError{CloseProtocolError, err.Error()}
	}
	if t := c.server.options.Translate; t != nil {
		why = new(t(*why))
	}
	c.Close(*why)
}

// linger reads and discards what the client still sends until it closes too, for a moment at most.
func (c *Conn) linger() {
	_, _ = io.Copy(io.Discard, onlyReader{c.net}) // ends at the deadline, or when the connection is closed
	_ = c.net.Close()                             // nothing can be done about it
}

// onlyReader hides the other methods of a connection, with which io.Copy would allocate a large buffer.
type onlyReader struct{ net.Conn }
