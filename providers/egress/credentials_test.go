package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const theSecret = "sk-live-0123456789abcdef"

// bank is a world with a server that wants a key, and a sandbox whose key is bound to it.
type bank struct {
	*sandbox

	w     *world
	creds *Credentials
	env   map[string]string // as the sandbox sees it
	trust *x509.CertPool

	mu   sync.Mutex
	keys []string // that the server was shown
}

func (b *bank) shown() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.keys)
}

func newBank(t *testing.T) *bank {
	w := newWorld(t)
	b := &bank{w: w}
	serve := http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		b.mu.Lock()
		b.keys = append(b.keys, req.Header.Get("Authorization"))
		b.mu.Unlock()
		for _, v := range req.Header["Authorization"] {
			rw.Header().Add("X-Echo", v)
		}
		rw.Header().Set("Trailer", "X-End")
		_, _ = fmt.Fprintf(rw, "%s %s: ", req.Proto, req.Host)
		_ = http.NewResponseController(rw).Flush() // so that it has trailers
		_ = req.Header.Write(rw)
		_, _ = io.Copy(rw, req.Body)
		rw.Header().Set("X-End", req.Header.Get("Authorization"))
	})
	s := httptest.NewUnstartedServer(serve)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients break off on purpose
	s.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t, "api.example", "other.example", "plain.example")}}
	s.StartTLS()
	t.Cleanup(s.Close)
	w.Certs.AddCert(mustParse(t, s.TLS.Certificates[0].Certificate[0]))
	for i, name := range []string{"api.example", "other.example", "plain.example", "wrong.example"} {
		addr := fmt.Sprintf("93.184.216.%d", 40+i)
		w.Name(name, addr)
		w.Serve(addr+":443", s.Listener.Addr().String())
	}
	w.Web("api.example", "93.184.216.40", false, serve)
	n := restricted("api.example", "other.example", "plain.example", "wrong.example")
	n.Credentials = map[string][]string{"KEY": {"api.example", "wrong.example"}, "OTHER": {"other.example"}}
	r := rules(t, n)
	var err error
	if b.creds, err = NewCredentials(r); err != nil {
		t.Fatal(err)
	}
	b.env, err = b.creds.Take(map[string]string{"KEY": theSecret, "OTHER": "the other secret", "CI": "1"})
	if err != nil {
		t.Fatal(err)
	}
	b.trust = x509.NewCertPool()
	b.trust.AppendCertsFromPEM(b.creds.Certificate())
	b.sandbox = w.enterWithCredentials(r, b.creds, Limits{})
	return b
}

