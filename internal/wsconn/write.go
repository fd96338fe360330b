package wsconn

import (
	"sync"
	"time"
)

const (
	// FlushAbove is about how many bytes are combined into one write.
	FlushAbove = 32 << 10
	// largeMessage is the size above which a message is written without being copied.
	largeMessage = FlushAbove / 2
	// headerRoom is the maximum size of a server's frame header.
	headerRoom = 10
	// closeWithin limits the time of the last frames, as the client may not read them.
	closeWithin = time.Second
)

// Buffers is a pool of buffers in which writers combine messages. Only writers that have something to write use one. The zero value is
// ready to use.
type Buffers struct{ pool sync.Pool }

// Get returns an empty buffer.
func (p *Buffers) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, FlushAbove+largeMessage+largeMessage/4))
}

// Put returns a buffer to the pool. A very large one is freed.
func (p *Buffers) Put(b *[]byte) {
	if cap(*b) > 2*(FlushAbove+largeMessage) {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}

// Out combines messages into one write. It must not be used after the function to which it was passed has returned.
type Out struct {
	conn  *Conn
	b     []byte
	start int // where the message that [Out.Begin] began starts
}

// Full reports whether there is enough for one write, or nothing more will be written.
func (o *Out) Full() bool { return len(o.b) >= FlushAbove || o.conn.closing.Load() }

// Text adds a text message made of parts. A large message is written at once, after everything that was added before, without copying its
// last part.
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

// Message adds a message of either type, compressed if that was negotiated and makes it smaller.
func (o *Out) Message(kind Opcode, body []byte) {
	if !o.compressed(kind, body) {
		o.b = append(appendHeader(o.b, bitLast|byte(kind), len(body)), body...)
	}
}

// Compressed adds a text message made of parts, compressed if that was negotiated and makes it smaller.
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

// TextOf adds a text message of size bytes, which add appends to its argument.
func (o *Out) TextOf(size int, add func([]byte) []byte) {
	o.b = add(appendHeader(o.b, bitLast|byte(Text), size))
}

// Begin begins a text message of unknown size. Until [Out.End] only Append may be called.
func (o *Out) Begin() {
	o.start = len(o.b)
	o.b = append(o.b, make([]byte, headerRoom)...)
}

// Append appends to the message that was begun, and returns its size in bytes.
func (o *Out) Append(add func([]byte) []byte) int {
	o.b = add(o.b)
	return len(o.b) - o.start - headerRoom
}

// End ends the message that was begun, without the first skip bytes of what was appended. It is compressed if that was negotiated and
// makes it smaller.
func (o *Out) End(skip int) {
	text := o.b[o.start+headerRoom+skip:]
	o.b = o.b[:o.start]
	if !o.compressed(Text, text) {
		o.b = append(appendHeader(o.b, bitLast|byte(Text), len(text)), text...) // the text moves forward
	}
}

func sizeOf(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// Write writes the messages that fill adds, and blocks while the client does not read. Meanwhile no other goroutine writes, and Gather is
// not called.
func (c *Conn) Write(fill func(out *Out)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Out{conn: c}
	fill(&o)
	c.write(o.b)
}

// Wake makes a goroutine call [Handler.Gather] soon, until nothing is left to send. It never blocks.
func (c *Conn) Wake() { c.writer.Wake(c.drain) }

// drain writes until nothing is left to send.
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

// round gathers messages for one write and writes them. It reports whether there may be more, and how many bytes were sent since its last
// call.
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

// PingIfDue writes the ping that [Conn.KeepAlive] has requested, if any. It is for handlers that block in [Handler.Wrote], which delays
// all other writes.
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

// write writes complete frames. The caller holds mu. If the client does not receive them within Options.Stall, the connection is dropped,
// and write returns false from then on.
func (c *Conn) write(b []byte) bool {
	if len(b) == 0 {
		return !c.closing.Load()
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(c.server.options.Stall)) // an error shows at the write
	if c.closing.Load() {                                              // end sets an earlier deadline, which the line above may have overwritten
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

// Drop closes the connection at once, without a close frame. If the connection has begun to end, it does nothing. It never blocks.
func (c *Conn) Drop(why error) {
	if c.closing.CompareAndSwap(false, true) {
		c.handler.Closing(why)
		_ = c.net.Close() // an error has no consequence
	}
}

// Close ends the connection with the text messages in last and a close frame. If the connection has begun to end, it does nothing. It
// blocks for a moment at most: for another writer, and for the client.
func (c *Conn) Close(why CloseError, last ...[]byte) {
	var b []byte
	for _, text := range last {
		b = append(appendHeader(b, bitLast|byte(Text), len(text)), text...)
	}
	body := closeBody(why.Code, why.Reason)
	c.end(&why, appendHeader(b, bitLast|byte(opClose), len(body)), body)
}

// end writes the last frames. After that, what the client sends is read and discarded for a moment: closing with unread bytes would reset
// the connection, and the client might never see the reason.
func (c *Conn) end(why error, frames ...[]byte) {
	if !c.closing.CompareAndSwap(false, true) {
		return
	}
	c.handler.Closing(why)
	deadline := time.Now().Add(closeWithin)
	_ = c.net.SetWriteDeadline(deadline) // ends a write that blocks
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		_ = c.net.Close() // an error has no consequence
		return
	}
	deadline = time.Now().Add(closeWithin) // renewed, because waiting for the lock, or a busy host, is not the client's fault
	_ = c.net.SetWriteDeadline(deadline)   // an error shows at the write
	_ = c.net.SetReadDeadline(deadline)    // as above
	var b []byte
	for _, f := range frames {
		b = append(b, f...)
	}
	_, _ = c.net.Write(b) // the client may have disconnected
	if half, ok := c.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the connection is closed completely in a moment
	}
}
