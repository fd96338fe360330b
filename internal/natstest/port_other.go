//go:build !linux

package natstest

import (
	"net"
	"testing"
)

// freePort returns a port that has no listener now. Another process may get it before the server starts.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing follows from it
	return l.Addr().(*net.TCPAddr).Port
}
