package natstest

import (
	"syscall"
	"testing"
)

// freePort returns a port without a listener, which the kernel assigns to no other process until the test ends. It is reserved by a socket
// that is bound to it and does not listen. With SO_REUSEADDR on both sockets, which Go sets for listeners, this process and others can
// listen on the port repeatedly (socket(7)). Without the reservation, a process that asks for any free port could get it before the server
// starts or while that is down.
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
