package webhook

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/schemas"
)

// fixed is the endpoints of a test, kept in memory.
type fixed struct {
	mu  sync.Mutex
	all map[schemas.EndpointID]schemas.Endpoint
	err error
}

func (f *fixed) Get(_ context.Context, _ schemas.AccountID, id schemas.EndpointID) (schemas.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.all[id]
	if f.err == nil && !ok {
		return e, schemas.Errorf(schemas.NotFound, "there is no endpoint %q", id)
	}
	return e, f.err
}

func (f *fixed) Disable(_ context.Context, _ schemas.AccountID, id schemas.EndpointID, reason string) error {
	return f.change(id, func(e *schemas.Endpoint) { e.Disabled, e.Reason = true, reason })
}

func (f *fixed) Failing(_ context.Context, _ schemas.AccountID, id schemas.EndpointID, failing bool, now time.Time) error {
	return f.change(id, func(e *schemas.Endpoint) {
		switch {
		case !failing:
			e.FailingSince = time.Time{}
		case e.FailingSince.IsZero():
			e.FailingSince = now
		}
	})
}

func (f *fixed) change(id schemas.EndpointID, to func(*schemas.Endpoint)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.all[id]
	to(&e)
	f.all[id] = e
	return f.err
}

func (f *fixed) get(id schemas.EndpointID) schemas.Endpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[id]
}

// endpointTo is an endpoint wh_1 with a secret of its own.
func endpointTo(url string) *fixed {
	e := schemas.Endpoint{ID: "wh_1", Account: "acct_1", URL: url, Secrets: []schemas.EndpointSecret{{Key: NewSecret()}}}
	return &fixed{all: map[schemas.EndpointID]schemas.Endpoint{e.ID: e}}
}

func message() schemas.Delivery {
	return schemas.Delivery{ID: "msg_1", Account: "acct_1", Channel: schemas.WebhookChannel, Endpoint: "wh_1", Body: body, Created: time.Now()}
}

// development is the policy under which tests reach receivers on this host.
func development() Policy { return Policy{AllowLoopback: true, AllowHTTP: true} }

// receive starts a receiver and a sender to it.
func receive(t *testing.T, h http.HandlerFunc) (*Sender, *fixed) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	f := endpointTo(server.URL + "/hook?key=1")
	s := &Sender{Endpoints: f, Policy: development()}
	t.Cleanup(s.Close)
	return s, f
}

