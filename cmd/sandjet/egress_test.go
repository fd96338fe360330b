package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// TestTheEgressProxyIsAProcess: it takes the key that another process prints, lets sandboxes reach what their passes list and nothing
// else, serves the same passes after it was killed and started again, and stops cleanly.
func TestTheEgressProxyIsAProcess(t *testing.T) {
	t.Parallel()
	web := privateWeb(t)
	data := dataDir(t.TempDir())
	ring, err := secretsFlags{}.ring(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	key, err := egressKey(ring)
	if err != nil {
		t.Fatal(err)
	}
	public, err := exec.Command("sandjet", "egress", "key", "--data-dir", string(data)).Output()
	if err != nil {
		t.Fatal(err)
	}
	pass := func(until time.Time, cidr string) string {
		p := egress.Pass{
			Sandbox: "one", Account: "acct_1", From: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Until: until.Unix(),
			Network: schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{cidr}},
		}
		text, err := p.Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	here := netip.PrefixFrom(web.addr, web.addr.BitLen()).String()
	later := time.Now().Add(time.Hour)
	args := []string{"egress", "serve", "--egress-listen", "127.0.0.1:0", "--egress-keys", strings.TrimSpace(string(public)),
		"--private-networks", here}
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		proxy, at := startEgress(t, args)
		for what, c := range map[string]struct {
			pass string
			want int
		}{
			"what is listed":          {pass(later, here), http.StatusOK},
			"what is not":             {pass(later, "198.18.0.0/15"), http.StatusForbidden},
			"a pass that has ended":   {pass(time.Now().Add(-time.Minute), here), http.StatusProxyAuthRequired},
			"a pass that was altered": {"x" + pass(later, here), http.StatusProxyAuthRequired},
			"no pass":                 {"", http.StatusProxyAuthRequired},
		} {
			if got := getThrough(t, at, c.pass, web.url); got != c.want {
				t.Errorf("%s: %d, want %d", what, got, c.want)
			}
		}
		if err := proxy.Process.Signal(end); err != nil {
			t.Error(err)
		}
		if err := proxy.Wait(); end == syscall.SIGTERM && err != nil {
			t.Errorf("its end: %v", err)
		}
	}
	for _, wrong := range [][]string{{"--egress-keys", "x"}, {}} {
		out, err := exec.Command("sandjet", append([]string{"egress", "serve", "--egress-listen", "127.0.0.1:0"}, wrong...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "egress-keys") {
			t.Errorf("%v: %v %s", wrong, err, out)
		}
	}
}

// startEgress starts the proxy and returns its address.
func startEgress(t *testing.T, args []string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("sandjet", args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has it
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said, err := bufio.NewReader(out).ReadString('\n')
	_, at, ok := strings.Cut(strings.TrimSpace(said), " is up at http://")
	if err != nil || !ok {
		t.Fatalf("it says %q, %v", said, err)
	}
	return cmd, at
}

// getThrough gets a URL through the proxy and returns the status of the response.
func getThrough(t *testing.T, at, pass, target string) int {
	t.Helper()
	proxy := &url.URL{Scheme: "http", Host: at}
	if pass != "" {
		proxy.User = url.UserPassword(egress.PassUser, pass)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get(target)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

type webServer struct {
	addr netip.Addr
	url  string
}

// privateWeb serves on a private address of this host that is not loopback: operators may allow private networks, but never loopback.
func privateWeb(t *testing.T) webServer {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsPrivate() {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(p.Addr().String(), "0"))
		if err != nil {
			continue
		}
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
		web.Listener = l
		web.Start()
		t.Cleanup(web.Close)
		return webServer{p.Addr(), "http://" + l.Addr().String()}
	}
	longtest.Missing(t, "missing: a private address of this host, as a proxy may let sandboxes reach where it is listed")
	return webServer{}
}
