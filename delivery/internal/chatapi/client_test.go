package chatapi_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

const secret = `to/k"en:Ä<7>`

func client(t *testing.T, base string) *chatapi.Client {
	t.Helper()
	c, err := chatapi.New("Chat", "https://chat.example.com", channel.Options{Base: base, Now: func() time.Time { return time.Unix(1_764_000_000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call() chatapi.Call {
	return chatapi.Call{Method: http.MethodPost, Path: "/bot" + url.PathEscape(secret) + "/send", Query: url.Values{"key": {secret}},
		Header: http.Header{"Authorization": {"Bearer " + secret}},
		JSON:   map[string]string{"text": "x", "token": secret}, Secrets: []string{secret}}
}

func failure(t *testing.T, err error) *channel.Error {
	t.Helper()
	e, ok := errors.AsType[*channel.Error](err)
	if !ok {
		t.Fatalf("%v says nothing of the message", err)
	}
	for _, form := range []string{secret, url.PathEscape(secret), url.QueryEscape(secret), `to/k\"en`, "Ä<7>", base64.StdEncoding.EncodeToString([]byte(secret))} {
		if strings.Contains(err.Error(), form) {
			t.Errorf("%q holds the secret", err)
		}
	}
	return e
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Retry-After", "1.2")
		w.Header().Set("Location", "/"+secret)
		w.WriteHeader(int(status.Load()))
		w.Write([]byte(r.URL.String() + r.Header.Get("Authorization") + string(body)))
	}))
	t.Cleanup(server.Close)
	c := client(t, server.URL)
	for _, row := range []struct {
		status  int
		outcome channel.Outcome
	}{
		{200, ""}, {201, ""}, {204, ""}, {301, channel.Refused}, {302, channel.Refused}, {307, channel.Refused}, {308, channel.Refused},
		{400, channel.Refused}, {401, channel.Refused}, {403, channel.Refused}, {404, channel.Refused}, {408, channel.NotSent},
		{409, channel.Refused}, {410, channel.Refused}, {413, channel.Refused}, {425, channel.NotSent}, {429, channel.Limited},
		{500, channel.Ambiguous}, {502, channel.Ambiguous}, {503, channel.Ambiguous}, {504, channel.Ambiguous}, {599, channel.Ambiguous},
	} {
		status.Store(int64(row.status))
		a, err := c.Do(t.Context(), call())
		if row.outcome == "" {
			if err != nil || a.Status != row.status {
				t.Errorf("%d: %v", row.status, err)
			}
			continue
		}
		e := failure(t, err)
		if e.Outcome != row.outcome || e.Status != row.status || e.Credential != (row.status == 401) {
			t.Errorf("%d: %+v", row.status, e)
		}
		if (e.After == 1200*time.Millisecond) != (row.status == 429) {
			t.Errorf("%d: it waits %s", row.status, e.After)
		}
	}
}

// Texts of a response that an adapter's Judge repeats are redacted and truncated like all others.
func TestTheWordsOfAServiceHoldNoSecret(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, strings.Repeat("x", 380)+r.URL.String()+r.URL.Path+r.Header.Get("Authorization")+string(body)+secret)
	}))
	t.Cleanup(server.Close)
	k := call()
	k.Judge = func(a chatapi.Answer) *channel.Error {
		return &channel.Error{Outcome: channel.Refused, Reason: string(a.Body), Cause: errors.New(string(a.Body))}
	}
	_, err := client(t, server.URL).Do(t.Context(), k)
	if e := failure(t, err); len(e.Reason) > 410 || e.Status != 200 || strings.Contains(e.Reason, "to/k") {
		t.Errorf("%+v", e)
	}
}

func TestNothingArrived(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + listener.Addr().String()
	listener.Close()
	tls := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }))
	t.Cleanup(tls.Close)
	for name, base := range map[string]string{"nobody listens": base, "no name": "http://" + "nobody.invalid", "another certificate": tls.URL} {
		_, err := client(t, base).Do(t.Context(), call())
		if e := failure(t, err); e.Outcome != channel.NotSent {
			t.Errorf("%s: %v", name, e)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client(t, tls.URL).Do(ended, call())
	if e := failure(t, err); e.Outcome != channel.NotSent || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", e)
	}
}

// raw calls answer for each request on its connections, with the number of the request, and closes the connection when answer returns
// false.
func raw(t *testing.T, answer func(n int64, c net.Conn) bool) (base string, seen *atomic.Int64) {
	t.Helper()
	seen = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		n := seen.Add(1)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		answer(n, c)
		c.Close()
	}))
	t.Cleanup(server.Close)
	return server.URL, seen
}

