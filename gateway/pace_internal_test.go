package gateway

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestASocketThatWaitsForItsPaceIsPinged: many sockets of an account that all have much to tell wait for minutes. None may
// be taken for gone, by either end, because nothing goes out meanwhile.
func TestASocketThatWaitsForItsPaceIsPinged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const owed, pings = 10 * time.Minute, 10
		g := New(Options{Limits: Limits{BytesPerSecond: 1}})
		there, here := net.Pipe()
		s := &session{g: g, net: here, account: "acct_1", sent: int(owed/time.Second) + 1} // a second's worth is free
		s.ctx, s.end = context.WithCancelCause(t.Context())
		begun := time.Now()
		over := make(chan time.Duration, 1)
		go func() { s.pace(); over <- time.Since(begun) }()
		for n := range pings {
			s.pingDue.Store(true)
			head := make([]byte, 2)
			if _, err := io.ReadFull(there, head); err != nil || head[0] != wsPing {
				t.Fatalf("%x, %v; want a ping", head, err)
			}
			if waited, most := time.Since(begun), time.Duration(n+1)*time.Second; waited > most {
				t.Errorf("ping %d went out after %s; want it within %s", n, waited, most)
			}
		}
		if took := <-over; took != owed {
			t.Errorf("it waited %s; want %s", took, owed)
		}
	})
}
