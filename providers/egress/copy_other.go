//go:build !unix

package egress

import "net"

// reader returns a function that waits for data on a connection and returns it in a buffer, with a function that releases the buffer.
func reader(c net.Conn) func() ([]byte, func(), error) { return plainReader(c) }
