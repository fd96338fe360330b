package embedded

import (
	"net"
	"sync"
	"time"
)

// inProcess is the client's end of a connection to the server of the same process.
//
// The client library sets a deadline for each write and removes it afterwards, which on a pipe starts and stops a timer each time. Here a
// removed deadline stays on the pipe, and is changed only if the next one is much later, so a write is bounded by at least three quarters
// of what was asked for.
type inProcess struct {
	net.Conn

	mu    sync.Mutex
	bound time.Time // of the pipe; zero: none
	idle  bool      // no deadline is wanted, and the pipe may have one
}

// SetWriteDeadline bounds later writes; zero: no bound.
func (c *inProcess) SetWriteDeadline(t time.Time) error {
	const part = 4 // of the time until then that may be missing
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle = t.IsZero(); c.idle {
		return nil
	}
	if c.bound.Before(t) && t.Sub(c.bound) <= time.Until(t)/part {
		return nil
	}
	return c.apply(t)
}

// SetDeadline bounds reads and writes.
func (c *inProcess) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// Write writes within the requested deadline.
func (c *inProcess) Write(b []byte) (int, error) {
	if err := c.unbind(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// unbind removes a deadline from the pipe that no longer applies.
func (c *inProcess) unbind() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idle || c.bound.IsZero() {
		return nil
	}
	return c.apply(time.Time{})
}

// apply sets the pipe's deadline. The caller holds the lock.
func (c *inProcess) apply(t time.Time) error {
	c.bound = t
	return c.Conn.SetWriteDeadline(t)
}