// selfSigned is the certificate of a server outside.
func selfSigned(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	a, err := newAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	template, err := certificate("")
	if err != nil {
		t.Fatal(err)
	}
	template.DNSNames = names
	der, err := x509.CreateCertificate(nil, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

func mustParse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// client is a program in the sandbox that trusts the given authorities.
func (b *bank) client(alpn ...string) *http.Client {
	tr := &http.Transport{
		ForceAttemptHTTP2: slices.Contains(alpn, "h2"), TLSClientConfig: &tls.Config{RootCAs: b.trust, NextProtos: alpn},
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			host, port, _ := net.SplitHostPort(to)
			var n int
			_, _ = fmt.Sscan(port, &n)
			return b.reach(host, n), nil
		},
	}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (b *bank) do(c *http.Client, url string, change func(*http.Request)) (*http.Response, string, error) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, url, strings.NewReader("body "+b.env["KEY"]))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.env["KEY"])
	if change != nil {
		change(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(body), nil
}

// TestSecretsReachTheirHosts: the secret is in the headers of requests to its host, and in nothing that the sandbox sees.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestSecretsReachTheirHosts(t *testing.T) {
	for _, alpn := range []string{"http/1.1", "h2"} {
		t.Run(alpn, func(t *testing.T) {
			b := newBank(t)
			if b.env["KEY"] == theSecret || !strings.HasPrefix(b.env["KEY"], "sjsec_") || b.env["CI"] != "1" {
				t.Fatalf("the environment is %v", b.env)
			}
			c := b.client(alpn)
			resp, body, err := b.do(c, "https://api.example/x?a;b=%zz", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
			if err != nil {
				t.Fatal(err)
			}
			if got := b.shown(); !slices.Equal(got, []string{"Bearer " + theSecret}) {
				t.Errorf("the server was shown %q", got)
			}
			if want := map[string]int{"http/1.1": 1, "h2": 2}[alpn]; resp.ProtoMajor != want {
				t.Errorf("spoke %s", resp.Proto)
			}
			masked := "Bearer " + strings.Repeat("*", len(theSecret))
			if resp.Header.Get("X-Echo") != masked || resp.Trailer.Get("X-End") != masked ||
				!strings.Contains(body, "Authorization: "+masked) || strings.Contains(body, "Accept-Encoding") {
				t.Errorf("%v %v: %s", resp.Header, resp.Trailer, body)
			}
			if strings.Contains(body+fmt.Sprint(resp.Header, resp.Trailer), theSecret) {
				t.Errorf("the secret came back: %s", body)
			}
			if !strings.Contains(body, "body "+b.env["KEY"]) {
				t.Errorf("what stands for the secret was replaced in the body: %s", body)
			}
			// Basic authentication hides it in its own encoding.
			_, body, err = b.do(c, "https://api.example/", func(r *http.Request) { r.SetBasicAuth("me", b.env["KEY"]) })
			basic := base64.StdEncoding.EncodeToString([]byte("me:" + theSecret))
			if got := b.shown(); err != nil || got[len(got)-1] != "Basic "+basic || strings.Contains(body, basic) {
				t.Errorf("%v: the server was shown %q and answered %s", err, got, body)
			}
		})
	}
}

// TestSecretsReachNoOtherProcess: another bound host, a host without secrets, HTTP without TLS.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestSecretsReachNoOtherProcess(t *testing.T) {
	b := newBank(t)
	b.trust.AddCert(mustParse(t, selfSigned(t, "x.example").Certificate[0]))
	c := b.client("http/1.1")
	for _, url := range []string{"https://other.example/", "http://api.example/"} {
		if _, body, err := b.do(c, url, nil); err != nil || !strings.Contains(body, "Authorization: Bearer "+b.env["KEY"]) {
			t.Errorf("%s: %v: %s", url, err, body)
		}
	}
	// TLS with a host without secrets is not ended here: its certificate is its own.
	b.trust = b.w.Certs
	if _, body, err := b.do(b.client("h2"), "https://plain.example/", nil); err != nil || !strings.Contains(body, b.env["KEY"]) {
		t.Errorf("a host without secrets: %v: %s", err, body)
	}
	for _, key := range b.shown() {
		if key != "Bearer "+b.env["KEY"] {
			t.Errorf("the server was shown %q", key)
		}
	}
	if list, _ := b.relay.Since(0); len(list) != 0 {
		t.Errorf("refused: %+v", list)
	}
}

// TestSecretsAreForTheServerThatIsMeant: not for one whose certificate is not good, nor by the wrong name.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestSecretsAreForTheServerThatIsMeant(t *testing.T) {
	b := newBank(t)
	resp, body, err := b.do(b.client("http/1.1"), "https://wrong.example/", nil)
	if err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "the certificate of wrong.example:443 is not valid") {
		t.Errorf("a wrong certificate: %v %s", err, body)
	}
	for _, alpn := range []string{"http/1.1", "h2"} {
		for _, host := range []string{"other.example", "plain.example", "api.example:8443", "169.254.169.254"} {
			resp, body, err = b.do(b.client(alpn), "https://api.example/", func(r *http.Request) { r.Host = host })
			if err != nil || resp.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("%s, a request for %s: %v %s", alpn, host, err, body)
			}
		}
	}
	resp, _, err = b.do(b.client("http/1.1"), "https://api.example/", func(r *http.Request) { r.Method = http.MethodTrace })
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("TRACE: %v", err)
	}
	for _, name := range []string{"other.example", ""} {
		insecure := &tls.Config{ServerName: name, InsecureSkipVerify: true}
		if err := tls.Client(b.reach("api.example", 443), insecure).Handshake(); err == nil {
			t.Errorf("a hello for %q was accepted", name)
		}
	}
	b.saw(RuleServerName)
	// A program that does not trust the sandbox's authority gets an error that names the file it has to trust.
	b.trust = b.w.Certs
	if _, _, err := b.do(b.client("http/1.1"), "https://api.example/", nil); err == nil {
		t.Error("a program that does not trust the relay spoke to it")
	}
	b.saw(RuleTLS)
	if got := b.shown(); len(got) != 0 {
		t.Errorf("the server was shown %q", got)
	}
}

// TestSecretsByProxy: the same through CONNECT.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestSecretsByProxy(t *testing.T) {
	b := newBank(t)
	c, err := net.Dial("tcp", b.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")
	const established = "HTTP/1.1 200 Connection established\r\n\r\n"
	if _, err := io.ReadFull(c, make([]byte, len(established))); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(c, &tls.Config{ServerName: "api.example", RootCAs: b.trust})
	const request = "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nAuthorization: %s\r\n\r\n"
	if _, err := fmt.Fprintf(secure, request, b.env["KEY"]); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(secure); err != nil || !strings.Contains(string(answer), "200 OK") {
		t.Errorf("%v: %s", err, answer)
	}
	if got := b.shown(); !slices.Equal(got, []string{theSecret}) {
		t.Errorf("the server was shown %q", got)
	}
}

