package web

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// HTTP2Limits returns the limits of one HTTP/2 connection. They also end a connection whose client is silent or does not read.
func HTTP2Limits() *http.HTTP2Config {
	const streams, frame, buffer = 128, 16 << 10, 1 << 20
	return &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReadFrameSize: frame,
		MaxReceiveBufferPerConnection: buffer, MaxReceiveBufferPerStream: buffer / 4,
		SendPingTimeout: time.Minute, PingTimeout: 15 * time.Second, WriteByteTimeout: 30 * time.Second,
	}
}

// Limits of requests that an HTTP/2 client resets before they are answered. A reset costs it next to nothing and the gateway the work of a
// request, so a client that does little else loses the connection.
const (
	resetsAtOnce    = 500
	resetsPerSecond = 50
)

// resets limits the requests that are reset on one connection.
type resets struct {
	conn net.Conn

	mu    sync.Mutex
	free  float64 // how many more resets are allowed now
	since time.Time
}

type resetsKey struct{}

// WithResets adds a new counter of resets to a connection's context.
func WithResets(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, resetsKey{}, &resets{conn: conn, free: resetsAtOnce, since: time.Now()})
}

// more counts one reset and reports whether it is within the limit.
func (c *resets) more(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = min(resetsAtOnce, c.free+now.Sub(c.since).Seconds()*resetsPerSecond) - 1
	c.since = now
	return c.free >= 0
}

// EndResetters closes HTTP/2 connections whose client resets too many requests. Connections must have the context of [WithResets].
func EndResetters(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.ProtoMajor != 2 || r.Context().Err() == nil {
			return
		}
		if c, ok := r.Context().Value(resetsKey{}).(*resets); ok && !c.more(time.Now()) {
			_ = c.conn.Close() // net/http sees it
		}
	})
}
