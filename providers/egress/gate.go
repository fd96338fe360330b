package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// PassUser is the user of proxy requests whose password is a [Pass].
	PassUser = "sandbox"
	// passWithin is how long a client may take to show its pass.
	passWithin = 15 * time.Second
	// mostStrangers are the connections from one address that have not shown a pass yet.
	mostStrangers = 64
	// mostGuests are the sandboxes that use a gate at a time.
	mostGuests = 4096
	// guestFor is how long what is known of a sandbox stays without any connection.
	guestFor = time.Minute
	// mostGuestLogged is how many refusals of one sandbox are logged.
	mostGuestLogged = 20
)

// Gate is an HTTP proxy for many sandboxes, each with its own [Relay]. The password in Proxy-Authorization is a [Pass], which says which
// sandbox a connection belongs to and what it may reach. A gate stores nothing: any of several gates can serve any connection.
type Gate struct {
	// Keys are those by which passes are signed.
	Keys []ed25519.PublicKey
	// Private are the networks that sandboxes may reach though they are not public, where their own network lists them too.
	Private []netip.Prefix
	// Options are those of each sandbox's relay, without Rules and Refused.
	Options Options
	// Log gets refusals. It is needed.
	Log *slog.Logger

	mu        sync.Mutex
	strangers map[netip.Addr]int
	guests    map[string]*guest
	work      sync.WaitGroup
}

// guest is a sandbox with connections to the gate.
type guest struct {
	conns  chan net.Conn
	ctx    context.Context //nolint:containedctx // of its relay's life
	cancel context.CancelFunc
	users  int // connections, of the gate's mutex
}

// Run serves a listener until ctx ends. It then ends all connections and returns when they are closed.
func (g *Gate) Run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer g.work.Wait()
	defer cancel()
	g.mu.Lock()
	g.strangers, g.guests = map[netip.Addr]int{}, map[string]*guest{}
	g.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return schemas.Wrap(schemas.Unavailable, "egress", "the listener was closed", err)
		}
		if err != nil { // no descriptors for instance: others will end
			const pause = 100 * time.Millisecond
			wait.Sleep(ctx, pause)
			continue
		}
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil || !g.enter(from.Addr().Unmap()) {
			reset(c)
			continue
		}
		g.work.Go(func() { g.meet(ctx, c, from.Addr().Unmap()) })
	}
}

// enter counts a connection that has not shown a pass yet; false if there are too many from that address.
func (g *Gate) enter(from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.strangers[from] >= mostStrangers {
		return false
	}
	g.strangers[from]++
	return true
}

func (g *Gate) known(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.strangers[from]--; g.strangers[from] <= 0 {
		delete(g.strangers, from)
	}
}

// meet reads the pass of a connection and passes the connection to the relay of its sandbox.
func (g *Gate) meet(ctx context.Context, c net.Conn, from netip.Addr) {
	defer g.known(from)
	stop := context.AfterFunc(ctx, func() { reset(c) })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(passWithin))
	auth, read, err := readAuthorization(c, g.Options.Limits.orDefault().Header)
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	pass, err := g.check(auth, from)
	var guest *guest
	if err == nil {
		guest, err = g.guest(ctx, pass)
	}
	if err != nil {
		g.Log.Info("connection without a valid pass refused", "from", from, "error", err)
		turnAway(c, err)
		return
	}
	v := &visit{Conn: &preceded{Conn: c, early: read}, tcp: c, auth: auth, leave: func() { g.leave(guest) }}
	v.end = time.AfterFunc(time.Until(time.Unix(pass.Until, 0)), func() { reset(c) })
	select {
	case guest.conns <- v:
	case <-guest.ctx.Done():
		_ = v.Close()
	case <-time.After(passWithin): // more than it may begin in a second
		_ = v.Close()
	}
}

// readAuthorization reads the header of the first request, with the parser that the relay's server uses. It returns the value of
// Proxy-Authorization (empty unless there is exactly one), and all bytes read.
func readAuthorization(c io.Reader, limit int) (auth string, read []byte, err error) {
	var all bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(io.LimitReader(c, int64(limit)), &all)))
	if err != nil {
		return "", nil, err
	}
	if values := req.Header["Proxy-Authorization"]; len(values) == 1 {
		auth = values[0]
	}
	return auth, all.Bytes(), nil
}

