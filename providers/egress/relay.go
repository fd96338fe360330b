package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/internal/wait"
)

// Limits bound what one sandbox may ask of the process that runs its relay. Zero values are the defaults.
type Limits struct {
	// Connections is how many are carried at a time. More are refused. Default: 256.
	Connections int
	// PerSecond is how many connections, and how many questions for names, are looked at per second, after a burst of as many;
	// others wait. Default: 500.
	PerSecond int
	// Names is how many names have an address at a time. Default: 4096.
	Names int
	// Idle is how long a connection may be silent in both directions. Default: 10 min.
	Idle time.Duration
	// Header is the most bytes of the header of an HTTP request. Default: 64 KiB.
	Header int
	// Bytes is the most bytes that all connections carry together, both ways. Default: no limit.
	Bytes int64
}

func (l Limits) orDefault() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.Connections, 256)
	set(&l.PerSecond, 500)
	set(&l.Names, 4096)
	set(&l.Header, 64<<10)
	if l.Idle <= 0 {
		l.Idle = 10 * time.Minute
	}
	return l
}

// Options configures a relay. Rules is required.
type Options struct {
	Rules  *Rules
	Limits Limits
	// Resolver looks up the names that are connected to. Nil: the resolver of this host.
	Resolver Resolver
	// Dial connects to an address that was checked. Nil: it is dialled from this host.
	Dial func(context.Context, netip.AddrPort) (net.Conn, error)
	// Credentials has the secrets that are bound to hosts. TLS with these hosts on port 443 ends at the relay, which puts the secrets into the
	// headers of requests; the relay has a TLS connection of its own to the host. Nil: there are none.
	Credentials *Credentials
	// Roots are who may sign the certificates of these hosts. Nil: those of this host.
	Roots *x509.CertPool
	// Refused is called for each refusal that differs from those before. It must not block. Nil: none is reported.
	Refused func(Refusal)
}

// Inside holds the sockets that receive a sandbox's traffic. [Relay.Serve] closes them.
type Inside struct {
	// TCP are listeners whose connections have as their local address the one that the sandbox wanted to reach. Port 53 is for names.
	TCP []net.Listener
	// DNS are UDP sockets for questions, bound to all addresses.
	DNS []net.PacketConn
	// Proxy are listeners for HTTP proxy requests: CONNECT, and plain http URLs.
	Proxy []net.Listener
}

// Relay is the way out of one sandbox.
type Relay struct {
	opt      Options
	limits   Limits
	names    *names
	refusals refusals
	pace     *rate.Limiter
	asked    *rate.Limiter
	bytes    atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool
}

// New returns a relay. It does nothing before [Relay.Serve].
func New(o Options) *Relay {
	r := &Relay{opt: o, limits: o.Limits.orDefault(), conns: map[net.Conn]struct{}{}}
	if r.opt.Resolver == nil {
		r.opt.Resolver = net.DefaultResolver
	}
	if r.opt.Dial == nil {
		r.opt.Dial = direct(o.Rules)
	}
	r.names = newNames(r.limits.Names)
	r.pace = rate.NewLimiter(rate.Limit(r.limits.PerSecond), r.limits.PerSecond)
	r.asked = rate.NewLimiter(rate.Limit(r.limits.PerSecond), r.limits.PerSecond)
	return r
}

// Mark returns the current position in the list of refusals, for [Relay.Since].
func (r *Relay) Mark() uint64 { return r.refusals.mark() }

// Since returns the distinct refusals after a mark, at most 64, oldest first. More reports that others were dropped.
func (r *Relay) Since(mark uint64) (list []Refusal, more bool) { return r.refusals.since(mark) }

// Serve serves the sockets until ctx ends or they are closed. It then closes all sockets and connections, and returns when all are closed.
// It is called once.
func (r *Relay) Serve(ctx context.Context, in Inside) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sockets, work sync.WaitGroup
	web := newWeb(ctx, r)
	work.Go(web.run)
	for _, l := range in.TCP {
		sockets.Go(func() { r.accept(ctx, l, &work, func(c net.Conn) { r.transparent(ctx, c, web) }) })
	}
	for _, l := range in.Proxy {
		sockets.Go(func() {
			r.accept(ctx, l, &work, func(c net.Conn) { web.give(webConn{Conn: c, proxy: true, auth: authOf(c)}) })
		})
	}
	for _, s := range in.DNS {
		sockets.Go(func() { r.answerAll(ctx, s) })
	}
	stop := context.AfterFunc(ctx, func() { closeInside(in) })
	sockets.Wait()
	stop()
	cancel()
	closeInside(in)
	r.closeAll()
	web.close()
	work.Wait()
}

func closeInside(in Inside) {
	for _, l := range in.TCP {
		_ = l.Close()
	}
	for _, l := range in.Proxy {
		_ = l.Close()
	}
	for _, s := range in.DNS {
		_ = s.Close()
	}
}

// accept passes connections to f, each in a goroutine of work. F closes the connection.
func (r *Relay) accept(ctx context.Context, l net.Listener, work *sync.WaitGroup, f func(net.Conn)) {
	for {
		if r.pace.Wait(ctx) != nil {
			return
		}
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors for instance: others will end
			const pause = 100 * time.Millisecond
			if !wait.Sleep(ctx, pause) {
				return
			}
			continue
		}
		t, _ := destination(c)
		if !r.enter(c) {
			r.refuse(t.refusal(RuleLimit, "too many connections at a time"), c)
			continue
		}
		work.Go(func() { f(&entered{Conn: c, relay: r}) })
	}
}

