package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
)

// sockets opens WebSockets and looks after them.
type sockets struct {
	server  *wsconn.Server
	ring    wsconn.Ring[*session]
	streams wsconn.Ring[*eventConn]
	buffers wsconn.Buffers // of event streams
}

func newSockets(o Options) *sockets {
	return &sockets{server: wsconn.NewServer(wsconn.Options{
		Subprotocols: []string{Subprotocol}, MaxMessage: MaxFrame, Compression: o.ReplayCompression, Stall: o.Stall,
		CheckOrigin: func(r *http.Request) bool { return allowedOrigin(r, o.Origins) },
		Refuse: func(w http.ResponseWriter, _ *http.Request, code int, reason error) {
			var err error = &schemas.Error{Code: schemas.Invalid, Message: reason.Error()}
			if code == http.StatusForbidden {
				err = schemas.Errorf(schemas.Denied, "", "origin not allowed: the operator can allow it with --origins")
			}
			writeProblem(w, withStatus(code, err))
		},
		Translate: func(why wsconn.CloseError) wsconn.CloseError {
			if why.Code == wsconn.CloseTooLarge {
				why.Reason = "the message is larger than 65536 bytes: use POST /v1/calls"
			}
			why.Code = wsconn.CloseCode(CloseProtocol)
			return why
		},
	})}
}

// allowedOrigin lets in clients that are no browsers, pages of the gateway's own host and the
// allowed origins. Without it, any page could use a browser that keeps a key.
func allowedOrigin(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// getSocket upgrades to a WebSocket. The handler then returns, which gives net/http's buffers back;
// the session lives on by itself.
func (g *Gateway) getSocket(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	shake, err := g.takeHandshake()
	if err != nil {
		later(w.Header())
		return err
	}
	defer shake.Release()
	h, err := g.socketPrincipal(r)
	if err != nil {
		return err
	}
	if g.draining.Err() != nil {
		later(w.Header()) // not all of its clients at once
		return schemas.Errorf(schemas.Unavailable, "", "this gateway is stopping: reconnect")
	}
	place, err := g.takeSocket(h.account)
	if err != nil {
		later(w.Header())
		return err
	}
	conn, err := g.upgrades.server.Upgrade(w, r)
	if err != nil {
		place.Release()
		return nil // it was answered
	}
	g.live() // the ring turns
	s := newSession(g, conn, h.account)
	s.place = place
	s.admit(h)
	s.begin()
	g.sockets.Go(s.run)
	return nil
}

// socketPrincipal finds who opens a socket. Nobody yet, if the client will say so by its first frame.
func (g *Gateway) socketPrincipal(r *http.Request) (principal, error) {
	credential := socketKey(r.Header)
	if credential == "" && wsconn.Offers(r, authProtocol) {
		return principal{}, nil
	}
	return g.principal(r.Context(), credential)
}

// live is what shows conversations. With the first that asks for it the parts start that run until
// the gateway drains.
func (g *Gateway) live() *replay.Hub {
	g.lively.Do(func() {
		g.hub = replay.New(replay.NewBusLog(g.Bus), replay.Options{Log: g.Log, Budget: g.ReplayBytes})
		g.sockets.Go(func() {
			if err := g.hub.Run(g.draining); err != nil {
				g.Log.Error("conversations are not followed any more", "error", err)
			}
		})
		g.sockets.Go(func() {
			for _, s := range g.upgrades.ring.Run(g.draining, wsconn.Round) {
				g.sockets.Go(func() { s.close(CloseDrain, "this gateway stops") })
			}
		})
		g.sockets.Go(func() {
			for _, c := range g.upgrades.streams.Run(g.draining, g.Heartbeat) {
				c.stop()
			}
		})
	})
	return g.hub
}

// follow adds a reader of a conversation to what [Gateway.live] shows; a compact one is told finished things whole.
func (g *Gateway) follow(
	a schemas.AccountID, conv schemas.ConversationID, after schemas.Cursor, compact bool, wake func(),
) *replay.Reader {
	if compact {
		return g.live().AttachCompact(a, conv, after, wake)
	}
	return g.live().Attach(a, conv, after, wake)
}

// socketKey reads the key from the header or, for browsers, from the offered subprotocols.
func socketKey(h http.Header) string {
	if key := bearer(h); key != "" {
		return key
	}
	for _, line := range h.Values("Sec-Websocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(p), keyProtocol); ok {
				return key
			}
		}
	}
	return ""
}