// check validates the pass of a request from an address. Code: denied.
func (g *Gate) check(auth string, from netip.Addr) (Pass, error) {
	scheme, encoded, _ := strings.Cut(auth, " ")
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	user, text, ok := strings.Cut(string(plain), ":")
	if err != nil || !ok || user != PassUser || !strings.EqualFold(scheme, "Basic") {
		return Pass{}, schemas.OpErrorf(schemas.Denied, "pass",
			"no pass was shown: use the proxy that HTTPS_PROXY names, with its user and password")
	}
	p, err := ReadPass(text, g.Keys, time.Now())
	if err != nil {
		return Pass{}, err
	}
	if !slices.Contains(p.From, from) {
		return Pass{}, schemas.OpErrorf(schemas.Denied, "pass",
			"the pass is for a sandbox at %v, and the connection comes from %s: is the cluster's traffic to services masqueraded?", p.From, from)
	}
	return p, nil
}

// guest returns the guest of a sandbox and network, making one with a relay if there is none. Codes: exhausted, and those of [Compile].
func (g *Gate) guest(ctx context.Context, p Pass) (*guest, error) {
	network, err := json.Marshal(p.Network)
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, "pass", "the network cannot be written", err)
	}
	rules, err := Compile(p.Network, g.Private)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(network)
	key := p.Sandbox + " " + string(sum[:])
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.guests[key]
	switch {
	case v != nil && v.ctx.Err() == nil:
		v.users++
		return v, nil
	case len(g.guests) >= mostGuests:
		return nil, schemas.OpErrorf(schemas.Exhausted, "egress", "%d sandboxes use this proxy, as many as may: try later", mostGuests)
	}
	v = &guest{conns: make(chan net.Conn), users: 1}
	v.ctx, v.cancel = context.WithCancel(ctx)
	o, logged := g.Options, 0
	o.Rules = rules
	var mu sync.Mutex
	o.Refused = func(f Refusal) {
		mu.Lock()
		logged++
		first := logged <= mostGuestLogged
		mu.Unlock()
		if first {
			g.Log.Info("connection of a sandbox refused", "account", p.Account, "sandbox", p.Sandbox,
				"name", f.Name, "address", f.Addr, "port", f.Port, "rule", f.Rule)
		}
	}
	relay := New(o)
	g.guests[key] = v
	g.work.Go(func() {
		relay.Serve(v.ctx, Inside{Proxy: []net.Listener{handed{ctx: v.ctx, conns: v.conns}}})
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.guests[key] == v {
			delete(g.guests, key)
		}
	})
	return v, nil
}

// leave counts a connection of a sandbox as ended. Some time after the last one its relay ends.
func (g *Gate) leave(v *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.users--; v.users > 0 || v.ctx.Err() != nil {
		return
	}
	idle := time.AfterFunc(guestFor, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if v.users == 0 {
			v.cancel()
		}
	})
	context.AfterFunc(v.ctx, func() { idle.Stop() })
}

// visit is a connection with a valid pass.
type visit struct {
	net.Conn

	tcp   net.Conn
	auth  string // what each of its requests has to show again
	leave func()
	end   *time.Timer // of its pass
	once  sync.Once
}

// Close closes the connection.
func (v *visit) Close() error {
	v.once.Do(func() {
		v.end.Stop()
		v.leave()
	})
	return v.Conn.Close()
}

// CloseWrite closes the direction to the sandbox.
func (v *visit) CloseWrite() error {
	half, ok := v.tcp.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// SetLinger is called by [reset].
func (v *visit) SetLinger(sec int) error {
	tcp, ok := v.tcp.(interface{ SetLinger(sec int) error })
	if !ok {
		return errors.ErrUnsupported
	}
	return tcp.SetLinger(sec)
}

// authOf returns the authorization that each request on a connection must contain; empty if none.
func authOf(c net.Conn) string {
	if e, ok := c.(*entered); ok {
		c = e.Conn
	}
	if v, ok := c.(*visit); ok {
		return v.auth
	}
	return ""
}

// turnAway answers the first request of a connection without a valid pass with an error.
func turnAway(c net.Conn, err error) {
	const patience = 5 * time.Second
	text := "sandjet: network: " + schemas.Public(err).Message + "\n"
	answer := &http.Response{
		StatusCode: http.StatusProxyAuthRequired, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: int64(len(text)),
		Header: http.Header{"Proxy-Authenticate": {`Basic realm="sandjet"`}, "Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(text)),
	}
	if schemas.CodeOf(err) != schemas.Denied {
		answer.StatusCode, answer.Header = http.StatusForbidden, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	}
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	_ = answer.Write(c)
	_ = c.Close()
}
