package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/web"
)

// raw is a connection to the gateway on which a test says what it likes.
func (e *edge) raw(text string) net.Conn {
	e.t.Helper()
	c, err := e.dialer.NetDialContext(e.t.Context(), "tcp", "gateway")
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		e.t.Fatal(err)
	}
	return c
}

// TestABodyThatNeverComesHoldsNothing: a client that announces a body and does not send it is answered, at once where the body is not
// needed, and the connection ends soon.
//
//guarantee:a-client-that-neither-sends-nor-reads-holds-nothing-for-long
func TestABodyThatNeverComesHoldsNothing(t *testing.T) {
	const key = "Authorization: Bearer " + aliceKey + "\r\n"
	for _, c := range []struct {
		name, head string
		status     int
		within     time.Duration
	}{
		{"a path that is not there", "POST /nowhere", http.StatusNotFound, 0},
		{"no key", "POST /v1/calls", http.StatusUnauthorized, 0},
		{"a wrong method", "PUT /v1/calls", http.StatusMethodNotAllowed, 0},
		{"health", "GET /healthz", http.StatusOK, 0},
		{"metrics", "GET /metrics", http.StatusOK, 0},
		{"the document", "GET /openapi.json", http.StatusOK, 0},
		{"a key and a wrong query", "POST /v1/calls?x=1 " + key, http.StatusBadRequest, 0},
		{"a body that is read", "POST /v1/calls " + key, http.StatusBadRequest, time.Minute},
		{"a durable stream's", "PUT /v1/streams/s " + key + "Content-Type: text/plain\r\n", http.StatusBadRequest, 30 * time.Second},
		{"a job's callback", "POST /v1/jobs/job_x/complete X-Job-Token: x\r\n", http.StatusNotFound, time.Minute},
	} {
		for _, length := range []string{"Content-Length: 1000", "Content-Length: 100000000", "Transfer-Encoding: chunked"} {
			t.Run(c.name+", "+length, func(t *testing.T) {
				inTime(t, func(t *testing.T, e *edge, _ *keys) {
					method, rest, _ := strings.Cut(c.head, " ")
					path, headers, _ := strings.Cut(rest, " ")
					conn := e.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: gateway\r\n%s%s\r\n\r\n", method, path, headers, length))
					began := time.Now()
					_ = conn.SetReadDeadline(began.Add(150 * time.Second))
					resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
					if err != nil {
						t.Fatalf("no answer: %v", err)
					}
					if took := time.Since(began); resp.StatusCode != c.status && resp.StatusCode < 400 || took > c.within+time.Second {
						t.Errorf("answered %d after %s, want %d after %s", resp.StatusCode, took, c.status, c.within)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Fatal(err)
					}
					if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
						t.Fatalf("the connection is held: %v", err)
					}
					if took := time.Since(began); took > c.within+10*time.Second {
						t.Errorf("the connection ended after %s", took)
					}
				})
			})
		}
	}
}

// TestAWaitOutlivesTheDeadlineOfItsBody: a body that came whole leaves no deadline behind by which its request would end.
//
//guarantee:a-client-that-neither-sends-nor-reads-holds-nothing-for-long
func TestAWaitOutlivesTheDeadlineOfItsBody(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		body := `{"tool":"bash","input":{"command":"hang"}}`
		conn := e.raw(fmt.Sprintf("POST /v1/calls?wait=90s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			aliceKey, len(body), body))
		began := time.Now()
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusAccepted {
			t.Fatal(resp, err)
		}
		if took := time.Since(began); took < 90*time.Second {
			t.Errorf("the wait ended after %s", took)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal("the connection serves no second request", resp, err)
		}
	}, func(o *gateway.Options) { o.MaxWait = 2 * time.Minute })
}

// TestAnAnswerThatNoClientTakesIsDropped: a client that asks and does not read holds nothing either.
//
//guarantee:a-client-that-neither-sends-nor-reads-holds-nothing-for-long
func TestAnAnswerThatNoClientTakesIsDropped(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		conn := e.raw("GET /openapi.json HTTP/1.1\r\nHost: gateway\r\n\r\n")
		time.Sleep(15 * time.Second)
		n, err := io.Copy(io.Discard, conn)
		if n != 0 || err != nil {
			t.Fatalf("%d bytes, %v: it was still there", n, err)
		}
	})
}

// TestConnectionsAreLimited: by address and in total. A refused client is answered with the reason, and the slot of a connection that
// ends is free.
//
//guarantee:a-client-that-neither-sends-nor-reads-holds-nothing-for-long
func TestConnectionsAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.77:0") // where no other test's client calls again: it would take a place
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan bool, 10)
	l := web.LimitConnections(inner, web.Connections{All: 3, PerAddress: 2, Refused: func(perAddress bool) { refused <- perAddress }})
	defer l.Close()
	taken := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(taken)
				return
			}
			taken <- c
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial("127.0.0.1")
	a := <-taken
	dial("127.0.0.1")
	b := <-taken
	out := dial("127.0.0.1")
	if perAddress := <-refused; !perAddress {
		t.Error("it is the address that has too many")
	}
	if resp, err := http.ReadResponse(bufio.NewReader(out), nil); err != nil || resp.StatusCode != http.StatusServiceUnavailable ||
		resp.Header.Get("Retry-After") == "" {
		t.Error(resp, err)
	}
	dial("127.0.0.2")
	c := <-taken
	dial("127.0.0.3")
	if perAddress := <-refused; perAddress {
		t.Error("it is all together that are too many")
	}
	_, _ = a.Close(), a.Close() // twice gives one place back
	dial("127.0.0.3")
	d := <-taken
	dial("127.0.0.3")
	<-refused
	for _, c := range []net.Conn{b, c, d} {
		_ = c.Close()
	}
}
