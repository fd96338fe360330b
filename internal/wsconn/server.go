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
	// Subprotocols are those that the server speaks, the best first.
	Subprotocols []string
	// CheckOrigin reports whether a page of the request's origin may connect. Nil: only pages of the request's own host may.
	CheckOrigin func(r *http.Request) bool
	// Refuse answers a request that cannot be upgraded. Nil: with the status and its plain text.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, reason error)
	// MaxMessage is the most bytes of one message of a client, after unpacking. Default 64 KiB.
	MaxMessage int
	// Compression lets connections agree on permessage-deflate.
	Compression bool
	// Stall is how long one write may block before the client is dropped. Default 10 s.
	Stall time.Duration
	// Translate words the close frame that answers what a client did against the protocol. Nil: as the RFC has it.
	Translate func(CloseError) CloseError
}

// Server opens WebSockets and holds what its connections share. Its methods may be called from many goroutines.
type Server struct {
	options   Options
	began     time.Time
	plain     websocket.Upgrader
	packing   websocket.Upgrader // the same, and agrees on compression
	read      readBuffers
	write     Buffers
	deflaters *deflaters
	inflaters inflaters
}

// NewServer makes a server. It starts nothing.
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

// Upgrade turns a request into a connection. After an error the request was answered. The handler of the request should
// return soon, which gives net/http's buffers back, and have [Conn.Run] called by another goroutine.
func (s *Server) Upgrade(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	upgrader, deflates := &s.plain, s.options.Compression && offersDeflate(r.Header)
	if deflates {
		upgrader = &s.packing // which does not look at what an offer demands
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

// Adopt makes a connection of one whose opening handshake is over; deflates says that compression was agreed on.
func (s *Server) Adopt(conn net.Conn, deflates bool) *Conn {
	c := &Conn{server: s, net: conn, deflates: deflates}
	now := int64(s.uptime())
	c.received.Store(now)
	c.said.Store(now)
	return c
}

// uptime is how long the server is there. It does not jump when the clock is set, by which every connection at once would look silent.
func (s *Server) uptime() time.Duration { return time.Since(s.began) }
