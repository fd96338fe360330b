package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

// byHand is a connection on which a test speaks HTTP/1 itself.
type byHand struct {
	net.Conn

	resp *http.Response
}

// request asks for the stream of a conversation on a connection of its own, and reads the header of the answer.
func (e *edge) request(t *testing.T, version, conv, key string) byHand {
	t.Helper()
	dial := e.dialer.NetDialContext
	if dial == nil {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(e.url, "http://"))
		}
	}
	conn, err := dial(t.Context(), "tcp", "gateway")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET /v1/conversations/%s/events HTTP/%s\r\nHost: gateway\r\nAccept: "+
		"text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", conv, version, key); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return byHand{conn, resp}
}

// overHTTP2 does what request does, by HTTP/2.
func (e *edge) overHTTP2(t *testing.T, path, key string) *http.Response {
	t.Helper()
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: two, DialContext: e.dialer.NetDialContext}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.ProtoMajor != 2 {
		t.Errorf("%s; want HTTP/2", resp.Proto)
	}
	return resp
}

// The body that a client receives, in pieces that belong to the goroutine that waits for them.
type heard struct {
	all  chan string
	text strings.Builder
	err  error // once all is closed
}

func listen(body io.Reader) *heard {
	const many = 4096
	h := &heard{all: make(chan string, many)}
	go func() {
		defer close(h.all)
		for b := make([]byte, 64<<10); ; {
			n, err := body.Read(b)
			if n > 0 {
				h.all <- string(b[:n])
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					h.err = err
				}
				return
			}
		}
	}()
	return h
}

// until waits for a text, and returns all that was received. The text must come, or the body end if it is empty, within two minutes of
// virtual time.
func (h *heard) until(t *testing.T, want string) string {
	t.Helper()
	const patience = 2 * time.Minute
	over := time.After(patience)
	for want == "" || !strings.Contains(h.text.String(), want) {
		select {
		case piece, ok := <-h.all:
			if ok {
				h.text.WriteString(piece)
				continue
			}
			if want != "" {
				t.Fatalf("the stream ended, %v, without %q: %.300q", h.err, want, h.text.String())
			}
			return h.text.String()
		case <-over:
			t.Fatalf("nothing more came, want %q: %.300q", want, h.text.String())
		}
	}
	return h.text.String()
}

// ended reports whether the body has ended.
func (h *heard) ended() bool {
	for {
		select {
		case piece, ok := <-h.all:
			if !ok {
				return true
			}
			h.text.WriteString(piece)
		default:
			return false
		}
	}
}

// The result is the stream without what differs from one to the next: the retry times and the comments.
func told(text string) string {
	var kept []string
	for piece := range strings.SplitSeq(text, "\n\n") {
		if !strings.HasPrefix(piece, "retry: ") && !strings.HasPrefix(piece, ":") {
			kept = append(kept, piece)
		}
	}
	return strings.Join(kept, "\n\n")
}

// TestEventStreamsAreTheSameOverEveryHTTP: history, the live mark, comments, an event that comes, and the end by a
// drain.
//
//guarantee:a-conversation-has-no-holes
func TestEventStreamsAreTheSameOverEveryHTTP(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		e.note("c_1", 0, "a\r\nid: 9\r\n0\r\n\r\n")
		for n := range 20 {
			e.note("c_1", 1+n, strings.Repeat("large ", 2000)) // together more than one write
		}
		all := map[string]*heard{}
		for _, version := range []string{"1.0", "1.1"} {
			c := e.request(t, version, "c_1", aliceKey)
			h := c.resp.Header
			if c.resp.StatusCode != http.StatusOK || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" ||
				h.Get("X-Accel-Buffering") != "no" || h.Get("X-Request-Id") == "" || h.Get("Date") == "" || !c.resp.Close ||
				c.resp.Proto != "HTTP/"+version || (len(c.resp.TransferEncoding) > 0) != (version == "1.1") {
				t.Errorf("HTTP/%s: %+v", version, c.resp)
			}
			all["HTTP/"+version] = listen(c.resp.Body)
		}
		all["HTTP/2"] = listen(e.overHTTP2(t, "/v1/conversations/c_1/events", aliceKey).Body)
		for _, h := range all {
			h.until(t, `{"upToDate":true}`+"\nid: ")
		}
		time.Sleep(35 * time.Second)
		synctest.Wait()
		e.note("c_1", 30, "live")
		for name, h := range all {
			text := h.until(t, `"text":"live"`)
			if n := strings.Count(text, "\n: still here\n"); n < 3 || n > 4 {
				t.Errorf("%s: %d comments in 35 s", name, n)
			}
		}
		e.gw.Drain()
		for name, h := range all {
			if text, want := told(h.until(t, "")), told(all["HTTP/2"].until(t, "")); text != want || h.err != nil {
				t.Errorf("%s: the stream ends with %v, and differs from HTTP/2's: %.500q, want %.500q", name, h.err, text, want)
			}
			if !strings.HasSuffix(h.text.String(), "\n\n") {
				t.Errorf("%s: ends in the middle of an event", name)
			}
		}
	})
}

