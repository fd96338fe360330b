package web

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/internal/host"
)

// Connections limits how many connections a listener accepts at the same time. 0 means the default, a negative number no limit.
type Connections struct {
	All        int // Default [DefaultConnections]
	PerAddress int // from one address; of IPv6 from one /64. Default: half of All
	// Refused is called for each connection that was refused, from one goroutine. It may be nil.
	Refused func(perAddress bool)
}

// DefaultConnections returns three quarters of the file descriptors that the process may open, but no more than fit into an eighth of its
// memory, and at most 150,000. The rest is reserved for work that must continue when clients open as many connections as they can: the
// files of the log, the gateway's own connections, and sandboxes.
func DefaultConnections() int { return defaultConnections(host.OpenFiles(), host.Memory()) }

// connectionMemory is the most memory of an idle connection, including the kernel's, in bytes. Measured: about 20 KiB with HTTP/1.1 and 28
// KiB with HTTP/2, after a first request.
const connectionMemory = 40 << 10

// defaultConnections is the pure part of DefaultConnections. Memory is in bytes; 0 means unknown.
func defaultConnections(files int, memory int64) int {
	const least, most, share, eighth = 64, 150_000, 4, 8
	n := int64(files / share * (share - 1))
	if memory > 0 {
		n = min(n, memory/eighth/connectionMemory)
	}
	return int(min(max(n, least), most))
}

// MaxConnections returns the largest useful limit: it leaves a tenth of the file descriptors, and at least 128, in reserve.
func MaxConnections() int {
	const least, share = 128, 10
	files := host.OpenFiles()
	return files - max(least, files/share)
}

// LimitConnections limits the connections that l accepts. A connection over the limit gets an HTTP/1.1 response that says so and is closed
// at once, so that it occupies neither a file descriptor nor a place in the kernel's queue.
func LimitConnections(l net.Listener, c Connections) net.Listener {
	c.All = cmp.Or(c.All, DefaultConnections())
	if c.PerAddress == 0 && c.All > 0 {
		c.PerAddress = max(c.All/2, 1)
	}
	return &limitedListener{Listener: l, limits: c, from: map[netip.Prefix]int{}}
}

type limitedListener struct {
	net.Listener

	limits Connections

	mu   sync.Mutex
	all  int
	from map[netip.Prefix]int // only addresses with connections have an entry
}

// Accept returns the next connection within the limits, and rejects those before it that are not.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(conn.RemoteAddr())
		ok, perAddress := l.take(from)
		if ok {
			return &limitedConn{Conn: conn, listener: l, from: from}, nil
		}
		if l.limits.Refused != nil {
			l.limits.Refused(perAddress)
		}
		turnAway(conn)
	}
}

func (l *limitedListener) take(from netip.Prefix) (ok, perAddress bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.limits.All > 0 && l.all >= l.limits.All:
		return false, false
	case l.limits.PerAddress > 0 && from.IsValid() && l.from[from] >= l.limits.PerAddress:
		return false, true
	}
	l.all++
	if from.IsValid() {
		l.from[from]++
	}
	return true, false
}

func (l *limitedListener) release(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if !from.IsValid() {
		return
	}
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}

// origin returns the prefix whose connections are counted together: one IPv4 address, or one /64 of IPv6, which is what one client has. It
// is invalid if the address is not one of TCP, such as a pipe's.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// turnAway sends the response 503 and closes the connection. The few bytes fit into the send buffer of any new socket.
func turnAway(conn net.Conn) {
	const answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\n" +
		"Content-Length: 118\r\n\r\n" +
		`{"error":{"code":"unavailable","message":"there are as many connections as there may be: close some, or come later"}}` + "\n"
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond)) // shows at the write
	_, _ = conn.Write([]byte(answer))                            // whether it arrives is the client's affair
	_ = conn.Close()
}

// limitedConn frees its slot when it is closed, once.
type limitedConn struct {
	net.Conn

	listener *limitedListener
	from     netip.Prefix
	closed   atomic.Bool
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.listener.release(c.from)
	}
	return err
}

// CloseWrite closes the sending side, if the connection supports that.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
