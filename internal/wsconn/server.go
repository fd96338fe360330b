package wsconn

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Options are the settings that all connections of a [Server] share.
type Options struct {
	// Subprotocols are the supported subprotocols, in order of preference.
	Subprotocols []string
	// CheckOrigin reports whether a page of the request's origin may connect. If it is nil, only pages of the request's own host may.
	CheckOrigin func(r *http.Request) bool
	// Refuse answers a request that cannot be upgraded. If it is nil, the answer is the status with its plain text.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, reason error)
	// MaxMessage is the maximum size of a client's message in bytes, after decompression. Default 64 KiB.
	MaxMessage int
	// Compression allows connections to negotiate permessage-deflate.
	Compression bool
	// Stall is how long one write may block before the client is dropped. Default 10 s.
	Stall time.Duration
	// Translate returns the close frame to send for a client's protocol violation. If it is nil, the frame is as in the RFC.
	Translate func(CloseError) CloseError
}

// Server upgrades requests to WebSockets and has the resources that its connections share. It is safe for concurrent use.
type Server struct {
	options   Options
	began     time.Time
	plain     websocket.Upgrader
	packing   websocket.Upgrader // the same with compression
	read      readBuffers
	write     Buffers
	deflaters *deflaters
	inflaters inflaters
}

// NewServer returns a server. It starts no goroutines.
func NewServer(o Options) *Server {
	const defaultMessage, defaultStall = 64 << 10, 10 * time.Second
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMessage
	}
	if o.Stall <= 0 {
		o.Stall = defaultStall
	}
	s := &Server{options: o, began: time.Now(), deflaters: newDeflaters()}
	s.inflaters.most = o.MaxMessage
	s.plain = websocket.Upgrader{
		WriteBufferPool: &sync.Pool{}, Subprotocols: o.Subprotocols, CheckOrigin: o.CheckOrigin, Error: o.Refuse,
	}
	s.packing = s.plain
	s.packing.EnableCompression = true
	return s
}

// Upgrade upgrades a request to a connection. If it returns an error, the request was answered. The request's handler should return soon,
// which frees net/http's buffers, so another goroutine should call [Conn.Run].
func (s *Server) Upgrade(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	upgrader, deflates := &s.plain, s.options.Compression && offersDeflate(r.Header)
	if deflates {
		upgrader = &s.packing // the library does not check the parameters of an offer
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	return s.Adopt(conn.NetConn(), deflates), nil
}

// Offers reports whether a request offers a subprotocol.
func Offers(r *http.Request, subprotocol string) bool {
	return slices.Contains(websocket.Subprotocols(r), subprotocol)
}

// Adopt returns a Conn for a connection whose opening handshake is complete. deflates reports that compression was negotiated.
func (s *Server) Adopt(conn net.Conn, deflates bool) *Conn {
	c := &Conn{server: s, net: conn, deflates: deflates}
	now := int64(s.uptime())
	c.received.Store(now)
	c.said.Store(now)
	return c
}

// uptime returns the time since the server's start. Unlike the wall clock it does not jump, which would make all connections look silent
// at once.
func (s *Server) uptime() time.Duration { return time.Since(s.began) }
