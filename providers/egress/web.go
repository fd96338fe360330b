package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/netguard"
)

// web serves the sandbox's plain HTTP: as the server of the names that it may reach, checking every request, and as a proxy for programs
// that use one. net/http parses each request and writes it again, so that no server can parse the same bytes differently.
type web struct {
	relay   *Relay
	ctx     context.Context //nolint:containedctx // of the relay's life: a request's own ends with its connection
	server  *http.Server
	forward *httputil.ReverseProxy
	idle    *http.Transport
	conns   chan net.Conn

	// For connections to hosts that secrets are bound to; nil: there are none.
	secure        *http.Server
	secureForward *httputil.ReverseProxy
	secureIdle    *http.Transport
	secureConns   chan net.Conn

	tunnels sync.WaitGroup

	mu     sync.Mutex
	active sync.WaitGroup // requests, also those that net/http has let go of
	over   bool
}

// webConn is a connection with HTTP requests.
type webConn struct {
	net.Conn

	to    target // whom the sandbox wanted to reach
	proxy bool   // it speaks to a proxy, and says itself whom it wants
	auth  string // what each of its requests has to show; empty: nothing
}

// connKey is the key of a connection in the context of its requests.
type connKey struct{}

func newWeb(ctx context.Context, r *Relay) *web {
	w := &web{relay: r, ctx: ctx, conns: make(chan net.Conn), secureConns: make(chan net.Conn)}
	quiet := log.New(io.Discard, "", 0)
	const headerPatience, expectPatience, keep = 15 * time.Second, time.Second, 30 * time.Second
	w.idle = &http.Transport{
		DialContext: w.dial, DisableCompression: true, MaxIdleConnsPerHost: 4, MaxIdleConns: 32, IdleConnTimeout: keep,
		ExpectContinueTimeout: expectPatience, MaxResponseHeaderBytes: int64(r.limits.Header),
	}
	w.forward = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: w.idle, FlushInterval: -1, ErrorLog: quiet, ErrorHandler: w.failed,
	}
	w.server = &http.Server{
		Handler: http.HandlerFunc(w.serve), ReadHeaderTimeout: headerPatience, IdleTimeout: r.limits.Idle,
		MaxHeaderBytes: r.limits.Header, ErrorLog: quiet,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	if r.opt.Credentials != nil {
		w.makeSecure(ctx, quiet)
	}
	return w
}

// run serves until close is called.
func (w *web) run() {
	var secure sync.WaitGroup
	if w.secure != nil {
		secure.Go(func() {
			_ = w.secure.Serve(handed{ctx: w.ctx, conns: w.secureConns})
			_ = w.secure.Close()
		})
	}
	_ = w.server.Serve(handed{ctx: w.ctx, conns: w.conns}) // it ends with the context
	_ = w.server.Close()
	secure.Wait()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.active.Wait()
	w.tunnels.Wait()
}

// begin counts a request; false if web is closing.
func (w *web) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.active.Add(1)
	}
	return !w.over
}

func (w *web) close() {
	_ = w.server.Close()
	w.idle.CloseIdleConnections()
	if w.secure != nil {
		_ = w.secure.Close()
		w.secureIdle.CloseIdleConnections()
	}
}

// give passes a connection to the HTTP server.
func (w *web) give(c net.Conn) {
	to := w.conns
	if _, secure := c.(*tls.Conn); secure {
		to = w.secureConns
	}
	select {
	case to <- c:
	case <-w.ctx.Done():
		_ = c.Close()
	}
}

// handed is a listener that returns the connections sent to a channel.
type handed struct {
	ctx   context.Context //nolint:containedctx // it ends with its web
	conns chan net.Conn
}

func (h handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (h handed) Close() error   { return nil }
func (h handed) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }

// serve handles one request.
func (w *web) serve(rw http.ResponseWriter, req *http.Request) {
	if !w.begin() {
		panic(http.ErrAbortHandler)
	}
	defer w.active.Done()
	c, _ := req.Context().Value(connKey{}).(webConn)
	t, err := hostOf(req)
	switch {
	case err != nil:
		w.refuse(rw, http.StatusBadRequest, c.to.refusal(RuleMalformed, "a request was not understood: "+err.Error()))
	case c.auth != "" && !slices.Equal(req.Header["Proxy-Authorization"], []string{c.auth}):
		w.refuse(rw, http.StatusProxyAuthRequired, t.refusal(RuleMalformed, "a request has not shown the pass that its connection began with"))
	case c.proxy && req.Method == http.MethodConnect:
		w.tunnel(rw, t)
	case req.Method == http.MethodConnect:
		w.refuse(rw, http.StatusMethodNotAllowed, c.to.refusal(RuleHost, "CONNECT is for proxies, and "+c.to.String()+" is none"))
	case c.proxy && (req.URL.Scheme != "http" || req.URL.Host == ""):
		w.refuse(rw, http.StatusBadRequest, t.refusal(RuleMalformed, "a proxy request must be CONNECT or have a whole URL with http://"))
	case !c.proxy && t != c.to:
		w.refuse(rw, http.StatusForbidden,
			t.refusal(RuleHost, "a request for "+t.String()+" was sent to "+c.to.String()+": they must be the same"))
	default:
		if refusal := w.relay.decide(t); refusal != nil {
			w.refuse(rw, http.StatusForbidden, refusal)
			return
		}
		w.forward.ServeHTTP(rw, req.WithContext(context.WithValue(req.Context(), targetKey{}, t)))
	}
}