// following is how many event streams the gateway counts.
func (e *edge) following(t *testing.T) string {
	t.Helper()
	for line := range strings.SplitSeq(e.get("/metrics").body, "\n") {
		if n, ok := strings.CutPrefix(line, `sandjet_conversations_followed{transport="sse"} `); ok {
			return n
		}
	}
	return "none"
}

// TestAnEventStreamThatIsNotReadIsDropped: after ten seconds. No other client is delayed by it.
func TestAnEventStreamThatIsNotReadIsDropped(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		deaf := e.request(t, "1.1", "c_1", aliceKey) // a pipe holds nothing: writes block until they are read
		well := listen(e.request(t, "1.1", "c_1", aliceKey).resp.Body)
		well.until(t, `{"upToDate":true}`)
		e.note("c_1", 0, "first")
		well.until(t, "first")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := e.following(t); n != "2" {
			t.Errorf("after 9 s %s streams are followed, want 2", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := e.following(t); n != "1" {
			t.Errorf("after 11 s %s streams are followed, want 1", n)
		}
		if body := e.get("/metrics").body; !strings.Contains(body, `sandjet_readers_dropped_total{transport="sse"} 1`) {
			t.Error("the one that was dropped is not counted")
		}
		e.note("c_1", 1, "second")
		well.until(t, "second")
		if _, err := io.Copy(io.Discard, deaf.resp.Body); err == nil {
			t.Error("the stream of who did not read has a proper end")
		}
	}, func(o *gateway.Options) { o.Limits.Sockets = 2 })
}

// TestAnEventStreamEndsWithItsClient: its place is free, and the request is counted once it is over.
func TestAnEventStreamEndsWithItsClient(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		const counted = `sandjet_http_requests_total{route="GET /v1/conversations/{id}/events",status="200"} 1`
		c := e.request(t, "1.1", "c_1", aliceKey)
		h := listen(c.resp.Body)
		h.until(t, `{"upToDate":true}`)
		if _, err := io.WriteString(c, strings.Repeat("GET /v1/jobs HTTP/1.1\r\n\r\n", 100)); err != nil { // the answers are not read
			t.Fatal(err)
		}
		e.note("c_1", 0, "after it")
		h.until(t, "after it")
		if body := e.get("/metrics").body; strings.Contains(body, counted) {
			t.Error("the request is counted while its answer goes on")
		}
		c.Close()
		synctest.Wait()
		if n := e.following(t); n != "0" {
			t.Errorf("%s streams are followed after the client has gone", n)
		}
		if body := e.get("/metrics").body; !strings.Contains(body, counted) {
			t.Error("the request is not counted after its end")
		}
		listen(e.request(t, "1.1", "c_1", aliceKey).resp.Body).until(t, `{"upToDate":true}`)
	}, func(o *gateway.Options) { o.Limits.Sockets = 1 })
}

