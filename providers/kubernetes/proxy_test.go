package kubernetes_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/providers/internal/netns"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// serviceAt is the address of the proxy's service in the tests' cluster.
const serviceAt = "10.96.7.7"

// services is the cluster's, with the proxy's.
func services() map[string]map[string]any {
	return map[string]map[string]any{"sandjet-egress/sandjet-egress": {
		"clusterIP": serviceAt, "selector": map[string]any{"app": "sandjet-egress"}, "ports": []any{map[string]any{"port": 3128}},
	}}
}

// fabric is the network of a cluster that enforces policies: all that a pod sends arrives here, and what is for the proxy's service is
// carried there.
type fabric struct {
	t     *testing.T
	proxy string // where it really is
	work  sync.WaitGroup

	mu    sync.Mutex
	open  []io.Closer
	stray []string // where pods wanted to go
}

// join takes over the network of a pod.
func (f *fabric) join(pid int) {
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return // it has ended
	}
	defer network.Close()
	err = netns.In(network, func() error {
		if err := loopbackUp(); err != nil {
			return err
		}
		s, err := netns.Open(nil)
		if err != nil {
			return err
		}
		files := s.Files()
		defer s.Close()
		listener := os.NewFile(uintptr(files[0]), "pod")
		l, err := net.FileListener(listener)
		if err != nil {
			return err
		}
		s.TCP[0] = -1 // closed with its file
		_ = listener.Close()
		f.keep(l)
		f.work.Go(func() { f.serve(l) })
		return nil
	})
	if err != nil {
		f.t.Error(err)
	}
}

// loopbackUp has the only device of the calling thread's network carry something.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func (f *fabric) keep(c io.Closer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, c)
}

func (f *fabric) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		f.keep(c)
		to := c.LocalAddr().String()
		if to != serviceAt+":3128" {
			f.mu.Lock()
			f.stray = append(f.stray, to)
			f.mu.Unlock()
			_ = c.Close()
			continue
		}
		out, err := net.Dial("tcp", f.proxy)
		if err != nil {
			_ = c.Close()
			continue
		}
		f.keep(out)
		carry := func(dst, src net.Conn) {
			_, _ = io.Copy(dst, src)
			if half, ok := dst.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		}
		f.work.Go(func() { carry(out, c) })
		f.work.Go(func() { carry(c, out) })
	}
}

func (f *fabric) close() {
	f.mu.Lock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.work.Wait()
}

// proxied opens a provider whose boxes reach a world by a proxy, in a cluster with the rights of deploy/kubernetes.
func proxied(t *testing.T, w *egresstest.World) (egresstest.Sandboxes, *kubetest.Cluster) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &egress.Gate{
		Keys: []ed25519.PublicKey{public}, Options: egress.Options{Resolver: w, Dial: w.Dial},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, l) }()
	f := &fabric{t: t, proxy: l.Addr().String()}
	t.Cleanup(func() {
		f.close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c := kubetest.Start(t, kubetest.Options{
		Services: services(), Joined: f.join, Rules: append(rulesOf(t, "rbac-pod.yaml"), rulesOf(t, "egress.yaml")...),
	})
	p := open(t, c, func(o *kubernetes.Options) {
		o.Egress = &kubernetes.Egress{Namespace: "sandjet-egress", Service: "sandjet-egress", Key: private}
	})
	return egresstest.Sandboxes{World: w, Provider: p, Command: command, Kept: true}, c
}

// TestProxied tries every way out of a pod that may reach a few hosts, with the real proxy and an empty network of its own.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestProxied(t *testing.T) {
	w := egresstest.Furnish(t)
	s, c := proxied(t, w)
	s.Install(t)
	s.TestProxied(t)
	used := false
	for _, u := range c.Used() {
		used = used || u.Resource == "services" && u.Verb == "get"
	}
	if !used {
		t.Error("the right to read the service is not used")
	}
	// A call's own pod reaches the same, and its variables win over nothing that is declared.
	n := egresstest.Restricted()
	if said, _ := s.Probe(t, n, "get", "https://web.example/"); !strings.Contains(said, "200 hello") {
		t.Errorf("%q", said)
	}
	cmd := s.With(n, `echo "$HTTPS_PROXY $NO_PROXY"; cat /etc/resolv.conf`)
	cmd.Env = map[string]string{"HTTPS_PROXY": "mine"}
	if said := sh(t, s.Provider, cmd); !strings.HasPrefix(said, "mine localhost,") {
		t.Errorf("%q", said)
	}
}

// TestNamesWithoutAProxy: what cannot be kept is refused before anything is made, and says what to do.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestNamesWithoutAProxy(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{Services: map[string]map[string]any{
		"egress/headless": {"clusterIP": "None", "selector": map[string]any{"app": "x"}, "ports": []any{map[string]any{"port": 3128}}},
		"egress/all":      {"clusterIP": serviceAt, "ports": []any{map[string]any{"port": 3128}}},
		"egress/other":    {"clusterIP": serviceAt, "selector": map[string]any{"app": "x"}, "ports": []any{map[string]any{"port": 80}}},
	}})
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command("true")
	cmd.Network = schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"web.example"}}
	cmd.Spec.Network = cmd.Network
	for name, x := range map[string]struct {
		at   *kubernetes.Egress
		code schemas.Code
		want string
	}{
		"none":         {nil, schemas.Unsupported, "--kubernetes-egress"},
		"no service":   {&kubernetes.Egress{Namespace: "egress", Service: "gone", Key: key}, schemas.Unavailable, "egress/gone"},
		"no address":   {&kubernetes.Egress{Namespace: "egress", Service: "headless", Key: key}, schemas.Unavailable, "clusterIP"},
		"no selector":  {&kubernetes.Egress{Namespace: "egress", Service: "all", Key: key}, schemas.Unavailable, "selects no pods"},
		"no such port": {&kubernetes.Egress{Namespace: "egress", Service: "other", Key: key}, schemas.Unavailable, "no port 3128"},
	} {
		p := open(t, c, func(o *kubernetes.Options) { o.Egress = x.at })
		res, err := p.Run(t.Context(), cmd)
		if schemas.CodeOf(err) != x.code || res.Started || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %s and %q", name, err, x.code, x.want)
		}
		if _, err := p.Reserve(t.Context(), "key", cmd.Spec); schemas.CodeOf(err) != x.code {
			t.Errorf("%s: reserve: %v", name, err)
		}
	}
	if left := c.Objects("pods"); len(left) != 0 {
		t.Errorf("%v were made", left)
	}
	private := cmd
	private.Network.AllowCIDRs = []string{"10.0.0.0/8"}
	p := open(t, c, func(o *kubernetes.Options) {
		o.Egress = &kubernetes.Egress{Namespace: "egress", Service: "other", Key: key}
	})
	_, err = p.Run(t.Context(), private)
	if schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "--private-networks") {
		t.Errorf("a private network beside names: %v", err)
	}
}
