package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/internal/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const within = 90 * time.Second

// echo answers every connection with what it says.
func echo(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup // the proxy, which is stopped first, ends the connections
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func start(t *testing.T, f faultproxy.Faults) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Listen(t.Context(), echo(t), 1, f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBytesPassUnchanged(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faultproxy.Faults{
		"without faults": {},
		"in slices":      {Slice: 7},
		"late":           {Delay: faultproxy.Span{Min: time.Millisecond, Max: 2 * time.Millisecond}, Slice: 1000},
		"after a stall":  {Stall: faultproxy.Span{Min: 10 * time.Millisecond, Max: 20 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, start(t, f))
			sent := bytes.Repeat([]byte("0123456789"), 500)
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%v, or other bytes came back", err)
			}
		})
	}
}

func TestConnectionsStandStill(t *testing.T) {
	t.Parallel()
	const most = 1000
	p := start(t, faultproxy.Faults{Most: most, Slice: 100})
	c := dial(t, p)
	if _, err := c.Write(make([]byte, 3*most)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, most)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if p.CutAll(); p.Cuts() != 1 {
		t.Errorf("%d cuts, want that of the one that stands still", p.Cuts())
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the cut: %v", err)
	}
}

func TestConnectionsGoToTargetsInTurn(t *testing.T) {
	t.Parallel()
	alive := echo(t)
	p := start(t, faultproxy.Faults{})
	const dead = "127.0.0.1:0" // no process can listen there
	p.Aim(dead, alive, dead)
	for range 6 { // past those that take none
		c := dial(t, p)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("%v, want an answer of the one that lives", err)
		}
	}
}

func TestConnectionsAreCut(t *testing.T) {
	t.Parallel()
	soon := faultproxy.Span{Min: time.Millisecond, Max: 5 * time.Millisecond}
	for name, tt := range map[string]struct {
		faults faultproxy.Faults
		want   error
	}{
		"ended": {faultproxy.Faults{Cut: soon}, io.EOF},
		"reset": {faultproxy.Faults{Cut: soon, Reset: 1}, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tt.faults)
			if _, err := dial(t, p).Read(make([]byte, 1)); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if p.Connections() != 1 || p.Cuts() != 1 {
				t.Errorf("counted %d connections and %d cuts", p.Connections(), p.Cuts())
			}
			p.Set(faultproxy.Faults{})
			c := dial(t, p)
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Errorf("without faults: %v", err)
			}
			p.CutAll()
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("it was not cut with all others")
			}
		})
	}
}
