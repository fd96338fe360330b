package wsconn

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is who a connection belongs to.
type Handler interface {
	// Message takes a message of the client. Nothing further is read until it returns, and body is valid until then.
	Message(kind Opcode, body []byte)
	// Gather adds what there is to send now, after a [Conn.Wake]. More has it called again, after what was gathered is written: it should stop
	// as soon as [Out.Full] says so. No other goroutine writes meanwhile.
	Gather(out *Out) (more bool)
	// Wrote learns how many bytes went out since it was last called, before Gather is called again. It may wait, which
	// slows down what Gather sends and nothing else.
	Wrote(n int)
	// Closing is called once, as soon as the connection ends: with a [*CloseError], a [*WriteError], [ErrGone] or
	// [ErrSilent]. It must not wait, nor write.
	Closing(why error)
}

// Conn is the server's end of one WebSocket. Its methods may be called from many goroutines, all but Run.
type Conn struct {
	server   *Server
	handler  Handler
	net      net.Conn
	ahead    [1]byte // of the frame that comes next
	deflates bool    // compression was agreed

	received, said atomic.Int64 // when something last came and went, by the server's uptime
	pingDue        atomic.Bool
	closing        atomic.Bool
	writer         Coalescer

	// mu is held by the goroutine that writes, and guards the rest.
	mu     sync.Mutex
	broken bool // a write has failed: a frame may be half there
	sent   int  // bytes, since the handler was called
}

// Begin says whose connection it is. It is called once, before anything else.
func (c *Conn) Begin(h Handler) { c.handler = h }

// Run reads until the connection has ended, and closes it. While nothing comes it keeps one goroutine with a small stack.
func (c *Conn) Run() {
	c.read()
	c.Drop(ErrGone)
	c.linger()
}

// Closed reports whether the connection has begun to end: nothing that is written from now on goes out.
func (c *Conn) Closed() bool { return c.closing.Load() }

// KeepAlive is to be called once in each [Round]. A connection on which nothing was said since the last time says ping, so that
// no silence is longer than two rounds; one whose client was silent for five is dropped. It never waits.
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

// read takes frames until the connection ends. It waits for the first byte of one with next to nothing on its stack, which
// many idle connections keep; whatever a frame needs lives on the stack of another goroutine, that goes with it.
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

// take reads what the client sends now and hands it on, one message after the other, until nothing is left of it. It reports
// false when the connection has ended.
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
		if len(b) == cap(b) { // a large frame gets more as it comes, not because it says that it is large
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

// frame takes one frame. It reports false when the connection has ended.
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
	case opContinuation, Text, Binary: // a part of a message
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

// fail ends a connection whose client did something against the protocol.
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

// linger reads away what the client still sends until it closes too, for a moment.
func (c *Conn) linger() {
	_, _ = io.Copy(io.Discard, onlyReader{c.net}) // it ends by the deadline, or because it is closed
	_ = c.net.Close()                             // nothing can be done about it
}

// onlyReader hides what else a connection can do, which would cost a large buffer.
type onlyReader struct{ net.Conn }
