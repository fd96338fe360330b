package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/schemas"
)

// A log handler that sends the first message that is logged to lines.
type heard struct {
	slog.Handler
	once  sync.Once
	lines chan string
}

func (*heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *heard) Handle(_ context.Context, l slog.Record) error {
	h.once.Do(func() { h.lines <- l.Message })
	return nil
}

// TestARoleWaitsForItsLog: a role that starts before its NATS server waits until the server is up. It ends at once with an error if the
// server refuses the credential, or when it is stopped while it waits.
//
//guarantee:pauses-cuts-and-full-disks
func TestARoleWaitsForItsLog(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := startNode(t, t.TempDir())
	id, err := server.dir.identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.openServer(ctx, serverFlags{NATSListen: address{"127.0.0.1", 0}, Durability: "1s"}, tenantFlags{}, id); err != nil {
		t.Fatal(err)
	}
	background(t, server.run)
	r, err := readJSON[role](server.dir.roleFile())
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Listen(ctx, at.Host, 1, faultproxy.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	background(t, proxy.Run)
	named := natsFlags{NATSURL: "nats://" + proxy.Addr(), NATSUser: r.User, NATSPassword: r.Password}
	top := topologyFlags{Replicas: 1, Shards: 1}

	proxy.Aim() // a server that is not there
	said := &heard{Handler: slog.DiscardHandler, lines: make(chan string, 1)}
	n, err := newNode(slog.New(said), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	opened := make(chan error, 1)
	go func() { opened <- n.awaitBus(ctx, named, top) }()
	select {
	case err := <-opened:
		t.Fatalf("it has not waited: %v", err)
	case line := <-said.lines:
		if !strings.Contains(line, "waiting") {
			t.Errorf("it says %q", line)
		}
	}
	proxy.Aim(at.Host)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}

	wrong := named
	wrong.NATSPassword = "wrong"
	if err := startNode(t, t.TempDir()).awaitBus(ctx, wrong, top); schemas.CodeOf(err) != schemas.Denied {
		t.Errorf("a wrong password: %v", err)
	}
	proxy.Aim()
	stopped, stop := context.WithCancel(ctx)
	stop()
	if err := startNode(t, t.TempDir()).awaitBus(stopped, named, top); !errors.Is(err, context.Canceled) {
		t.Errorf("a role that is stopped: %v", err)
	}
}
