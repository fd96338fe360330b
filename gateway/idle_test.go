package gateway_test

import (
	"runtime"
	"testing"
)

// TestAnIdleSocketIsOneGoroutine: what writes and what loads ends when there is nothing to do.
func TestAnIdleSocketIsOneGoroutine(t *testing.T) {
	e := open(t)
	for n := range 3 {
		e.note("c_1", n, "x")
	}
	attach := func() {
		s := e.socket()
		s.write(`{"op":"attach","conv":"c_1"}`)
		s.until("live")
	}
	attach() // what is shared runs from here on
	const sockets, spare = 40, 5
	before := runtime.NumGoroutine()
	for range sockets {
		attach()
	}
	eventually(t, "each socket is one goroutine", func() bool { return runtime.NumGoroutine() <= before+sockets+spare })
}
