package egress

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

//guarantee:a-box-reaches-what-its-rules-name
func TestTLSForAnotherName(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", true, says("hello"))
	w.Web("hidden.example", "93.184.216.34", true, says("hello"))
	s := w.enter(restricted("a.example"), Limits{})
	for _, name := range []string{"hidden.example", "www.a.example", ""} {
		c := s.reach("a.example", 443)
		config := &tls.Config{ServerName: name, InsecureSkipVerify: true}
		if err := tls.Client(c, config).Handshake(); err == nil {
			t.Errorf("a handshake for %q succeeded", name)
		}
		s.saw(RuleServerName)
	}
	for _, first := range []string{"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "SSH-2.0-x\r\n", "\x00\x01\x02\x03\x04\x05\x06\x07",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		c := s.reach("a.example", 443)
		_, _ = io.WriteString(c, first)
		s.refusal(c, RuleTLS)
	}
	if reached := w.Dialled(); len(reached) != 0 {
		t.Errorf("%v were connected to", reached)
	}
}

func TestEncryptedHelloIsRefused(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", true, says("hello"))
	s := w.enter(restricted("a.example"), Limits{})
	c := s.reach("a.example", 443)
	_, _ = c.Write(withExtension(t, "a.example", encryptedHello))
	s.refusal(c, RuleServerName)
	if reached := w.Dialled(); len(reached) != 0 {
		t.Errorf("%v were connected to", reached)
	}
}

// withExtension is a client's hello with one more, empty extension.
func withExtension(t testing.TB, name string, id uint16) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		defer client.Close()
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake()
	}()
	_ = server.SetDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	// type 1, length 3, version 2, random 32, session id, cipher suites, compression, then the extensions
	at := 4 + 2 + 32
	at += 1 + int(body[at])
	at += 2 + int(body[at])<<8 + int(body[at+1])
	at += 1 + int(body[at])
	grow := func(i, size int) {
		n := 0
		for k := range size {
			n = n<<8 | int(body[i+k])
		}
		n += 4
		for k := range size {
			body[i+size-1-k] = byte(n >> (8 * k))
		}
	}
	grow(at, 2)
	grow(1, 3)
	body = slices.Concat(body, []byte{byte(id >> 8), byte(id), 0, 0})
	head[3], head[4] = byte(len(body)>>8), byte(len(body))
	return slices.Concat(head, body)
}

// A connection on which something was received, and nothing can be sent.
type told struct {
	net.Conn
	r io.Reader
	t *testing.T
}

func (c told) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c told) SetReadDeadline(time.Time) error { return nil }

func (c told) Close() error { return nil }

func (c told) Write(p []byte) (int, error) {
	c.t.Fatalf("%x was answered", p)
	return 0, nil
}

//guarantee:a-box-reaches-what-its-rules-name
func FuzzHello(f *testing.F) {
	f.Add(withExtension(f, "a.example", encryptedHello))
	f.Add(withExtension(f, "a.example", 0x1234))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		_, _, read, err := hello(told{r: strings.NewReader(string(said)), t: t})
		if err == nil && !bytes.HasPrefix(said, read) {
			t.Fatalf("%x was read of %x", read, said)
		}
	})
}
