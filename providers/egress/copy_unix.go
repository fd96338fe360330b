//go:build unix

package egress

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// reader returns a function that waits for data on a connection and returns it in a buffer, with a function that releases the buffer. It
// takes the buffer only when there is data: sandboxes have many silent connections.
func reader(c net.Conn) func() ([]byte, func(), error) {
	kernel, ok := c.(syscall.Conn)
	if !ok {
		return plainReader(c)
	}
	raw, err := kernel.SyscallConn()
	if err != nil {
		return plainReader(c)
	}
	return func() ([]byte, func(), error) {
		var buf *[bufferSize]byte
		var n int
		var got error
		err := raw.Read(func(fd uintptr) bool {
			buf, _ = buffers.Get().(*[bufferSize]byte)
			for {
				if n, got = syscall.Read(int(fd), buf[:]); !errors.Is(got, syscall.EINTR) { // a descriptor
					break
				}
			}
			if errors.Is(got, syscall.EAGAIN) {
				buffers.Put(buf)
				buf = nil
				return false
			}
			return true
		})
		if buf == nil {
			return nil, func() {}, err
		}
		give := func() { buffers.Put(buf) }
		switch {
		case err != nil:
			return nil, give, err
		case got != nil:
			return nil, give, got
		case n == 0:
			return nil, give, io.EOF
		default:
			return buf[:n], give, nil
		}
	}
}
