package natstest

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

// TestAFreePortIsHeld: the process that is to have a port can listen on it again and again, and no other process gets it between.
func TestAFreePortIsHeld(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	for range 3 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	at := &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Bind(fd, at); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the port is not held: %v", err)
	}
}
