package egress

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"time"
)

// openTLS terminates TLS on a connection, as the host that the sandbox asked for with a certificate of the sandbox's own authority, so
// that web can read its requests. The ClientHello was read and checked already. Secrets are bound to that host.
func (r *Relay) openTLS(ctx context.Context, c net.Conn, t target, hello []byte, web *web) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return r.opt.Credentials.authority.leaf(t.host.Name)
		},
	}
	secure := tls.Server(webConn{Conn: &preceded{Conn: c, early: hello}, to: t}, config)
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		r.refuse(t.refusal(RuleTLS, "TLS with "+t.String()+
			" failed: a credential is bound to this host, so the program has to trust the certificates of the file in SSL_CERT_FILE"), c)
		return
	}
	web.give(secure)
}

// unlocker adds secrets to requests to the hosts that they are bound to, and masks secrets in the answers.
type unlocker struct {
	creds *Credentials
	next  http.RoundTripper
}

// RoundTrip sends a request with its secrets.
func (u unlocker) RoundTrip(req *http.Request) (*http.Response, error) {
	t, _ := req.Context().Value(targetKey{}).(target)
	k, missing := u.creds.keys(req.Context(), t.host.Name)
	if missing != "" {
		return nil, refused{t.refusal(RuleUnreachable, "the value of "+missing+", which is bound to "+t.String()+
			", cannot be looked up: nothing was sent there")}
	}
	header := req.Header.Clone()
	k.unlock(header)
	// A compressed answer could not be looked at.
	header.Del("Accept-Encoding")
	early := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		maskHeader(h, k.secrets)
		return nil
	}}
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), early))
	out.Header = header
	resp, err := u.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	maskHeader(resp.Header, k.secrets)
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.Body != nil && resp.Body != http.NoBody {
		resp.Body = &masked{body: resp.Body, secrets: k.secrets, trailer: resp.Trailer}
	}
	return resp, nil
}

// makeSecure makes the HTTP server and client for hosts that secrets are bound to.
func (w *web) makeSecure(ctx context.Context, quiet *log.Logger) {
	const headerPatience, expectPatience, keep, streams = 15 * time.Second, time.Second, 30 * time.Second, 64
	w.secureIdle = &http.Transport{
		DialContext: w.dial, DisableCompression: true, MaxIdleConnsPerHost: 4, MaxIdleConns: 32, IdleConnTimeout: keep,
		ExpectContinueTimeout: expectPatience, MaxResponseHeaderBytes: int64(w.relay.limits.Header), ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: headerPatience, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: w.relay.opt.Roots},
	}
	w.secureForward = &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			rewrite(p)
			t, _ := p.In.Context().Value(targetKey{}).(target)
			p.Out.URL.Scheme, p.Out.Host = "https", t.host.String()
		},
		Transport: unlocker{w.relay.opt.Credentials, w.secureIdle}, FlushInterval: -1, ErrorLog: quiet, ErrorHandler: w.failed,
	}
	w.secure = &http.Server{
		Handler: http.HandlerFunc(w.serveSecure), ReadHeaderTimeout: headerPatience, IdleTimeout: w.relay.limits.Idle,
		MaxHeaderBytes: w.relay.limits.Header, ErrorLog: quiet, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

// serveSecure handles one request on a connection to a host that secrets are bound to.
func (w *web) serveSecure(rw http.ResponseWriter, req *http.Request) {
	if !w.begin() {
		panic(http.ErrAbortHandler)
	}
	defer w.active.Done()
	c, _ := req.Context().Value(connKey{}).(webConn)
	t, err := hostOn(req, portHTTPS)
	switch {
	case err != nil:
		w.refuse(rw, http.StatusBadRequest, c.to.refusal(RuleMalformed, "a request was not understood: "+err.Error()))
	case req.Method == http.MethodConnect, req.Method == http.MethodTrace:
		w.refuse(rw, http.StatusMethodNotAllowed, c.to.refusal(RuleHost, req.Method+" is not for hosts that a credential is bound to"))
	case t != c.to:
		w.refuse(rw, http.StatusMisdirectedRequest,
			t.refusal(RuleHost, "a request for "+t.String()+" was sent to "+c.to.String()+": they must be the same"))
	default:
		// A server may answer before it has read all of a request; HTTP/2 can do that anyway.
		_ = http.NewResponseController(rw).EnableFullDuplex()
		w.secureForward.ServeHTTP(rw, req.WithContext(context.WithValue(req.Context(), targetKey{}, t)))
	}
}
