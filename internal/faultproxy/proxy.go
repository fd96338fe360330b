// Package faultproxy simulates an unreliable network: a TCP proxy for tests that cuts, resets, stalls and delays connections and splits
// their data. The faults of connection number n depend on a seed and n only, so that a failing run can be repeated.
package faultproxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
)

const heldBuffer = 16 << 10 // bytes

// Span is a range of durations from which one is drawn. The zero Span disables its fault.
type Span struct{ Min, Max time.Duration }

func (s Span) draw(r *rand.Rand) time.Duration {
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)))
}

// Faults are the faults of connections that are made from now on.
type Faults struct {
	// Cut ends a connection after this time, even in the middle of data.
	Cut Span
	// Reset is the share, 0 to 1, of cuts that reset the connection instead of closing it.
	Reset float64
	// Stall stops all data once for this time, at a random moment of the first second.
	Stall Span
	// Delay delays each piece of data.
	Delay Span
	// Slice is the maximum number of bytes of one piece; 0: they are not split.
	Slice int
	// Most is about how many bytes reach the client. After that the proxy behaves like a client that does not read: the connection stays
	// open, and nothing more is passed to it. 0: no limit.
	Most int
}

// Proxy forwards connections to a target. It is safe for concurrent use.
type Proxy struct {
	targets  atomic.Pointer[[]string]
	turn     atomic.Uint64
	seed     uint64
	listener net.Listener
	faults   atomic.Pointer[Faults]
	opened   atomic.Int64
	cuts     atomic.Int64

	mu   sync.Mutex
	open map[*link]struct{}
}

// Listen opens a proxy to target ("host:port") on a free port of the loopback interface. It accepts connections once [Proxy.Run] runs.
func Listen(ctx context.Context, target string, seed uint64, f Faults) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for connections to %s: %w", target, err)
	}
	p := &Proxy{seed: seed, listener: l, open: map[*link]struct{}{}}
	p.Aim(target)
	p.Set(f)
	return p, nil
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set changes the faults of connections that are made from now on.
func (p *Proxy) Set(f Faults) { p.faults.Store(&f) }

// Aim changes the targets of connections that are made from now on. They take turns; one that refuses a connection is skipped.
func (p *Proxy) Aim(targets ...string) { p.targets.Store(&targets) }

// Connections returns the number of connections so far.
func (p *Proxy) Connections() int { return int(p.opened.Load()) }

// Cuts returns the number of connections that the proxy has ended.
func (p *Proxy) Cuts() int { return int(p.cuts.Load()) }

// CutAll ends all current connections. New ones are accepted.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		p.cuts.Add(1)
		l.end(false)
	}
}

// Run forwards connections until ctx ends, and then ends them all.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var links sync.WaitGroup
	defer links.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.listener.Close() })() // it ends Accept
	for {
		conn, err := p.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		n := p.opened.Add(1)
		links.Go(func() { p.serve(ctx, conn, uint64(n)) })
	}
}

// serve forwards one connection until either side or the proxy ends it.
func (p *Proxy) serve(ctx context.Context, client net.Conn, n uint64) {
	server := p.dial(ctx)
	if server == nil {
		_ = client.Close() // like a network without a server
		return
	}
	f := *p.faults.Load()
	if tcp, ok := server.(*net.TCPConn); ok && f.Most > 0 {
		_ = tcp.SetReadBuffer(heldBuffer) // else the kernel buffers megabytes for a client that does not read
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &link{client: client, server: server, cancel: cancel}
	p.mu.Lock()
	p.open[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, l)
		p.mu.Unlock()
	}()
	defer context.AfterFunc(ctx, func() { l.end(false) })()
	draw := rand.New(rand.NewPCG(p.seed, n))
	if after := f.Cut.draw(draw); after > 0 {
		reset := draw.Float64() < f.Reset
		defer time.AfterFunc(after, func() {
			p.cuts.Add(1)
			l.end(reset)
		}).Stop()
	}
	l.stallAt, l.stall = time.Now().Add(time.Duration(draw.Int64N(int64(time.Second)))), f.Stall.draw(draw)
	var ways sync.WaitGroup
	up, down := rand.New(rand.NewPCG(draw.Uint64(), 1)), rand.New(rand.NewPCG(draw.Uint64(), 2))
	ways.Go(func() { l.pass(ctx, server, client, f, 0, up) })
	ways.Go(func() { l.pass(ctx, client, server, f, f.Most, down) })
	ways.Wait()
}

// dial connects to the target whose turn it is, or to the next that accepts a connection; nil if none does.
func (p *Proxy) dial(ctx context.Context) net.Conn {
	targets, first := *p.targets.Load(), p.turn.Add(1)
	for i := range targets {
		target := targets[(first+uint64(i))%uint64(len(targets))]
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", target); err == nil {
			return conn
		}
	}
	return nil
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	cancel         context.CancelFunc // ends waits in pass
	stallAt        time.Time
	stall          time.Duration
}

// end closes both sides; with reset they see a connection reset.
func (l *link) end(reset bool) {
	for _, c := range []net.Conn{l.client, l.server} {
		if t, ok := c.(*net.TCPConn); ok && reset {
			_ = t.SetLinger(0) // it then closes with RST
		}
		_ = c.Close()
	}
}

// pass copies data in one direction until that ends, and then closes both sides: half-open connections are not one of the faults.
func (l *link) pass(ctx context.Context, to io.Writer, from io.Reader, f Faults, most int, draw *rand.Rand) {
	defer l.cancel()
	defer l.end(false)
	buf := make([]byte, 32<<10)
	for passed := 0; ; {
		if most > 0 && passed >= most {
			<-ctx.Done()
			return
		}
		n, err := from.Read(buf)
		passed += n
		for b := buf[:n]; len(b) > 0; {
			piece := b
			if f.Slice > 0 && len(b) > f.Slice {
				piece = b[:1+draw.IntN(f.Slice)]
			}
			b = b[len(piece):]
			late := f.Delay.draw(draw)
			if now := time.Now(); l.stall > 0 && now.After(l.stallAt) {
				late += max(0, l.stallAt.Add(l.stall).Sub(now))
			}
			if !wait.Sleep(ctx, late) {
				return
			}
			if _, err := to.Write(piece); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
