package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// idlers are clients of one kind, each of which follows a conversation while nothing happens.
type idlers struct {
	name string // of a single client
	open func(ctx context.Context, g *gate, conversations []string) (cut func(), err error)
}

// idleKinds returns the kinds of clients.
func idleKinds() []idlers {
	return []idlers{
		{"socket", func(ctx context.Context, g *gate, conversations []string) (func(), error) {
			all, err := g.crowd(ctx, len(conversations), smallRoom, func(i int) string { return conversations[i] }, fromStart)
			return func() { cutAll(all) }, err
		}},
		{"event stream", func(ctx context.Context, g *gate, conversations []string) (func(), error) {
			all, err := g.eventStreams(ctx, conversations)
			return func() { hangUp(all) }, err
		}},
	}
}

// ReplayIdle measures the resources of clients that each follow a conversation while nothing happens: by WebSockets, and by event streams
// over HTTP/1.1.
func ReplayIdle(ctx context.Context, size Crowd) (Report, error) {
	w, err := size.world(ctx, 1)
	if err != nil {
		return Report{}, err
	}
	defer w.close(ctx)
	r := Report{Title: fmt.Sprintf("%d idle clients, each on a conversation of its own", size.Clients), Machine: machine()}
	for _, kind := range idleKinds() {
		var resident, inUse, goroutines []float64
		for range size.Rounds {
			before, after, err := w.idle(ctx, size, kind)
			if err != nil {
				return Report{}, err
			}
			n := float64(size.Clients)
			resident = append(resident, (after.resident-before.resident)/n/kib)
			inUse = append(inUse, (after.inUse-before.inUse)/n/kib)
			goroutines = append(goroutines, (after.goroutines-before.goroutines)/n)
		}
		r.Rows = append(
			r.Rows,
			row("resident memory of the gateway per "+kind.name, "KiB", resident),
			row("heap and stacks of it in use per "+kind.name, "KiB", inUse),
			row("goroutines per "+kind.name, "", goroutines),
		)
	}
	files, err := openFiles()
	if err != nil {
		return Report{}, err
	}
	r.Notes = []string{fmt.Sprintf("Aims for a socket: at most 8 KiB resident, one goroutine. A process may open %d files here.", files)}
	return r, nil
}

// idle returns the resources that a new gateway uses before and while a crowd follows.
func (w *replayWorld) idle(ctx context.Context, size Crowd, kind idlers) (before, after use, err error) {
	err = w.withGate(ctx, size.Clients, func(g *gate) error {
		const warm = 100 // so that what is allocated once is not counted
		cut, err := kind.open(ctx, g, names("c_warm_", min(warm, size.Clients)))
		if err != nil {
			return err
		}
		cut()
		if before, err = g.settled(ctx, size.settle()); err != nil {
			return err
		}
		if cut, err = kind.open(ctx, g, names("c_idle_", size.Clients)); err != nil {
			return err
		}
		defer cut()
		after, err = g.settled(ctx, size.settle())
		return err
	})
	return before, after, err
}

// eventStreams follows conversations by server-sent events over HTTP/1.1, on one connection each, and returns when all are live. They are
// not read afterwards.
func (g *gate) eventStreams(ctx context.Context, conversations []string) ([]net.Conn, error) {
	const atOnce = 64
	all := make([]net.Conn, len(conversations))
	err := each(len(all), atOnce, func(i int) (err error) {
		all[i], err = g.eventStream(ctx, conversations[i])
		return err
	})
	if err != nil {
		hangUp(all)
		return nil, err
	}
	return all, nil
}

func (g *gate) eventStream(ctx context.Context, conv string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.address)
	if err != nil {
		return nil, fmt.Errorf("open an event stream: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(followWithin)) // an error shows below
	_, err = fmt.Fprintf(conn, "GET /v1/conversations/%s/events HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nAuthorization: Bearer "+
		"%s\r\n\r\n", conv, g.address, g.key)
	var text []byte
	for room := make([]byte, smallRoom); err == nil && !bytes.Contains(text, []byte(`{"upToDate":true}`)); {
		var n int
		n, err = conn.Read(room)
		text = append(text, room[:n]...)
		if !bytes.HasPrefix(text, []byte("HTTP/1.1 200")[:min(len(text), len("HTTP/1.1 200"))]) {
			err = fmt.Errorf("the gateway answered %s", strconv.Quote(string(text)))
		}
	}
	if err != nil {
		_ = conn.Close() // it is not used
		return nil, fmt.Errorf("open an event stream: %w", err)
	}
	return conn, nil
}

// hangUp closes connections with a reset, like a lost network, so that the kernel need not remember them.
func hangUp(all []net.Conn) {
	for _, conn := range all {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // if it fails, the kernel remembers it for a minute
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}
