package wsconn

import (
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// quiet is a handler that has nothing to send.
type quiet struct{ ended chan error }

func (quiet) Message(Opcode, []byte) {}
func (quiet) Gather(*Out) bool       { return false }
func (quiet) Wrote(int)              {}
func (q quiet) Closing(why error) {
	if q.ended != nil {
		q.ended <- why
	}
}

// lastWrite is a connection that accepts all writes and records their deadlines.
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

// TestTheLastFrameHasItsOwnTime: Close may have to wait for another goroutine's write until that write's deadline has passed. The close
// frame then gets a new deadline, so that the client still learns why the connection was closed.
func TestTheLastFrameHasItsOwnTime(t *testing.T) {
	t.Parallel()
	l := &lastWrite{asked: make(chan time.Time, 2)}
	c := NewServer(Options{}).Adopt(l, false)
	c.Begin(quiet{})
	c.mu.Lock() // another goroutine writes
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Close(CloseError{4001, "this server stops"})
	}()
	for first := <-l.asked; !time.Now().After(first); { // it is over
		time.Sleep(5 * time.Millisecond)
	}
	written := time.Now()
	c.mu.Unlock()
	<-done
	if !l.until.After(written) {
		t.Errorf("the last frame had until %s, which was before the write ended at %s", l.until, written)
	}
}

// slowed is a handler whose first Wrote takes the time wait and calls PingIfDue each second, like a sender that limits its rate.
type slowed struct {
	quiet

	conn *Conn
	once *sync.Once
	wait time.Duration
	over chan time.Duration
}

func (s slowed) Wrote(int) {
	s.once.Do(func() {
		begun := time.Now()
		for range int(s.wait / time.Second) {
			time.Sleep(time.Second)
			s.conn.PingIfDue()
		}
		s.over <- time.Since(begun)
	})
}

// TestAConnectionThatWaitsIsPinged: a sender may wait for minutes before it sends more. Pings show both ends meanwhile that the other one
// is alive.
func TestAConnectionThatWaitsIsPinged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 10 * time.Minute
		there, here := net.Pipe()
		c := NewServer(Options{}).Adopt(here, false)
		h := slowed{conn: c, once: new(sync.Once), wait: wait, over: make(chan time.Duration, 1)}
		c.Begin(h)
		c.Wake()
		begun := time.Now()
		for n := range 10 {
			time.Sleep(Round)
			c.KeepAlive()
			head := make([]byte, 2)
			if _, err := io.ReadFull(there, head); err != nil || head[0] != ping {
				t.Fatalf("%x, %v; want a ping", head, err)
			}
			if late := time.Since(begun) - time.Duration(n+1)*Round; late > time.Second*time.Duration(n+2) {
				t.Errorf("ping %d went out %s late", n, late)
			}
			c.received.Store(int64(c.server.uptime())) // its pong
		}
		if took := <-h.over; took < wait {
			t.Errorf("it waited %s; want %s", took, wait)
		}
	})
}

// TestASilentClientIsDropped: if a client answers no ping, its connection is closed within six rounds.
func TestASilentClientIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		c := NewServer(Options{}).Adopt(here, false)
		h := quiet{ended: make(chan error, 1)}
		c.Begin(h)
		go c.Run()
		begun := time.Now()
		for range 7 {
			time.Sleep(Round)
			c.KeepAlive()
		}
		if why := <-h.ended; !errors.Is(why, ErrSilent) {
			t.Errorf("it ended with %v", why)
		}
		_ = there.Close()
		if took := time.Since(begun); took > 7*Round {
			t.Errorf("it took %s", took)
		}
	})
}

// TestAClientThatDoesNotReadIsDropped: a write that stalls closes the connection, and the handler gets the reason once.
func TestAClientThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		defer there.Close()
		const stall = 3 * time.Second
		c := NewServer(Options{Stall: stall}).Adopt(here, false)
		h := quiet{ended: make(chan error, 2)}
		c.Begin(h)
		begun := time.Now()
		c.Write(func(out *Out) { out.Text([]byte("hello")) })
		if why, took := <-h.ended, time.Since(begun); took != stall || !c.Closed() {
			t.Errorf("it ended with %v after %s", why, took)
		}
		c.Write(func(out *Out) { out.Text([]byte("more")) })
		c.Drop(ErrGone)
		if len(h.ended) > 0 {
			t.Errorf("it ended again, with %v", <-h.ended)
		}
	})
}

// TestAnIdleConnectionIsOneGoroutine: what reads and what writes ends when there is nothing to do.
func TestAnIdleConnectionIsOneGoroutine(t *testing.T) {
	s := httptest.NewServer(echoes(t, Options{}))
	defer s.Close()
	const connections = 50
	talk := func() {
		c := dialEcho(t, s.URL, "")
		c.send(clientFrame(text, "hello"))
		if f := c.next(); f.body != "hello" {
			t.Fatalf("%+v", f)
		}
	}
	talk()
	before := runtime.NumGoroutine()
	for range connections {
		talk()
	}
	const spare = 5
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+connections+spare; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines for %d connections", runtime.NumGoroutine()-before, connections)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