// TestNewValuesHoldAtOnce: a secret that was changed is what the next request has.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestNewValuesHoldAtOnce(t *testing.T) {
	b := newBank(t)
	c := b.client("h2")
	env, err := b.creds.Take(map[string]string{"KEY": "sk-live-the-next-one", "OTHER": "the other secret"})
	if err != nil || env["KEY"] != b.env["KEY"] {
		t.Fatalf("%v, %v: what stands for a secret stays the same", env, err)
	}
	if _, _, err := b.do(c, "https://api.example/", nil); err != nil {
		t.Fatal(err)
	}
	if got := b.shown(); !slices.Equal(got, []string{"Bearer sk-live-the-next-one"}) {
		t.Errorf("the server was shown %q", got)
	}
}

//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestValuesThatCannotBeBound(t *testing.T) {
	b := newBank(t)
	for _, value := range []string{"", "short", "two\r\nX-Lines: 1", "a NUL \x00 in it", " spaces around ", "snow ☃ falls",
		strings.Repeat("x", 9<<10)} {
		_, err := b.creds.Take(map[string]string{"KEY": value, "OTHER": "the other secret"})
		if schemas.CodeOf(err) != schemas.Invalid || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
	_, err := b.creds.Take(map[string]string{"KEY": theSecret})
	if schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), "OTHER") {
		t.Errorf("a variable that is missing: %v", err)
	}
	for _, hosts := range [][]string{nil, {"else.example"}, {"*.example"}, {"10.0.0.1"}, {"api.example:443"}, {"git.example"}} {
		n := restricted("api.example", "git.example:22")
		n.Credentials = map[string][]string{"KEY": hosts}
		if _, err := Compile(n, nil); schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), "credentials.KEY") {
			t.Errorf("bound to %q: %v", hosts, err)
		}
	}
	if _, err := Compile(schemas.Network{Mode: schemas.AllowAll, Credentials: map[string][]string{"KEY": {"api.example"}}}, nil); err == nil {
		t.Error("bound where everything is allowed")
	}
}

