package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandjet/sandjet/schemas"
)

func TestAllowedHosts(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", false, says("hello"))
	w.Web("s.example", "93.184.216.35", true, says("secret hello"))
	s := w.enter(restricted("a.example", "s.example"), Limits{})
	if got := get(s.reach("a.example", 80), "a.example", "/x?a;b=%zz"); !strings.Contains(got, "200 OK") || !strings.Contains(got,
		"hello to a.example") {
		t.Errorf("plain: %q", got)
	}
	c := tls.Client(s.reach("s.example", 443), &tls.Config{ServerName: "S.example", InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.Handshake(); err != nil || c.ConnectionState().NegotiatedProtocol != "h2" {
		t.Errorf("HTTP/2: %v", err)
	}
	if list, _ := s.relay.Since(0); len(list) != 0 {
		t.Errorf("refused: %+v", list)
	}
}

func TestAllowAllCarriesAnyPort(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:9")
	w.Echo("93.184.216.35:443")
	w.Name("a.example", "93.184.216.34")
	s := w.enter(schemas.Network{Mode: schemas.AllowAll}, Limits{})
	for _, c := range []net.Conn{s.reach("a.example", 9), s.connect("93.184.216.34:9"), s.connect("93.184.216.35:443")} {
		_, _ = io.WriteString(c, "anything")
		_ = c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "anything" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:22")
	w.Name("a.example", "93.184.216.34")
	s := w.enter(restricted("a.example:22"), Limits{Connections: 20, PerSecond: 1 << 20})
	_, addrs := s.ask("a.example.", dnsmessage.TypeA)
	to := fmt.Sprintf("%s:22", addrs[0])
	kept, refused := 0, 0
	for range 200 {
		c := s.connect(to)
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			kept++ // and stays open
		} else {
			refused++
		}
	}
	// The connections to the outside count too: each pair is two.
	if kept == 0 || kept > 20 || kept+refused != 200 {
		t.Errorf("%d were carried and %d refused, want at most 20 and the rest", kept, refused)
	}
	s.saw(RuleLimit)
	// Another sandbox is not touched by it.
	other := w.enter(restricted("a.example:22"), Limits{Connections: 20})
	c := other.reach("a.example", 22)
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestBytesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:22")
	w.Name("a.example", "93.184.216.34")
	s := w.enter(restricted("a.example:22"), Limits{Bytes: 1 << 20})
	c := s.reach("a.example", 22)
	var writer sync.WaitGroup
	writer.Go(func() { _, _ = c.Write(make([]byte, 4<<20)) })
	n, _ := io.Copy(io.Discard, c)
	writer.Wait()
	if n > 1<<20 {
		t.Errorf("%d bytes came back", n)
	}
	s.saw(RuleLimit)
}

func TestSilentConnectionsEnd(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:22")
	w.Name("a.example", "93.184.216.34")
	s := w.enter(restricted("a.example:22"), Limits{Idle: 50 * time.Millisecond})
	if got, err := io.ReadAll(s.reach("a.example", 22)); len(got) != 0 || err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v: want the end", got, err)
	}
}

// TestStrangers: a client that does not belong to a test is not taken for one that does.
func TestStrangers(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:22")
	s := w.enter(schemas.Network{Mode: schemas.AllowAll}, Limits{})
	stranger, err := net.Dial("tcp", s.inside)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	c := s.connect("93.184.216.34:22")
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}