func TestAHeadOfAnEventStreamIsOnlyItsHeader(t *testing.T) {
	e := open(t)
	a := e.do(ask{method: http.MethodHead, path: "/v1/conversations/c_1/events", header: http.Header{"Accept": {"text/event-stream"}}})
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || a.body != "" {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
}

// TestAnIdleEventStreamIsOneGoroutine, and only so as to see the client go.
func TestAnIdleEventStreamIsOneGoroutine(t *testing.T) {
	e := open(t)
	for n := range 3 {
		e.note("c_1", n, "x")
	}
	attach := func() {
		c := e.request(t, "1.1", "c_1", aliceKey)
		for lines := bufio.NewScanner(c.resp.Body); lines.Scan() && !strings.Contains(lines.Text(), `{"upToDate":true}`); {
			continue // up to where it is live
		}
	}
	attach() // what is shared runs from here on
	const clients, spare = 40, 5
	before := runtime.NumGoroutine()
	for range clients {
		attach()
	}
	eventually(t, "each stream is one goroutine", func() bool { return runtime.NumGoroutine() <= before+clients+spare })
}

// TestEveryKindOfStreamEndsWithItsKey: every open stream of an account ends within a minute when the account's key is rotated away or the
// account is deleted. A stream of another account continues.
//
//guarantee:tenants-are-isolated
func TestEveryKindOfStreamEndsWithItsKey(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, k *keys) {
		jobs := map[schemas.AccountID]schemas.Job{}
		worker := e.keeper()
		worker.print("printed", false)
		for a, key := range map[schemas.AccountID]string{alice: aliceKey, bob: bobKey} {
			jobs[a] = e.job(func(j *schemas.Job) { j.Account = a })
			made := e.do(ask{method: http.MethodPut, path: "/v1/streams/s", body: "stored", key: key,
				header: http.Header{"Content-Type": {"text/plain"}}})
			if made.status != http.StatusCreated {
				t.Fatalf("%d %s", made.status, made.body)
			}
		}
		type open struct {
			*heard

			status int
		}
		follow := func(a schemas.AccountID, key string) map[string]*open {
			get := func(path string) *open {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+key)
				resp, err := e.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { resp.Body.Close() })
				return &open{listen(resp.Body), resp.StatusCode}
			}
			all := map[string]*open{
				"event stream, HTTP/1.1":       {listen(e.request(t, "1.1", "c_1", key).resp.Body), http.StatusOK},
				"event stream, HTTP/2":         {listen(e.overHTTP2(t, "/v1/conversations/c_1/events", key).Body), http.StatusOK},
				"followed log":                 get("/v1/jobs/" + string(jobs[a].ID) + "/logs?follow=1"),
				"event stream of data":         get("/v1/streams/s?offset=-1&live=sse"),
				"event stream of data, HTTP/2": {listen(e.overHTTP2(t, "/v1/streams/s?offset=-1&live=sse", key).Body), http.StatusOK},
			}
			for name, text := range map[string]string{"followed log": "printed", "event stream of data": "stored",
				"event stream, HTTP/1.1": "upToDate"} {
				all[name].until(t, text)
			}
			return all
		}
		ours, theirs := follow(alice, aliceKey), follow(bob, bobKey)
		polled := make(chan answer, 1)
		go func() { polled <- e.get("/v1/streams/s?offset=now&live=long-poll") }()
		synctest.Wait()
		k.rotate(alice)
		time.Sleep(55 * time.Second)
		synctest.Wait()
		for name, s := range ours {
			if !s.ended() {
				t.Errorf("%s: it goes on", name)
				continue
			}
			text := s.text.String()
			if s.err != nil || strings.HasPrefix(name, "event stream, ") != strings.Contains(text, "no longer valid") {
				t.Errorf("%s: %v, %q", name, s.err, text)
			}
		}
		if a := <-polled; a.status != http.StatusForbidden || !strings.Contains(a.body, "no longer valid") {
			t.Errorf("long poll of data: %d %s; want 403", a.status, a.body)
		}
		e.gw.Drain() // which ends the others, and not before
		for name, s := range theirs {
			if text := s.until(t, ""); s.err != nil || strings.Contains(text, "no longer valid") {
				t.Errorf("of another account, %s: %v, %q", name, s.err, text)
			}
		}
	}, func(o *gateway.Options) { o.DurableWait = 10 * time.Minute })
}