func TestAReceiverGetsWhatItCanVerify(t *testing.T) {
	t.Parallel()
	type got struct {
		header http.Header
		body   []byte
		uri    string
	}
	came := make(chan got, 1)
	s, f := receive(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		came <- got{r.Header, b, r.Method + " " + r.RequestURI}
	})
	e := f.get("wh_1")
	e.Legacy = true
	f.all["wh_1"] = e
	try, v := s.Send(t.Context(), message())
	if v.Kind != delivery.Delivered || try.Status != http.StatusOK || try.Error != "" || try.Time.IsZero() {
		t.Fatalf("got %+v, %+v", try, v)
	}
	g := <-came
	library, err := standardwebhooks.NewWebhook(e.Secrets[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := library.Verify(g.body, g.header); err != nil {
		t.Errorf("the public library: %v", err)
	}
	h := hmac.New(sha256.New, []byte(e.Secrets[0].Key))
	h.Write([]byte(body))
	for name, want := range map[string]string{
		HeaderID: "msg_1", "Content-Type": "application/json", "User-Agent": userAgent, HeaderLegacy: "sha256=" + hex.EncodeToString(h.Sum(nil)),
		"Accept-Encoding": "",
	} {
		if have := g.header.Get(name); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
	if string(g.body) != body || g.uri != "POST /hook?key=1" {
		t.Errorf("got %s with %q", g.uri, g.body)
	}
	e.ContentType = schemas.WebhookCloudEvents
	f.all["wh_1"] = e
	s.Send(t.Context(), message())
	if g = <-came; g.header.Get("Content-Type") != schemas.WebhookCloudEvents || string(g.body) != body {
		t.Errorf("asked for as a CloudEvent it is %q with %q", g.header.Get("Content-Type"), g.body)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	answer := func(status int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, "because")
		}
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		kind   delivery.Kind
		after  time.Duration
	}{
		{"202", answer(202), delivery.Delivered, 0},
		{"299", answer(299), delivery.Delivered, 0},
		{"301", answer(301, "Location", "https://example.com"), delivery.Failed, 0},
		{"400", answer(400), delivery.Failed, 0},
		{"404", answer(404), delivery.Failed, 0},
		{"410", answer(410), delivery.Dropped, 0},
		{"429 with seconds", answer(429, "Retry-After", "120"), delivery.Failed, 2 * time.Minute},
		{"429 with nonsense", answer(429, "Retry-After", "later"), delivery.Failed, 0},
		{"500", answer(500), delivery.Failed, 0},
		{"503", answer(503, "Retry-After", "7"), delivery.Failed, 7 * time.Second},
		{"400 that ends the tries", answer(400, "webhook-delivery", "Abort-Message"), delivery.Dropped, 0},
		{"500 with another word", answer(500, "webhook-delivery", "later"), delivery.Failed, 0},
	} {
		s, f := receive(t, c.answer)
		try, v := s.Send(t.Context(), message())
		if v.Kind != c.kind || v.After != c.after || try.Response != "because" || try.Error != "" {
			t.Errorf("%s: got %+v, %+v", c.name, try, v)
		}
		e := f.get("wh_1")
		if e.Disabled != (try.Status == http.StatusGone) || e.FailingSince.IsZero() != (c.kind != delivery.Failed) {
			t.Errorf("%s: the endpoint is then %+v", c.name, e)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "30": 30 * time.Second, " 30 ": 30 * time.Second, "-5": 0, "1.5": 0,
		"99999999999999": 365 * 24 * time.Hour, "99999999999999999999": 0,
		"Fri, 20 Nov 2026 12:01:00 GMT": time.Minute, "Fri, 20 Nov 2026 11:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": 365 * 24 * time.Hour,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("30")
	f.Add("Fri, 20 Nov 2026 12:01:00 GMT")
	f.Fuzz(func(t *testing.T, s string) {
		if d := retryAfter(s, time.Unix(1795176000, 0)); d < 0 || d > 366*24*time.Hour {
			t.Fatalf("%q is %s", s, d)
		}
	})
}

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer inside.Close()
	for _, to := range []string{inside.URL, "http://169.254.169.254/latest/meta-data/"} {
		s, _ := receive(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) })
		if try, v := s.Send(t.Context(), message()); v.Kind != delivery.Failed || try.Status != http.StatusTemporaryRedirect || followed.Load() {
			t.Errorf("to %s: %+v, %+v, followed %t", to, try, v, followed.Load())
		}
	}
}

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestWhatLeadsInsideIsRefused(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer server.Close()
	port := netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	production := Policy{AllowHTTP: true, Ports: []uint16{port}}
	at := strings.TrimPrefix(server.URL, "http://127.0.0.1")
	for _, c := range []struct{ url, want string }{
		{"http://127.0.0.1" + at, "a loopback address"},
		{"http://[::ffff:127.0.0.1]" + at, "a loopback address"},
		{"http://[::1]" + at, "a loopback address"},
		{"http://localhost" + at, "a loopback address"},
		{"http://0.0.0.0" + at, "an unspecified address"},
		{"http://169.254.169.254/latest/meta-data/", "a link-local address"},
		{"http://rebind.example" + at, "a loopback address"},
	} {
		s := &Sender{Endpoints: endpointTo(c.url), Policy: production, Timeout: 10 * time.Second}
		if strings.Contains(c.url, "rebind") {
			s.resolver = rebinding(t)
		}
		try, v := s.Send(t.Context(), message())
		if v.Kind != delivery.Failed || try.Status != 0 || !strings.Contains(try.Error, c.want) || reached.Load() {
			t.Errorf("%s: %+v, %+v, reached %t", c.url, try, v, reached.Load())
		}
		s.Close()
	}
	for url, want := range map[string]string{"http://1.1.1.1/": "not https", "ftp://1.1.1.1/": "neither https nor http",
		"https://1.1.1.1:22/": "port 22"} {
		s := &Sender{Endpoints: endpointTo(url)}
		if try, v := s.Send(t.Context(), message()); v.Kind != delivery.Failed || !strings.Contains(try.Error, want) {
			t.Errorf("%s: %+v, %+v", url, try, v)
		}
	}
}

// rebinding is a resolver of names that are public when they are first looked at, and then this host. A
// check of the name alone would see the first.
func rebinding(t *testing.T) *net.Resolver {
	t.Helper()
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dns.Close() })
	go func() {
		for {
			b := make([]byte, 512)
			n, from, err := dns.ReadFrom(b)
			if err != nil {
				return
			}
			dns.WriteTo(answerDNS(b[:n]), from)
		}
	}()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", dns.LocalAddr().String())
	}}
	return r
}

// answerDNS answers questions for addresses of version 4 with 127.0.0.1, and others with nothing.
func answerDNS(q []byte) []byte {
	end := 12
	for end < len(q) && q[end] != 0 {
		end += 1 + int(q[end])
	}
	end += 5 // the root, type and class
	a := bytes.Clone(q[:end])
	a[2], a[3] = 0x81, 0x80
	binary.BigEndian.PutUint16(a[8:], 0)
	binary.BigEndian.PutUint16(a[10:], 0)
	if binary.BigEndian.Uint16(q[end-4:]) != 1 {
		return a
	}
	binary.BigEndian.PutUint16(a[6:], 1)
	return append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
}

