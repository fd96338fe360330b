package live

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/wsconn"
)

// TestASocketThatWaitsForItsPaceIsPinged: many sockets of an account that all have much to send wait for minutes. Neither end may take
// one for gone because nothing is sent meanwhile.
func TestASocketThatWaitsForItsPaceIsPinged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const owed, pings, ping = 10 * time.Minute, 4, 0x89
		server := New(Options{Places: NewPlaces(Limits{BytesPerSecond: 1})})
		there, here := net.Pipe()
		s := newSession(server, wsconn.NewServer(wsconn.Options{}).Adopt(here, false), "acct_1")
		begun := time.Now()
		over := make(chan time.Duration, 1)
		go func() { // a second's worth is free
			s.Wrote(int(owed/time.Second) + 1)
			over <- time.Since(begun)
		}()
		for n := range pings {
			time.Sleep(wsconn.Round)
			s.conn.KeepAlive()
			head := make([]byte, 2)
			if _, err := io.ReadFull(there, head); err != nil || head[0] != ping {
				t.Fatalf("%x, %v; want a ping", head, err)
			}
			if waited, most := time.Since(begun), time.Duration(n+1)*(wsconn.Round+time.Second); waited > most {
				t.Errorf("ping %d went out after %s; want it within %s", n, waited, most)
			}
		}
		if took := <-over; took != owed {
			t.Errorf("it waited %s; want %s", took, owed)
		}
		s.end(context.Canceled) // the goroutine that wrote the first ping keeps to the pace too
		synctest.Wait()
	})
}
