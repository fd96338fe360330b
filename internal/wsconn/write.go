package wsconn

import (
	"sync"
	"time"
)

const (
	// FlushAbove is how many bytes are gathered into one write, about.
	FlushAbove = 32 << 10
	// largeMessage is what is written without being copied.
	largeMessage = FlushAbove / 2
	// headerRoom is the largest header of a server.
	headerRoom = 10
	// closeWithin is the time of the last frames to a client that may not read.
	closeWithin = time.Second
)

// Buffers are what writers gather messages in. Only those at work have one. The zero value is ready.
type Buffers struct{ pool sync.Pool }

// Get takes an empty buffer.
func (p *Buffers) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, FlushAbove+largeMessage+largeMessage/4))
}

// Put gives a buffer back. A very large one is not kept.
func (p *Buffers) Put(b *[]byte) {
	if cap(*b) > 2*(FlushAbove+largeMessage) {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}

// Out gathers messages into one write. It belongs to the function that it is given to, until that returns.
type Out struct {
	conn  *Conn
	b     []byte
	start int // of the message that [Out.Begin] began
}

// Full reports whether enough is gathered for one write, or nothing more will be written.
func (o *Out) Full() bool { return len(o.b) >= FlushAbove || o.conn.closing.Load() }

// Text adds a text message made of parts. Where it is large it is written at once, with all that was gathered before it, and
// its last part is not copied.
func (o *Out) Text(parts ...[]byte) {
	size := sizeOf(parts)
	o.b = appendHeader(o.b, bitLast|byte(Text), size)
	if size <= largeMessage {
		for _, p := range parts {
			o.b = append(o.b, p...)
		}
		return
	}
	last := len(parts) - 1
	for _, p := range parts[:last] {
		o.b = append(o.b, p...)
	}
	o.conn.write(o.b)
	o.conn.write(parts[last])
	o.b = o.b[:0]
}

// Message adds a message of either kind, compressed if that was agreed and makes it smaller.
func (o *Out) Message(kind Opcode, body []byte) {
	if !o.compressed(kind, body) {
		o.b = append(appendHeader(o.b, bitLast|byte(kind), len(body)), body...)
	}
}

// Compressed adds a text message made of parts, compressed if that was agreed and makes it smaller.
func (o *Out) Compressed(parts ...[]byte) {
	if !o.compressed(Text, parts...) {
		o.Text(parts...)
	}
}

func (o *Out) compressed(kind Opcode, parts ...[]byte) (packed bool) {
	if !o.conn.deflates || sizeOf(parts) < deflateFrom {
		return false
	}
	o.b, packed = o.conn.server.deflaters.message(o.b, kind, parts...)
	return packed
}

// TextOf adds a text message of size bytes, which add appends to the slice that it is given.
func (o *Out) TextOf(size int, add func([]byte) []byte) {
	o.b = add(appendHeader(o.b, bitLast|byte(Text), size))
}

// Begin begins a text message whose size is not known yet. Until [Out.End] nothing else may be added but by Append.
func (o *Out) Begin() {
	o.start = len(o.b)
	o.b = append(o.b, make([]byte, headerRoom)...)
}

// Append appends to the message that was begun, and returns how many bytes it has.
func (o *Out) Append(add func([]byte) []byte) int {
	o.b = add(o.b)
	return len(o.b) - o.start - headerRoom
}

// End ends the message that was begun; its text is what was appended, but for the first skip bytes. It is compressed if that was
// agreed and makes it smaller.
func (o *Out) End(skip int) {
	text := o.b[o.start+headerRoom+skip:]
	o.b = o.b[:o.start]
	if !o.compressed(Text, text) {
		o.b = append(appendHeader(o.b, bitLast|byte(Text), len(text)), text...) // it moves forward
	}
}

func sizeOf(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// Write writes what fill gathers, and waits while the client does not read. No other goroutine writes meanwhile, and nothing is gathered.
func (c *Conn) Write(fill func(out *Out)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Out{conn: c}
	fill(&o)
	c.write(o.b)
}

// Wake has [Handler.Gather] called soon, by a goroutine that lives until nothing is left to send. It never waits.
func (c *Conn) Wake() { c.writer.Wake(c.drain) }

// drain writes until nothing is left.
func (c *Conn) drain() {
	buf := c.server.write.Get()
	defer c.server.write.Put(buf)
	for {
		for more := true; more; {
			var n int
			more, n = c.round(buf)
			c.handler.Wrote(n)
		}
		if !c.writer.Again() {
			return
		}
	}
}

// round gathers what fits into one write and writes it. It reports whether there may be more.
func (c *Conn) round(buf *[]byte) (more bool, sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Out{conn: c, b: (*buf)[:0]}
	if c.pingDue.Swap(false) {
		o.b = appendHeader(o.b, bitLast|byte(opPing), 0)
	}
	more = c.handler.Gather(&o)
	*buf = o.b[:0]
	more = c.write(o.b) && more
	sent, c.sent = c.sent, 0
	return more, sent
}

// PingIfDue writes the ping that [Conn.KeepAlive] has asked for, if it has. It is for a handler that waits in
// [Handler.Wrote], which the writing waits for.
func (c *Conn) PingIfDue() {
	if c.pingDue.Swap(false) {
		c.control(opPing, nil)
	}
}

// control writes a control frame.
func (c *Conn) control(kind Opcode, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(append(appendHeader(nil, bitLast|byte(kind), len(body)), body...))
}

// write writes whole frames, in the hands of who holds mu. A client that does not take them within the stall is dropped: it
// reports false from then on.
func (c *Conn) write(b []byte) bool {
	if len(b) == 0 {
		return !c.closing.Load()
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(c.server.options.Stall)) // shows at the write
	if c.closing.Load() {                                              // by now its own deadline may have been overwritten
		return false
	}
	c.said.Store(int64(c.server.uptime()))
	c.sent += len(b)
	if _, err := c.net.Write(b); err != nil {
		c.broken = true
		c.Drop(&WriteError{err})
		return false
	}
	return true
}

// Drop ends the connection at once, without a word. Only the first of all ends counts. It never waits.
func (c *Conn) Drop(why error) {
	if c.closing.CompareAndSwap(false, true) {
		c.handler.Closing(why)
		_ = c.net.Close() // nothing can be done about it
	}
}

// Close ends the connection with a close frame, and the text messages last before it. Only the first of all ends counts. It
// waits for a moment at most: for who writes now, and for the client to read.
func (c *Conn) Close(why CloseError, last ...[]byte) {
	var b []byte
	for _, text := range last {
		b = append(appendHeader(b, bitLast|byte(Text), len(text)), text...)
	}
	body := closeBody(why.Code, why.Reason)
	c.end(&why, appendHeader(b, bitLast|byte(opClose), len(body)), body)
}

// end writes the last frames. What the client sends after that is read away for a moment: closing with unread bytes would
// reset the connection, and the client might never see why it was closed.
func (c *Conn) end(why error, frames ...[]byte) {
	if !c.closing.CompareAndSwap(false, true) {
		return
	}
	c.handler.Closing(why)
	deadline := time.Now().Add(closeWithin)
	_ = c.net.SetWriteDeadline(deadline) // a write that blocks ends by it
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		_ = c.net.Close() // nothing can be done about it
		return
	}
	deadline = time.Now().Add(closeWithin) // again: waiting for the lock, or for a busy machine, is not the client's fault
	_ = c.net.SetWriteDeadline(deadline)   // shows at the write
	_ = c.net.SetReadDeadline(deadline)    // as above
	var b []byte
	for _, f := range frames {
		b = append(b, f...)
	}
	_, _ = c.net.Write(b) // the client may have gone
	if half, ok := c.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it is closed whole in a moment
	}
}