// enter counts a connection; false if there are too many, or the relay is ending.
func (r *Relay) enter(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || len(r.conns) >= r.limits.Connections {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

// entered is a connection that is counted until it is closed.
type entered struct {
	net.Conn
	relay *Relay
}

// Close closes the connection.
func (e *entered) Close() error {
	e.relay.mu.Lock()
	delete(e.relay.conns, e.Conn)
	e.relay.mu.Unlock()
	return e.Conn.Close()
}

// closeAll ends all connections.
func (r *Relay) closeAll() {
	r.mu.Lock()
	r.over = true
	all := make([]net.Conn, 0, len(r.conns))
	for c := range r.conns {
		all = append(all, c)
	}
	r.mu.Unlock()
	for _, c := range all {
		reset(c)
	}
}

// count adds to the bytes transferred. It returns an error if the limit is exceeded.
func (r *Relay) count(n int) error {
	if r.limits.Bytes > 0 && r.bytes.Add(int64(n)) > r.limits.Bytes {
		r.note(Refusal{Rule: RuleLimit, Text: "this sandbox has carried as many bytes as it may"})
		return io.ErrShortWrite
	}
	return nil
}

// note stores a refusal, and reports it if it is a new one.
func (r *Relay) note(f Refusal) {
	if r.refusals.add(f) && r.opt.Refused != nil {
		r.opt.Refused(f)
	}
}

// refuse closes a connection at once: the client gets a reset instead of silence.
func (r *Relay) refuse(f *Refusal, c net.Conn) {
	r.note(*f)
	reset(c)
}

// reset closes a connection with a TCP reset, so that the other side notices the failure at once.
func reset(c net.Conn) {
	under := c
	if e, ok := c.(*entered); ok {
		under = e.Conn
	}
	if tcp, ok := under.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// destination returns the destination of a redirected connection, which is its local address.
func destination(c net.Conn) (target, error) {
	a, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return target{}, err
	}
	return target{netguard.Host{Addr: a.Addr().Unmap()}, a.Port()}, nil
}

// transparent serves a redirected connection, of a program that does not know of the relay.
func (r *Relay) transparent(ctx context.Context, c net.Conn, web *web) {
	t, err := destination(c)
	if err != nil {
		reset(c)
		return
	}
	if t.port == portDNS {
		defer c.Close() //nolint:errcheck // it was answered or not
		r.answerStream(ctx, c)
		return
	}
	if pool.Contains(t.host.Addr) {
		name, ok := r.names.name(t.host.Addr)
		if !ok {
			r.refuse(t.refusal(RuleNotAllowed, "address "+t.String()+" belongs to no name that was looked up lately"), c)
			return
		}
		t.host = netguard.Host{Name: name}
	}
	if refusal := r.decide(t); refusal != nil {
		r.refuse(refusal, c)
		return
	}
	r.carry(ctx, c, t, web)
}

const (
	portHTTP  = 80
	portHTTPS = 443
	portDNS   = 53
)

// carry connects c to an allowed target, and checks that what the client sends is for the target's host name if the rules are for names.
func (r *Relay) carry(ctx context.Context, c net.Conn, t target, web *web) {
	var first []byte
	if r.opt.Rules.checksNames() && t.host.Name != "" {
		switch t.port {
		case portHTTP:
			web.give(webConn{Conn: c, to: t})
			return
		case portHTTPS:
			var refusal *Refusal
			if first, refusal = checkHello(c, t); refusal != nil {
				r.refuse(refusal, c)
				return
			}
			if r.opt.Credentials.binds(t.host.Name) {
				r.openTLS(ctx, c, t, first, web)
				return
			}
		}
	}
	out, refusal := r.dial(ctx, t)
	if refusal != nil {
		r.refuse(refusal, c)
		return
	}
	r.join(c, r.outgoing(out), first)
}

// outgoing counts a connection to the outside until it is closed. It must be called before the sandbox learns of the connection, so that
// the limit applies to its next connection.
func (r *Relay) outgoing(c net.Conn) net.Conn {
	r.mu.Lock()
	over := r.over
	if !over {
		r.conns[c] = struct{}{}
	}
	r.mu.Unlock()
	if over {
		reset(c)
	}
	return &entered{Conn: c, relay: r}
}

// join copies bytes between a sandbox's connection and one of [Relay.outgoing], beginning with first, and closes both.
func (r *Relay) join(c, out net.Conn, first []byte) {
	defer c.Close()   //nolint:errcheck // it has ended
	defer out.Close() //nolint:errcheck // it has ended
	if len(first) > 0 {
		if err := r.count(len(first)); err != nil {
			return
		}
		if _, err := out.Write(first); err != nil {
			return
		}
	}
	if e, ok := c.(*entered); ok {
		c = e.Conn // read without a buffer while it is silent; the deferred close is the counted one
	}
	if e, ok := out.(*entered); ok {
		out = e.Conn
	}
	r.pipe(c, out)
}