// TestTheAuthorityIsForItsHostsOnly: its key does not let its owner impersonate another host.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestTheAuthorityIsForItsHostsOnly(t *testing.T) {
	b := newBank(t)
	for host, good := range map[string]bool{"api.example": true, "other.example": true, "plain.example": false, "evil.example": false} {
		leaf, err := b.creds.authority.leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		_, err = mustParse(t, leaf.Certificate[0]).Verify(x509.VerifyOptions{Roots: b.trust, DNSName: host})
		if (err == nil) != good {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// FuzzMasked: a body that comes in any pieces is masked as one that comes whole, and has no secret in it.
// TestDerivedCredentials: who has the seed is the same authority, with the same texts.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestDerivedCredentials(t *testing.T) {
	n := restricted("api.example")
	n.Credentials = map[string][]string{"KEY": {"api.example"}}
	r := rules(t, n)
	seed := bytes.Repeat([]byte{7}, 32)
	first, err1 := DeriveCredentials(r, seed, nil)
	if err1 != nil {
		t.Fatal(err1)
	}
	second, err2 := DeriveCredentials(r, seed, first.Authority())
	other, err3 := DeriveCredentials(r, bytes.Repeat([]byte{8}, 32), nil)
	if err := errors.Join(err2, err3); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KEY": theSecret, "CI": "1"}
	mark := first.Hide(env)["KEY"]
	if mark == theSecret || mark != second.Hide(env)["KEY"] || mark == other.Hide(env)["KEY"] || env["KEY"] != theSecret {
		t.Errorf("%q, %q, %q", mark, second.Hide(env)["KEY"], other.Hide(env)["KEY"])
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(first.Certificate())
	for name, c := range map[string]*Credentials{"the first": first, "another process": second, "another seed": other} {
		leaf, err := c.authority.leaf("api.example")
		if err != nil {
			t.Fatal(err)
		}
		_, err = mustParse(t, leaf.Certificate[0]).Verify(x509.VerifyOptions{Roots: trust, DNSName: "api.example"})
		if (err == nil) != (c != other) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for what, certificate := range map[string][]byte{"another authority's": other.Authority(), "none": []byte("none")} {
		if _, err := DeriveCredentials(r, seed, certificate); err == nil {
			t.Errorf("%s certificate was taken", what)
		}
	}
	if c, err := DeriveCredentials(rules(t, restricted("api.example")), seed, nil); c != nil || err != nil {
		t.Errorf("without secrets: %v, %v", c, err)
	}
}

// TestFollowedValues: values that the relay looks up are those of now; what cannot be looked up for the moment stays, and what is gone
// is used no more.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestFollowedValues(t *testing.T) {
	n := restricted("api.example")
	n.Credentials = map[string][]string{"KEY": {"api.example"}}
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCredentials(rules(t, n))
		if err != nil {
			t.Fatal(err)
		}
		var value string
		var fail error
		looks := 0
		c.Follow(func(context.Context) (map[string]string, error) {
			looks++
			return map[string]string{"KEY": value}, fail
		})
		for i, step := range []struct {
			value string
			fail  error
			want  string
		}{
			{"", schemas.ErrUnavailable, ""},
			{theSecret, nil, theSecret},
			{theSecret, schemas.ErrUnavailable, theSecret},
			{"the changed one", nil, "the changed one"},
			{"short", nil, ""}, // it cannot be bound
			{"the changed one", nil, "the changed one"},
			{"", schemas.ErrNotFound, ""},
		} {
			value, fail = step.value, step.fail
			time.Sleep(11 * time.Minute) // in which this process may have been suspended
			before := looks
			for range 1000 {
				k, missing := c.keys(t.Context(), "api.example")
				if got := k.put.Replace(c.marks["KEY"]); step.want != "" && got != step.want || (missing == "KEY") != (step.want == "") {
					t.Fatalf("step %d: %q, missing %q, want %q", i, got, missing, step.want)
				}
			}
			if looks != before+1 {
				t.Errorf("step %d: %d looks for 1000 requests", i, looks-before)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Minute)
		fail, value = nil, theSecret
		if _, missing := c.keys(gone, "api.example"); missing != "" && missing != "KEY" {
			t.Errorf("a request that is gone: %q", missing)
		}
		if _, missing := c.keys(t.Context(), "api.example"); missing != "" {
			t.Errorf("the next request: %q", missing)
		}
	})
}

//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func FuzzMasked(f *testing.F) {
	f.Add([]byte("see abababab and 12345678"), "abab", "12345678")
	f.Add([]byte("aaaaaaaaaab"), "aaab", "ab")
	f.Add([]byte(""), "a", "b")
	f.Fuzz(func(t *testing.T, text []byte, a, b string) {
		secrets := slices.DeleteFunc([]string{a, b}, func(s string) bool { return s == "" || strings.Trim(s, "*") == "" })
		want := bytes.Clone(text)
		maskAll(want, secrets)
		for _, r := range []io.Reader{
			bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text)), iotest.HalfReader(bytes.NewReader(text)),
			iotest.DataErrReader(bytes.NewReader(text)),
		} {
			got, err := io.ReadAll(&masked{body: io.NopCloser(r), secrets: secrets})
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%q in pieces is %q, %v; whole it is %q", text, got, err, want)
			}
		}
	})
}

// FuzzUnlock: whatever headers say, the secret gets only where what stands for it was.
//
//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func FuzzUnlock(f *testing.F) {
	f.Add("Authorization", "Bearer MARK", "Basic "+base64.StdEncoding.EncodeToString([]byte("me:MARK")))
	f.Add("Cookie", "a=MARK; b=MARKMARK", "x")
	f.Fuzz(func(t *testing.T, name, one, two string) {
		if strings.Contains(one+two, theSecret) {
			return
		}
		k := keys{put: strings.NewReplacer("MARK", theSecret)}
		h := http.Header{http.CanonicalHeaderKey(name): {one, two}}
		k.unlock(h)
		for i, was := range []string{one, two} {
			now := h[http.CanonicalHeaderKey(name)][i]
			if now == was {
				continue
			}
			if strings.ReplaceAll(now, theSecret, "MARK") == was {
				continue
			}
			scheme, before, _ := strings.Cut(was, " ")
			_, after, _ := strings.Cut(now, " ")
			from, err1 := base64.StdEncoding.DecodeString(strings.TrimSpace(before))
			to, err2 := base64.StdEncoding.DecodeString(after)
			if err1 != nil || err2 != nil || !strings.EqualFold(scheme, "Basic") || http.CanonicalHeaderKey(name) != "Authorization" ||
				strings.ReplaceAll(string(to), theSecret, "MARK") != string(from) || !slices.Contains(k.secrets, after) {
				t.Fatalf("%s: %q became %q", name, was, now)
			}
		}
	})
}
