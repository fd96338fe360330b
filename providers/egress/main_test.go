package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%s to %s", text, r.Host) })
}

// world is what is outside of the relays of a test.
type world struct {
	*egresstest.World

	t *testing.T
}

func newWorld(t *testing.T) *world { return &world{World: egresstest.New(t), t: t} }

// sandbox is a client of a relay: all that it sends arrives there.
type sandbox struct {
	t       *testing.T
	relay   *Relay
	inside  string // where the relay listens
	proxy   string
	dns     net.Addr
	wanted  chan claim
	turn    sync.Mutex
	refused atomic.Int64
}

// redirected is a listener whose connections say that they were going elsewhere.
type redirected struct {
	net.Listener
	wanted chan claim
	over   chan struct{}
	close  func() error
}

// claim says where the connection from a port was going.
type claim struct {
	from netip.AddrPort
	to   string
}

func redirect(l net.Listener, wanted chan claim) *redirected {
	r := &redirected{Listener: l, wanted: wanted, over: make(chan struct{})}
	r.close = sync.OnceValue(func() error { close(r.over); return l.Close() })
	return r
}

type wantedConn struct {
	*net.TCPConn
	to net.Addr
}

func (c wantedConn) LocalAddr() net.Addr { return c.to }

// Accept returns the connections that were claimed, in their order. Others are strangers' and are closed: a client of another process
// that calls again may find its server's port here.
func (r *redirected) Accept() (net.Conn, error) {
	var next claim
	select {
	case next = <-r.wanted:
	case <-r.over:
		return nil, net.ErrClosed
	}
	for {
		c, err := r.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if netip.MustParseAddrPort(c.RemoteAddr().String()) == next.from {
			return wantedConn{c.(*net.TCPConn), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(next.to))}, nil
		}
		_ = c.Close()
	}
}

func (r *redirected) Close() error { return r.close() }

// enter starts a relay over the world.
func (w *world) enter(n schemas.Network, limits Limits) *sandbox {
	return w.enterWith(rules(w.t, n), limits)
}

func (w *world) enterWith(r *Rules, limits Limits) *sandbox {
	return w.enterWithCredentials(r, nil, limits)
}

func (w *world) enterWithCredentials(r *Rules, v *Credentials, limits Limits) *sandbox {
	t := w.t
	s := &sandbox{t: t, wanted: make(chan claim, 1<<14)}
	s.relay = New(Options{
		Rules: r, Limits: limits, Resolver: w, Dial: w.Dial, Credentials: v, Roots: w.Certs, Refused: func(Refusal) { s.refused.Add(1) },
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.inside, s.proxy, s.dns = l.Addr().String(), p.Addr().String(), d.LocalAddr()
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		s.relay.Serve(ctx, Inside{TCP: []net.Listener{redirect(l, s.wanted)}, Proxy: []net.Listener{p}, DNS: []net.PacketConn{d}})
	})
	t.Cleanup(func() { cancel(); served.Wait() })
	return s
}

// connect connects to an address, as the sandbox sees it.
func (s *sandbox) connect(to string) net.Conn {
	s.turn.Lock()
	defer s.turn.Unlock()
	c, err := net.Dial("tcp", s.inside)
	if err != nil {
		s.t.Fatal(err)
	}
	s.wanted <- claim{netip.MustParseAddrPort(c.LocalAddr().String()), to}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// ask asks for a name and returns the code and the addresses.
func (s *sandbox) ask(name string, kind dnsmessage.Type) (dnsmessage.RCode, []netip.Addr) {
	s.t.Helper()
	c, err := net.Dial("udp", s.dns.String())
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(question(s.t, name, kind)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	if err != nil {
		s.t.Fatal(err)
	}
	return parse(s.t, buf[:n])
}

// reach looks a name up and connects to what it finds.
func (s *sandbox) reach(name string, port int) net.Conn {
	s.t.Helper()
	code, addrs := s.ask(name+".", dnsmessage.TypeA)
	if code != 0 || len(addrs) != 1 {
		s.t.Fatalf("%s: %v, %v, want one address", name, code, addrs)
	}
	return s.connect(fmt.Sprintf("%s:%d", addrs[0], port))
}

// refusal waits for the refusal of a connection: nothing comes but its end.
func (s *sandbox) refusal(c net.Conn, rule string) {
	s.t.Helper()
	got, err := io.ReadAll(c)
	if len(got) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		s.t.Errorf("%q, %v: want the connection to be reset", got, err)
	}
	s.saw(rule)
}

func (s *sandbox) saw(rule string) {
	s.t.Helper()
	list, _ := s.relay.Since(0)
	for _, r := range list {
		if r.Rule == rule && r.Text != "" {
			return
		}
	}
	s.t.Errorf("refused were %+v, want one by %s", list, rule)
}

func restricted(domains ...string) schemas.Network {
	return schemas.Network{Mode: schemas.Restricted, AllowDomains: domains}
}