// targetKey is the key of a request's target in its context.
type targetKey struct{}

// hostOf returns the target of a request.
func hostOf(req *http.Request) (target, error) { return hostOn(req, portHTTP) }

// hostOn returns the target of a request; usual is the port if the request names none.
func hostOn(req *http.Request, usual uint16) (target, error) {
	text, port := req.Host, usual
	if host, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return target{}, errors.New("the port is none")
		}
		text, port = host, uint16(n)
		if strings.Contains(host, ":") != strings.HasPrefix(req.Host, "[") {
			return target{}, errors.New("brackets are for addresses of version 6")
		}
	} else if req.Method == http.MethodConnect {
		return target{}, errors.New("CONNECT needs a host and a port")
	} else if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		if text = strings.TrimSuffix(inner, "]"); !strings.Contains(text, ":") {
			return target{}, errors.New("brackets are for addresses of version 6")
		}
	}
	h, err := netguard.ParseHost(text)
	return target{h, port}, err
}

// rewrite builds the request to send: the same, without the headers that concern a single connection.
func rewrite(p *httputil.ProxyRequest) {
	t, _ := p.In.Context().Value(targetKey{}).(target)
	p.Out.URL.Scheme, p.Out.URL.Host = "http", t.String()
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = t.host.String()
	if t.port != portHTTP {
		p.Out.Host = t.String()
	} else if strings.Contains(p.Out.Host, ":") {
		p.Out.Host = "[" + p.Out.Host + "]"
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
	p.Out.Header.Del("Proxy-Authorization")
}

// refused is a refusal as an error of the transport.
type refused struct{ *Refusal }

func (r refused) Error() string { return r.Text }

// dial connects to an address for the transport.
func (w *web) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return nil, err
	}
	h, err := netguard.ParseHost(host)
	if err != nil {
		return nil, err
	}
	conn, refusal := w.relay.dial(ctx, target{h, uint16(n)})
	if refusal != nil {
		return nil, refused{refusal}
	}
	return &counted{Conn: conn, relay: w.relay}, nil
}

// counted is a connection whose bytes count towards the limit.
type counted struct {
	net.Conn
	relay *Relay
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, errors.Join(err, c.relay.count(n))
}

func (c *counted) Write(p []byte) (int, error) {
	if err := c.relay.count(len(p)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// failed answers a request that could not be sent.
func (w *web) failed(rw http.ResponseWriter, req *http.Request, err error) {
	t, _ := req.Context().Value(targetKey{}).(target)
	refusal := t.refusal(RuleUnreachable, "the request to "+t.String()+" failed")
	if r, ok := errors.AsType[refused](err); ok {
		refusal = r.Refusal
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		refusal = t.refusal(RuleTLS, "the certificate of "+t.String()+" is not valid: nothing was sent there")
	}
	if req.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	status := http.StatusForbidden
	if refusal.Rule == RuleUnreachable {
		status = http.StatusBadGateway
	}
	w.refuse(rw, status, refusal)
}

// refuse answers a request with the reason why it is refused, and ends its connection.
func (w *web) refuse(rw http.ResponseWriter, status int, f *Refusal) {
	w.relay.note(*f)
	maps.Copy(rw.Header(), http.Header{
		"Connection": {"close"}, "Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"},
	})
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, "sandjet: network: "+f.Text+"\n") //nolint:gosec // plain text, and said to be
}

// tunnel serves a CONNECT request: it connects the client to a host.
func (w *web) tunnel(rw http.ResponseWriter, t target) {
	if refusal := w.relay.decide(t); refusal != nil {
		w.refuse(rw, http.StatusForbidden, refusal)
		return
	}
	looked := w.relay.opt.Rules.checksNames() && t.host.Name != ""
	bound := t.port == portHTTPS && w.relay.opt.Credentials.binds(t.host.Name)
	var out net.Conn
	if !bound && (!looked || t.port != portHTTP) {
		var refusal *Refusal
		if out, refusal = w.relay.dial(w.ctx, t); refusal != nil {
			status := http.StatusForbidden
			if refusal.Rule == RuleUnreachable {
				status = http.StatusBadGateway
			}
			w.refuse(rw, status, refusal)
			return
		}
		out = w.relay.outgoing(out)
	}
	c, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		if out != nil {
			_ = out.Close()
		}
		return
	}
	_ = c.SetDeadline(time.Time{})
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = c.Close()
		if out != nil {
			_ = out.Close()
		}
		return
	}
	early, _ := buffered.Peek(buffered.Reader.Buffered())
	if wc, ok := c.(webConn); ok {
		c = wc.Conn
	}
	if len(early) > 0 {
		c = &preceded{Conn: c, early: early}
	}
	w.tunnels.Go(func() {
		switch {
		case looked && t.port == portHTTP:
			w.give(webConn{Conn: c, to: t})
		case looked && t.port == portHTTPS:
			first, refusal := checkHello(c, t)
			switch {
			case refusal == nil && bound:
				w.relay.openTLS(w.ctx, c, t, first, w)
			case refusal == nil:
				w.relay.join(c, out, first)
			default:
				if out != nil {
					_ = out.Close()
				}
				w.relay.refuse(refusal, c)
			}
		default:
			w.relay.join(c, out, nil)
		}
	})
}

// preceded is a connection of which some bytes were read already; they are read again first.
type preceded struct {
	net.Conn
	early []byte
}

func (p *preceded) Read(b []byte) (int, error) {
	if len(p.early) > 0 {
		n := copy(b, p.early)
		p.early = p.early[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
