package egress

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
)

// gated is a gate over a world.
type gated struct {
	t   *testing.T
	w   *world
	g   *Gate
	at  string
	key ed25519.PrivateKey
}

func newGate(t *testing.T) *gated {
	t.Helper()
	w := newWorld(t)
	w.Web("web.example", "93.184.216.34", true, says("hello"))
	w.Web("web.example", "93.184.216.34", false, says("hello"))
	w.Name("evil.example", "93.184.216.99")
	w.Name("inner.example", "10.0.0.1")
	w.Echo("93.184.216.36:22")
	w.Name("git.example", "93.184.216.36")
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{
		Keys: []ed25519.PublicKey{public}, Options: Options{Resolver: w, Dial: w.Dial, Limits: Limits{Connections: 8}},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &gated{t: t, w: w, g: g, at: l.Addr().String(), key: private}
}

// pass is one for a sandbox on this host.
func (g *gated) pass(change func(*Pass)) string {
	g.t.Helper()
	p := Pass{
		Sandbox: "box", Account: "acct_1", From: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Until: time.Now().Add(time.Hour).Unix(),
		Network: restricted("web.example", "git.example:22", "inner.example"),
	}
	if change != nil {
		change(&p)
	}
	text, err := p.Sign(g.key)
	if err != nil {
		g.t.Fatal(err)
	}
	return text
}

// get asks for a URL by the proxy, with a pass, and returns what comes or why nothing does.
func (g *gated) get(pass, target string) string {
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword(PassUser, pass), Host: g.at}),
		TLSClientConfig: &tls.Config{RootCAs: g.w.Certs, ServerName: "example.com"}, // httptest's certificate
	}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get(target)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// connect opens a tunnel and returns it with the status of the answer.
func (g *gated) connect(auth, target string) (net.Conn, string) {
	g.t.Helper()
	c, err := net.Dial("tcp", g.at)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n%s\r\n", target, auth)
	head := make([]byte, 0, 256)
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		if _, err := c.Read(b); err != nil {
			return c, string(head)
		}
		head = append(head, b...)
	}
	return c, string(head)
}

func shows(pass string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(PassUser+":"+pass)) + "\r\n"
}

// TestGate: a sandbox reaches what its pass says and nothing else, whatever others may.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestGate(t *testing.T) {
	g := newGate(t)
	mine := g.pass(nil)
	wide := g.pass(func(p *Pass) { p.Sandbox, p.Network = "other", restricted("evil.example", "other.example") })
	for _, try := range []struct{ pass, target, want string }{
		{mine, "http://web.example/", "200 hello to web.example"},
		{mine, "http://evil.example/", "403 sandjet: network: host evil.example is not allowed by this sandbox's rules"},
		{wide, "http://web.example/", "403 sandjet: network: host web.example is not allowed"},
		{mine, "http://inner.example/", "403 sandjet: network: host inner.example leads to a place that is not open"},
		{mine, "http://93.184.216.34/", "403"}, {mine, "http://169.254.169.254/latest", "403"}, {mine, "http://10.96.0.1/", "403"},
		{mine, "http://127.0.0.1/", "403"}, {mine, "http://[::1]/", "403"}, {mine, "http://2130706433/", "403"},
		{mine, "https://evil.example/", "Forbidden"}, {mine, "https://web.example:8443/", "Forbidden"},
	} {
		if got := g.get(try.pass, try.target); !strings.Contains(got, try.want) {
			t.Errorf("%s: %q, want %q", try.target, got, try.want)
		}
	}
	for _, name := range g.w.Lookups() {
		if name == "evil.example." || name == "other.example." {
			t.Errorf("%s was looked up", name)
		}
	}
	c, said := g.connect(shows(mine), "git.example:22")
	if !strings.Contains(said, "200") {
		t.Fatalf("%q", said)
	}
	_, _ = io.WriteString(c, "ping")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "ping" || err != nil {
		t.Errorf("through the tunnel: %q, %v", got, err)
	}
	// TLS for another name inside of a tunnel for an allowed one.
	c, said = g.connect(shows(mine), "web.example:443")
	if !strings.Contains(said, "200") {
		t.Fatalf("%q", said)
	}
	if err := tls.Client(c, &tls.Config{ServerName: "evil.example", RootCAs: g.w.Certs}).HandshakeContext(t.Context()); err == nil {
		t.Error("TLS with evil.example in a tunnel for web.example")
	}
}

