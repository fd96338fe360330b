package replaytest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// lossy is a proxy of NATS connections that drops some of the live messages of events that the server sends. It passes everything else on.
type lossy struct {
	target   string
	listener net.Listener
	percent  atomic.Int64 // of the live messages
	came     atomic.Int64 // live messages, those that were lost too
	lost     atomic.Int64

	mu   sync.Mutex
	draw *rand.Rand
}

func newLossy(t *testing.T, target string) *lossy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{target: strings.TrimPrefix(target, "nats://"), listener: l, draw: rand.New(rand.NewPCG(1, 2))}
	background(t, p.run)
	return p
}

func (p *lossy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *lossy) run(ctx context.Context) error {
	var links sync.WaitGroup
	defer links.Wait()
	defer context.AfterFunc(ctx, func() { _ = p.listener.Close() })()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return nil // it was closed
		}
		links.Go(func() {
			s, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
			if err != nil {
				_ = c.Close()
				return
			}
			end := func() {
				_ = c.Close()
				_ = s.Close()
			}
			defer context.AfterFunc(ctx, end)()
			links.Go(func() {
				defer end()
				_, _ = io.Copy(s, c)
			})
			defer end()
			_ = p.pass(c, bufio.NewReader(s)) // by the end of one of the two
		})
	}
}

// pass copies the server's NATS operations to the client, except for the messages that are dropped.
func (p *lossy) pass(to io.Writer, from *bufio.Reader) error {
	for {
		op, err := from.ReadBytes('\n')
		if err != nil {
			return err
		}
		fields := bytes.Fields(op)
		if len(fields) > 3 && (string(fields[0]) == "MSG" || string(fields[0]) == "HMSG") {
			size, err := strconv.Atoi(string(fields[len(fields)-1]))
			if err != nil {
				return err
			}
			body := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(from, body); err != nil {
				return err
			}
			if p.loses(string(fields[1])) {
				continue
			}
			op = append(op, body...)
		}
		if _, err := to.Write(op); err != nil {
			return errors.Join(err)
		}
	}
}

func (p *lossy) loses(subject string) bool {
	if !strings.HasPrefix(subject, "sandjet.live.") {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came.Add(1)
	if p.draw.Int64N(100) >= p.percent.Load() {
		return false
	}
	p.lost.Add(1)
	return true
}

// TestLostLiveMessagesAreReadFromTheLog: if a live message is lost, the next one shows it, and the lost event is read from the log.
//
//guarantee:a-conversation-has-no-holes
func TestLostLiveMessagesAreReadFromTheLog(t *testing.T) {
	t.Parallel()
	role := natsauth.User{Name: "role", Password: "role"}
	s := open(t, natstest.Listen(role))
	net := newLossy(t, s.log.Server.URL())
	bus, err := streams.Open(t.Context(), streams.Options{URL: net.url(), User: role.Name, Password: role.Password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Close(context.Background()); err != nil {
			t.Errorf("close the log: %v", err)
		}
	})
	s.proxy.Aim(s.serve(bus).addr)
	convs := names(3)
	c := s.crowd()
	c.everyWay(2, convs...)
	s.write(convs, 0, 1)
	c.reached()
	next, rounds := 1, pick(300, 60)
	for _, percent := range []int64{5, 50, 100, 20} {
		net.percent.Store(percent)
		all := net.came.Load() + int64(len(convs)*rounds)
		s.write(convs, next, next+rounds)
		testwait.Eventually(t, "all of them have come to the network", func() bool { return net.came.Load() >= all })
		next += rounds
	}
	net.percent.Store(0)
	s.write(convs, next, next+1) // shows what was lost before it
	c.caughtUp()
	c.whole()
	t.Logf("%d live messages were lost", net.lost.Load())
	if want := int64(len(convs) * rounds); net.lost.Load() < want {
		t.Errorf("%d live messages were lost, want %d at least: that proves little", net.lost.Load(), want)
	}
}
