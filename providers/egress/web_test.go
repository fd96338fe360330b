package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func get(c net.Conn, host, path string) string {
	_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
	b, _ := io.ReadAll(c)
	return string(b)
}

//guarantee:a-box-reaches-what-its-rules-name
func TestPlainRequestsForAnotherName(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", false, says("hello"))
	s := w.enter(restricted("a.example", "b.example"), Limits{})
	for _, host := range []string{"b.example", "hidden.example", "127.0.0.1", "a.example:8080", "a.example@hidden.example",
		"169.254.169.254", "a.example.hidden.example", "[::1]"} {
		if got := get(s.reach("a.example", 80), host, "/"); strings.Contains(got, "200 OK") || strings.Contains(got, "hello to") {
			t.Errorf("Host %s: %q", host, got)
		}
	}
	for _, text := range []string{
		"GET http://hidden.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\nHost: hidden.example\r\n\r\n",
		"CONNECT 10.0.0.1:22 HTTP/1.1\r\nHost: 10.0.0.1:22\r\n\r\n",
		"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
	} {
		c := s.reach("a.example", 80)
		_, _ = io.WriteString(c, text)
		b, _ := io.ReadAll(c)
		if got := string(b); strings.Contains(got, "200 OK") || strings.Contains(got, "hello to") {
			t.Errorf("%q: %q", text, got)
		}
	}
	if reached := w.Dialled(); len(reached) != 0 {
		t.Errorf("%v were connected to", reached)
	}
	// The second request on a connection is looked at like the first.
	c := s.reach("a.example", 80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: A.example.\r\n\r\nGET / HTTP/1.1\r\nHost: hidden.example\r\n\r\n")
	b, _ := io.ReadAll(c)
	if got := string(b); strings.Count(got, "hello to") != 1 || !strings.Contains(got, "403 Forbidden") || !strings.Contains(got,
		"sandjet: network: a request for hidden.example") {
		t.Errorf("two requests: %q", got)
	}
}

func TestRedirectToAHostThatIsNotAllowed(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", false, http.RedirectHandler("http://169.254.169.254/latest/meta-data", http.StatusFound))
	s := w.enter(restricted("a.example"), Limits{})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _,
		to string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(to)
		if host == "a.example" {
			_, addrs := s.ask("a.example.", dnsmessage.TypeA)
			host = addrs[0].String()
		}
		return s.connect(net.JoinHostPort(host, port)), nil
	}}}
	if resp, err := client.Get("http://a.example/"); err == nil {
		_ = resp.Body.Close()
		t.Errorf("the redirect was followed: %s", resp.Status)
	}
	s.saw(RuleNotAllowed)
	if reached := w.Dialled(); len(reached) != 1 {
		t.Errorf("%v were connected to", reached)
	}
}

//guarantee:a-box-reaches-what-its-rules-name
func TestProxy(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", false, says("hello"))
	w.Web("s.example", "93.184.216.35", true, says("secret hello"))
	w.Echo("93.184.216.36:22")
	w.Name("git.example", "93.184.216.36")
	w.Name("inner.example", "10.0.0.1")
	s := w.enter(restricted("a.example", "s.example", "git.example:22", "inner.example"), Limits{})
	ask := func(text string) (net.Conn, *bufio.Reader, string) {
		c, err := net.Dial("tcp", s.proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(c, text)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return c, r, err.Error()
		}
		if resp.StatusCode == http.StatusOK && strings.HasPrefix(text, "CONNECT") {
			return c, r, resp.Status
		}
		body, _ := io.ReadAll(resp.Body)
		return c, r, resp.Status + " " + string(body)
	}
	for text, want := range map[string]string{
		"CONNECT 10.0.0.1:22 HTTP/1.1\r\nHost: 10.0.0.1:22\r\n\r\n":                                         "403 Forbidden",
		"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n":                                       "403 Forbidden",
		"CONNECT 127.1:80 HTTP/1.1\r\nHost: x\r\n\r\n":                                                      "403 Forbidden",
		"CONNECT [::ffff:169.254.169.254]:80 HTTP/1.1\r\nHost: x\r\n\r\n":                                   "403 Forbidden",
		"CONNECT [a.example]:443 HTTP/1.1\r\nHost: x\r\n\r\n":                                               "400 Bad Request",
		"CONNECT hidden.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n":                                "403 Forbidden",
		"CONNECT inner.example:443 HTTP/1.1\r\nHost: x\r\n\r\n":                                             "403 Forbidden",
		"CONNECT s.example:22 HTTP/1.1\r\nHost: x\r\n\r\n":                                                  "403 Forbidden",
		"CONNECT s.example HTTP/1.1\r\nHost: x\r\n\r\n":                                                     "400 Bad Request",
		"GET http://hidden.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                    "403 Forbidden",
		"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: a.example\r\n\r\n":                             "403 Forbidden",
		"GET http://inner.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                     "403 Forbidden",
		"GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                        "400 Bad Request",
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n":                                                         "400 Bad Request",
		"GET http://a.example/ HTTP/1.1\r\nHost: hidden.example\r\nProxy-Authorization: Basic eA==\r\n\r\n": "200 OK hello to a.example",
	} {
		if _, _, got := ask(text); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %s", text, got, want)
		}
	}
	connect := func(to string) (net.Conn, *bufio.Reader) {
		c, r, got := ask("CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n")
		if !strings.HasPrefix(got, "200") {
			t.Fatalf("%s: %q", to, got)
		}
		return c, r
	}
	c, _ := connect("s.example:443")
	if err := tls.Client(c, &tls.Config{ServerName: "s.example", InsecureSkipVerify: true}).Handshake(); err != nil {
		t.Error(err)
	}
	c, _ = connect("s.example:443")
	if err := tls.Client(c, &tls.Config{ServerName: "hidden.example", InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("a handshake for another name succeeded through CONNECT")
	}
	c, r := connect("git.example:22")
	_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "SSH-2.0-x\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	c, _ = connect("a.example:80")
	if got := get(c, "hidden.example", "/"); !strings.Contains(got, "403 Forbidden") {
		t.Errorf("another Host through CONNECT: %q", got)
	}
	for _, to := range w.Dialled() {
		if !strings.HasPrefix(to, "93.184.216.3") {
			t.Errorf("%s was connected to", to)
		}
	}
}

func TestUpgradedConnections(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", false, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(c, line)
	}))
	s := w.enter(restricted("a.example"), Limits{})
	c := s.reach("a.example", 80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(c)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	_, _ = io.WriteString(c, "ping\n")
	if line, err := r.ReadString('\n'); err != nil || line != "ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	w := newWorld(t)
	w.Web("a.example", "93.184.216.34", false, says("hello"))
	s := w.enter(restricted("a.example"), Limits{Header: 8 << 10})
	c := s.reach("a.example", 80)
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a.example\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	if got, _ := io.ReadAll(c); strings.Contains(string(got), "hello to") {
		t.Errorf("%q", got)
	}
}

//guarantee:a-box-reaches-what-its-rules-name
func FuzzHostOf(f *testing.F) {
	for _, s := range []string{"a.example", "a.example:80", "[::1]:80", "[::1]", "a:b:c", "a@b", "127.1:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := hostOf(&http.Request{Host: s})
		if err != nil {
			return
		}
		if again, err := hostOf(&http.Request{Host: got.String()}); err != nil || again != got {
			t.Fatalf("%q is %s, and that is %v, %v", s, got, again, err)
		}
	})
}
