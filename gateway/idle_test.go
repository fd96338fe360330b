package gateway_test

import (
	"fmt"
	"runtime"
	"testing"
)

// TestAnIdleSocketIsOneGoroutine: what writes and what loads ends when there is nothing to do.
func TestAnIdleSocketIsOneGoroutine(t *testing.T) {
	e := open(t)
	for n := range 3 {
		e.note("c_1", n, "x")
	}
	attach := func(n int) {
		s := e.socket()
		s.write(fmt.Sprintf(`{"op":"attach","conv":"c_1","compact":%t}`, n%2 == 0))
		s.until("live")
	}
	attach(0) // what is shared runs from here on
	const sockets, spare = 40, 5
	before := runtime.NumGoroutine()
	for n := range sockets {
		attach(n)
	}
	eventually(t, "each socket is one goroutine", func() bool { return runtime.NumGoroutine() <= before+sockets+spare })
}