// TestPassesThatAreNotGood: a client that shows no pass, another's, an old or a changed one gets nothing but the reason.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestPassesThatAreNotGood(t *testing.T) {
	g := newGate(t)
	_, strange, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := g.pass(nil)
	said, signature, _ := strings.Cut(good, ".")
	mine := g.key
	g.key = strange
	forged := g.pass(nil)
	g.key = mine
	wider := encode([]byte(strings.Replace(string(must(decode(said))), "web.example", "evi1.example", 1))) + "." + signature
	for name, try := range map[string]struct{ auth, want string }{
		"none":                  {"", "407"},
		"two":                   {shows(good) + shows(good), "407"},
		"another scheme":        {"Proxy-Authorization: Bearer " + good + "\r\n", "407"},
		"another user":          {"Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+good)) + "\r\n", "407"},
		"signed by another key": {shows(forged), "407"},
		"changed":               {shows(wider), "407"},
		"without signature":     {shows(said + "."), "407"},
		"of another sandbox":    {shows(g.pass(func(p *Pass) { p.From = []netip.Addr{netip.MustParseAddr("10.1.2.3")} })), "407"},
		"ended":                 {shows(g.pass(func(p *Pass) { p.Until = time.Now().Unix() })), "407"},
		"of a private network":  {shows(g.pass(func(p *Pass) { p.Network.AllowCIDRs = []string{"10.0.0.0/8"} })), "403"},
		"good":                  {shows(good), "200"},
	} {
		_, got := g.connect(try.auth, "git.example:22")
		if !strings.HasPrefix(got, "HTTP/1.1 "+try.want) {
			t.Errorf("%s: %q, want %s", name, got, try.want)
		}
	}
	// A later request on a connection shows another pass, or none.
	for name, auth := range map[string]string{"none": "", "another": shows(g.pass(func(p *Pass) { p.Sandbox = "other" }))} {
		c, err := net.Dial("tcp", g.at)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		request := "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n"
		_, _ = io.WriteString(c, request+shows(good)+"\r\n"+request+auth+"\r\n")
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), "HTTP/1.1 200") || !strings.Contains(string(got), "HTTP/1.1 407") {
			t.Errorf("%s: %q", name, got)
		}
		_ = c.Close()
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestConnectionsEndWithTheirPass: what was opened with a pass does not outlive it.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestConnectionsEndWithTheirPass(t *testing.T) {
	g := newGate(t)
	c, said := g.connect(shows(g.pass(func(p *Pass) { p.Until = time.Now().Add(2 * time.Second).Unix() })), "git.example:22")
	if !strings.Contains(said, "200") {
		t.Fatalf("%q", said)
	}
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(c) // until its end, twenty seconds at most
	if string(got) != "ping" {
		t.Errorf("%q", got)
	}
	if _, err := c.Write([]byte("x")); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the connection has outlived its pass")
	}
}

// TestGateIsBounded: one sandbox has so many connections, one address so many without a pass, and other connections continue.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestGateIsBounded(t *testing.T) {
	g := newGate(t)
	var open []net.Conn
	refused := 0
	for range 12 { // Connections is 8
		c, said := g.connect(shows(g.pass(nil)), "git.example:22")
		if strings.Contains(said, "200") {
			open = append(open, c)
		} else {
			refused++
		}
	}
	if len(open) != 4 || refused != 8 { // each has two ends
		t.Errorf("%d connections, %d refused: want 4 and 8", len(open), refused)
	}
	if _, said := g.connect(shows(g.pass(func(p *Pass) { p.Sandbox = "other" })), "git.example:22"); !strings.Contains(said, "200") {
		t.Errorf("another sandbox: %q", said)
	}
	for _, c := range open {
		_ = c.Close()
	}
	var closed atomic.Int64
	var silent sync.WaitGroup
	t.Cleanup(silent.Wait)
	for range 2 * mostStrangers {
		c, err := net.Dial("tcp", g.at)
		if errors.Is(err, syscall.ECONNRESET) { // refused before the dialer has looked
			closed.Add(1)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		silent.Go(func() {
			_, _ = c.Read(make([]byte, 1))
			closed.Add(1)
		})
	}
	testwait.Eventually(t, "the end of the connections that are too many", func() bool { return closed.Load() >= mostStrangers })
	if n := closed.Load(); n != mostStrangers {
		t.Errorf("%d of %d silent connections were closed: want %d", n, 2*mostStrangers, mostStrangers)
	}
}

// TestPassesAreBounded: what is too long to be sent with each request is refused where it is made.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestPassesAreBounded(t *testing.T) {
	g := newGate(t)
	p := Pass{Sandbox: "box", From: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Network: schemas.Network{Mode: schemas.Restricted}}
	for range schemas.MaxNetworkRules {
		p.Network.AllowDomains = append(p.Network.AllowDomains, strings.Repeat("a", 60)+".example.com")
	}
	if _, err := p.Sign(g.key); schemas.CodeOf(err) != schemas.Unsupported {
		t.Error(err)
	}
	if _, err := ParseKey("none"); schemas.CodeOf(err) != schemas.Invalid {
		t.Error(err)
	}
	if key, err := ParseKey(KeyText(g.g.Keys[0])); err != nil || !key.Equal(g.g.Keys[0]) {
		t.Error(err)
	}
}

// FuzzReadPass: whatever is shown is read as what was signed, or denied.
//
//guarantee:a-box-reaches-what-its-rules-name
func FuzzReadPass(f *testing.F) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	good := Pass{Sandbox: "box", From: []netip.Addr{netip.MustParseAddr("10.1.2.3")}, Until: 1 << 40, Network: restricted("web.example")}
	text, err := good.Sign(private)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("a.b")
	f.Add(strings.Replace(text, ".", "..", 1))
	f.Fuzz(func(t *testing.T, shown string) {
		p, err := ReadPass(shown, []ed25519.PublicKey{public}, time.Unix(1<<30, 0))
		if (err == nil) != (shown == text) || err != nil && schemas.CodeOf(err) != schemas.Denied || err == nil && p.Sandbox != "box" {
			t.Errorf("%q: %+v, %v", shown, p, err)
		}
	})
}

// FuzzReadAuthorization: any first bytes of a connection are read without harm, and what was read is what was sent.
//
//guarantee:a-box-reaches-what-its-rules-name
func FuzzReadAuthorization(f *testing.F) {
	f.Add([]byte("CONNECT web.example:443 HTTP/1.1\r\nHost: web.example\r\nProxy-Authorization: Basic eA==\r\n\r\nrest"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		_, read, err := readAuthorization(bytes.NewReader(sent), 4096)
		if err == nil && !bytes.HasPrefix(sent, read) {
			t.Errorf("%q was read of %q", read, sent)
		}
	})
}
