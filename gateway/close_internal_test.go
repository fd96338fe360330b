package gateway

import (
	"context"
	"net"
	"testing"
	"time"
)

// lastWrite is a connection that takes everything and notes until when.
type lastWrite struct {
	net.Conn

	asked chan time.Time // the deadlines of writes
	until time.Time      // the one in force
}

func (c *lastWrite) SetWriteDeadline(t time.Time) error {
	c.until = t
	c.asked <- t
	return nil
}

func (c *lastWrite) SetReadDeadline(time.Time) error { return nil }
func (c *lastWrite) Write(b []byte) (int, error)     { return len(b), nil }

// TestTheLastFrameHasItsOwnTime: whoever closes a socket may have to wait for who writes to it, and by then the time for
// that write is over. The client is to learn all the same why it was closed.
func TestTheLastFrameHasItsOwnTime(t *testing.T) {
	t.Parallel()
	c := &lastWrite{asked: make(chan time.Time, 2)}
	s := &session{g: New(Options{}), net: c}
	s.ctx, s.end = context.WithCancelCause(t.Context())
	s.mu.Lock() // somebody writes
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.close(&closed{CloseDrain, "this gateway stops"})
	}()
	for first := <-c.asked; !time.Now().After(first); { // it is over
		time.Sleep(5 * time.Millisecond)
	}
	written := time.Now()
	s.mu.Unlock()
	<-done
	if !c.until.After(written) {
		t.Errorf("the last frame had until %s, which was before the write ended at %s", c.until, written)
	}
}
