package natstest

import (
	"syscall"
	"testing"
)

// freePort is a port without a listener, which the kernel gives to no other process until the test ends. A socket that is bound to it and
// does not listen holds it: with SO_REUSEADDR on both sides, which Go sets for who listens, others may listen there (socket(7)), in this
// process or another, again and again. Without that, a process that asks for any port could get it before its server starts, and while it
// is down.
func freePort(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("bound to %v", bound)
	}
	return at.Port
}
