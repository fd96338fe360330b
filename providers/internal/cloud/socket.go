package cloud

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/gorilla/websocket"
)

// Socket opens a WebSocket to a call's address, with retries by the table. The call's method is GET; it has no body and no query. An
// answer of the service other than a WebSocket is an [*Error], as for [Client.Do]. It uses the proxy, TLS settings and dialer of the
// transport of c.HTTP. The caller closes the socket.
func (c *Client) Socket(ctx context.Context, call Call) (*websocket.Conn, Answer, error) {
	var conn *websocket.Conn
	call.Method = http.MethodGet
	a, err := c.repeat(ctx, call, func(ctx context.Context, call Call) (Answer, error) {
		var a Answer
		var err error
		conn, a, err = c.dial(ctx, call)
		return a, err
	})
	return conn, a, err
}

// dial opens a WebSocket without retries.
func (c *Client) dial(ctx context.Context, call Call) (*websocket.Conn, Answer, error) {
	u, err := c.target(call)
	if err != nil {
		return nil, Answer{}, err
	}
	u.Scheme = map[string]string{"https": "wss", "http": "ws"}[u.Scheme]
	d := &websocket.Dialer{Proxy: http.ProxyFromEnvironment}
	if c.HTTP != nil {
		if t, ok := c.HTTP.Transport.(*http.Transport); ok {
			d.Proxy, d.TLSClientConfig, d.NetDialContext = t.Proxy, t.TLSClientConfig, t.DialContext
		}
	}
	if d.TLSClientConfig != nil { // a transport with HTTP/2 offers it here, and a WebSocket needs HTTP/1.1
		d.TLSClientConfig = d.TLSClientConfig.Clone()
		d.TLSClientConfig.NextProtos = nil
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	conn, res, err := d.DialContext(ctx, u.String(), c.headers(call))
	switch {
	case err == nil:
		return conn, Answer{Status: res.StatusCode, Header: res.Header}, nil
	case res == nil:
		return nil, Answer{}, c.broken(call, connected.Load(), err)
	}
	defer res.Body.Close()                                            //nolint:errcheck // it was only read
	text, _ := io.ReadAll(io.LimitReader(res.Body, longestMessage*4)) // gorilla provides the beginning of the body
	return nil, Answer{Status: res.StatusCode, Header: res.Header}, c.refused(call, res, text)
}
