//go:build !unix

package egress

import "net"

// reader returns a function that waits for what a connection says and returns it in a buffer, to be released.
func reader(c net.Conn) func() ([]byte, func(), error) { return plainReader(c) }