func TestAnswersThatBreak(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer  string
		outcome channel.Outcome
	}{
		"no answer":                 {"", channel.Ambiguous},
		"half a status":             {"HTTP/1.1 2", channel.Ambiguous},
		"no HTTP":                   {"hello " + secret + "\r\n\r\n", channel.Ambiguous},
		"a success, cut":            {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"ok\"", channel.Ambiguous},
		"a success, not understood": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{\"ok\"", channel.Ambiguous},
		"a refusal, cut":            {"HTTP/1.1 400 Bad Request\r\nContent-Length: 20\r\n\r\n{\"ok\"", channel.NotSent},
		"no credential, cut":        {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 20\r\n\r\n{\"ok\"", channel.Refused},
		"a limit, cut":              {"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 20\r\n\r\n{\"ok\"", channel.Limited},
		"too long":                  {"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + strings.Repeat(" ", 2_000_000), channel.Ambiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, seen := raw(t, func(_ int64, c net.Conn) bool {
				io.WriteString(c, row.answer)
				return false
			})
			k := call()
			var into map[string]any
			k.Into = &into
			_, err := client(t, base).Do(t.Context(), k)
			if e := failure(t, err); e.Outcome != row.outcome || seen.Load() != 1 {
				t.Errorf("%+v after %d requests", e, seen.Load())
			}
		})
	}
}

// The service closes a connection as soon as a second request arrives on it: net/http resends such a request if it may.
func TestTheTransportSendsNothingAgain(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
		var requests, connections atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if requests.Add(1) == 1 {
				w.WriteHeader(http.StatusOK)
				return
			}
			panic(http.ErrAbortHandler)
		}))
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		c := client(t, server.URL)
		k := call()
		if header != "" {
			k.Header.Set(header, "1")
		}
		if _, err := c.Do(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		_, err := c.Do(t.Context(), k)
		if e := failure(t, err); e.Outcome != channel.Ambiguous || requests.Load() != 2 || connections.Load() != 1 {
			t.Errorf("%q: %v after %d requests on %d connections", header, e, requests.Load(), connections.Load())
		}
	}
}

// The service closes idle connections between two requests. In every race, a message that is reported as not sent was not sent, and none
// arrives twice.
func TestIdleConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			arrived.Add(1)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	c := client(t, server.URL)
	var wg sync.WaitGroup
	defer wg.Wait()
	var sent, unknown int64
	for i := range 200 {
		if i%2 == 1 {
			wg.Go(server.CloseClientConnections)
		}
		_, err := c.Do(t.Context(), call())
		switch {
		case err == nil:
			sent++
		case failure(t, err).Outcome == channel.Ambiguous:
			unknown++
		}
	}
	if n := arrived.Load(); n < sent || n > sent+unknown {
		t.Errorf("%d arrived, %d have their answer and of %d nothing is known", n, sent, unknown)
	}
}

func TestHowLongToWait(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_764_000_000, 0)
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-3": 0, "0": 0, "NaN": 0, "5": 5 * time.Second, "0.4001": 401 * time.Millisecond,
		"1e300": 30 * 24 * time.Hour, "Inf": 30 * 24 * time.Hour,
		now.Add(time.Minute).UTC().Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).UTC().Format(http.TimeFormat): 0,
	} {
		if got := chatapi.RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"chat", "ftp://x", "http://u:p@x", "https://x?q=1", "https://x#f", "://", "https://"} {
		if _, err := chatapi.New("Chat", "https://chat.example.com", channel.Options{Base: base}); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%q: %v", base, err)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%v repeats a password", err)
		}
	}
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { path = r.URL.EscapedPath() }))
	t.Cleanup(server.Close)
	_, err := client(t, server.URL+"/chat/").Do(t.Context(), chatapi.Call{Method: http.MethodGet, Path: "/a%2Fb/c"})
	if err != nil || path != "/chat/a%2Fb/c" {
		t.Errorf("%q %v", path, err)
	}
}

func TestEachFormOfASecretIsReplaced(t *testing.T) {
	t.Parallel()
	inJSON, err := chatapi.Encode(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{
		secret, url.PathEscape(secret), url.QueryEscape(secret), strconv.Quote(secret), strconv.QuoteToASCII(secret), string(inJSON),
		strings.ReplaceAll(secret, "/", `\/`), hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)),
	} {
		form = strings.Trim(form, `"`)
		if got := chatapi.Redact("a "+form+" b", []string{"", "to", secret}); got != "a [secret] b" {
			t.Errorf("%s is %s", form, got)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("answer with "+secret+" in it", secret)
	f.Add(strconv.Quote(secret)+url.QueryEscape(secret), secret)
	f.Fuzz(func(t *testing.T, text, s string) {
		got := chatapi.Redact(text, []string{s})
		// The replacement of a secret may contain a short secret.
		if len(s) > len("[secret]") && strings.Contains(got, s) {
			t.Errorf("%q holds %q", got, s)
		}
		if len(got) > 404 {
			t.Errorf("%d bytes", len(got))
		}
	})
}

// The same with HTTP/2, whose transport resends requests in other cases.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("HTTP/%d", r.ProtoMajor)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		if requests.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c, err := chatapi.New("Chat", "https://chat.example.com", channel.Options{Base: server.URL, Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), call()); err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(t.Context(), call())
	if e := failure(t, err); e.Outcome != channel.Ambiguous || requests.Load() != 2 {
		t.Errorf("%v after %d requests", e, requests.Load())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Do(ended, call())
	if e := failure(t, err); e.Outcome != channel.NotSent || requests.Load() != 2 {
		t.Errorf("%v after %d requests", e, requests.Load())
	}
}