func TestALargeAnswerIsNotRead(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 8<<20))
	z.Close()
	var wrote atomic.Int64
	s, _ := receive(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusInternalServerError)
		for range 1000 {
			n, err := w.Write(bomb.Bytes())
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	})
	try, v := s.Send(t.Context(), message())
	if v.Kind != delivery.Failed || len(try.Response) > 3*keepAtMost || !strings.HasPrefix(try.Response, "\x1f") {
		t.Errorf("%+v with %d bytes kept", v, len(try.Response))
	}
}

func TestASlowBodyDoesNotChangeTheAnswer(t *testing.T) {
	t.Parallel()
	s, _ := receive(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK)
		io.WriteString(w, "soon")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s.Timeout = 5 * time.Second // it is waited for to its end, and the beginning must come before
	if try, v := s.Send(t.Context(), message()); v.Kind != delivery.Delivered || try.Response != "soon" {
		t.Errorf("got %+v, %+v", try, v)
	}
}

// silent takes a delivery and never answers. It sees the end of the connection only when it has read all.
func silent(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestWhoDoesNotAnswerIsWaitedForOnlySoLong(t *testing.T) {
	t.Parallel()
	s, f := receive(t, silent)
	s.Timeout = 100 * time.Millisecond
	try, v := s.Send(t.Context(), message())
	if v.Kind != delivery.Failed || !strings.Contains(try.Error, "no answer in time") || f.get("wh_1").FailingSince.IsZero() {
		t.Errorf("got %+v, %+v", try, v)
	}
	s2, _ := receive(t, nil)
	s2.Endpoints = endpointTo("http://127.0.0.1:1/?key=secret")
	try, v = s2.Send(t.Context(), message())
	if v.Kind != delivery.Failed || !strings.Contains(try.Error, "refused") || strings.Contains(try.Error, "key") {
		t.Errorf("nobody listens: %+v, %+v", try, v)
	}
}

func TestHTTP2AndCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	known := x509.NewCertPool()
	known.AddCert(server.Certificate())
	s := &Sender{Endpoints: endpointTo(server.URL), Policy: development(), tls: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: known}}
	defer s.Close()
	if try, v := s.Send(t.Context(), message()); v.Kind != delivery.Delivered || try.Response != "HTTP/2.0" {
		t.Errorf("got %+v, %+v; want HTTP/2", try, v)
	}
	stranger := &Sender{Endpoints: endpointTo(server.URL), Policy: development()}
	defer stranger.Close()
	if try, v := stranger.Send(t.Context(), message()); v.Kind != delivery.Failed || !strings.Contains(try.Error, "certificate") {
		t.Errorf("a certificate that nobody knows: %+v, %+v", try, v)
	}
}

func TestEndpointsThatAreNotThereAreNotTried(t *testing.T) {
	t.Parallel()
	s, f := receive(t, func(http.ResponseWriter, *http.Request) { t.Error("it was tried") })
	e := f.get("wh_1")
	for _, c := range []struct {
		name   string
		change func()
		kind   delivery.Kind
	}{
		{"disabled", func() { f.change("wh_1", func(e *schemas.Endpoint) { e.Disabled, e.Reason = true, "gone" }) }, delivery.Stopped},
		{"removed", func() { delete(f.all, "wh_1") }, delivery.Dropped},
		{"not known yet", func() { f.err = schemas.Errorf(schemas.Unavailable, "the records are away") }, delivery.Busy},
	} {
		f.all["wh_1"], f.err = e, nil
		c.change()
		if try, v := s.Send(t.Context(), message()); v.Kind != c.kind || try.Status != 0 {
			t.Errorf("%s: %+v, %+v", c.name, try, v)
		}
	}
}

func TestOnlyFailuresForFiveDaysDisable(t *testing.T) {
	t.Parallel()
	status := http.StatusInternalServerError
	s, f := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	failingFor := func(d time.Duration) {
		f.change("wh_1", func(e *schemas.Endpoint) { e.FailingSince = time.Now().Add(-d) })
		s.Send(t.Context(), message())
	}
	if failingFor(DisableAfter - time.Hour); f.get("wh_1").Disabled {
		t.Error("disabled before its time")
	}
	status = http.StatusOK
	if failingFor(DisableAfter + time.Hour); f.get("wh_1").Disabled || !f.get("wh_1").FailingSince.IsZero() {
		t.Errorf("a success left it %+v", f.get("wh_1"))
	}
	status = http.StatusInternalServerError
	if failingFor(DisableAfter + time.Hour); !f.get("wh_1").Disabled || !strings.Contains(f.get("wh_1").Reason, "since") {
		t.Errorf("after five days: %+v", f.get("wh_1"))
	}
}

func TestATryThatIsBrokenOffSaysNothingAboutTheEndpoint(t *testing.T) {
	t.Parallel()
	came := make(chan struct{}, 1)
	s, f := receive(t, func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		silent(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	s.Send(ctx, message())
	if !f.get("wh_1").FailingSince.IsZero() {
		t.Error("the endpoint is blamed for our end")
	}
}
