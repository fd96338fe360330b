package embedded

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestWritesInTheProcessAreBounded: the deadline of a write holds though not every deadline is passed to the pipe, and a deadline that was
// removed does not hold.
func TestWritesInTheProcessAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		c := &inProcess{Conn: client}
		defer c.Close()
		bounded := func(b string) (time.Duration, error) { // as the client library does it
			begun := time.Now()
			if err := c.SetWriteDeadline(begun.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			_, err := c.Write([]byte(b))
			return time.Since(begun), errors.Join(err, c.SetWriteDeadline(time.Time{}))
		}
		read := func(after time.Duration) {
			go func() {
				time.Sleep(after)
				_, _ = server.Read(make([]byte, 8)) // an end is seen by who writes
			}()
		}
		for _, idle := range []time.Duration{0, 5 * time.Second, 50 * time.Second, time.Hour} { // since the last write
			time.Sleep(idle)
			read(40 * time.Second)
			if _, err := bounded("x"); err != nil {
				t.Errorf("%s after the last write: a reader that took 40 s: %v", idle, err)
			}
			time.Sleep(idle / 10)
			if took, err := bounded("x"); !errors.Is(err, os.ErrDeadlineExceeded) || took < 45*time.Second || took > time.Minute {
				t.Errorf("%s after the last write nobody read: %v after %s; want the deadline", idle, err, took)
			}
		}
		read(time.Hour)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("a write without a deadline: %v", err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read with a deadline: %v", err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write with a shorter deadline: %v", err)
		}
	})
}
