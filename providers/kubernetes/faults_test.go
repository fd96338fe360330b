package kubernetes_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// refuse makes the cluster answer with a status, below 0 not at all, as long as f says so.
func refuse(c *kubetest.Cluster, status int, f func(r *http.Request) bool) {
	c.Fault(func(x *kubetest.Faults) {
		x.Answer = func(r *http.Request) (int, int) {
			if f(r) {
				return status, 0
			}
			return 0, 0
		}
	})
}

func isExec(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/exec") }

func TestServerGoneBeforeTheStart(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "ten seconds with an API server and its pods")
	c := kubetest.Start(t, kubetest.Options{})
	p := open(t, c, nil)
	ref := reserve(t, p)
	for name, f := range map[string]func(*http.Request) bool{"all of it": func(*http.Request) bool { return true }, "execs": isExec} {
		refuse(c, -1, f)
		res, err := p.Run(t.Context(), in(ref, "touch ran"))
		if wantCode(t, err, schemas.Unavailable); res.Started {
			t.Errorf("%s: it says that it was started", name)
		}
	}
	for status, code := range map[int]schemas.Code{
		400: schemas.Invalid, 401: schemas.Denied, 403: schemas.Denied, 500: schemas.Unavailable, 503: schemas.Unavailable,
	} {
		refuse(c, status, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/pods") })
		_, err := p.Run(t.Context(), in(ref, "touch ran"))
		wantCode(t, err, code)
	}
	c.Fault(func(x *kubetest.Faults) { x.Answer = nil })
	if got := sh(t, p, in(ref, "ls")); got != "" {
		t.Errorf("it ran all the same: %q", got)
	}
}

// loop beats until it is ended: its file grows.
const loop = `trap '' TERM; (setsid bash -c 'while :; do echo x >>beats; sleep 0.02; done' &) ; echo begun; sleep 600`

// silent fails the test when what beats in the box continues.
func silent(t *testing.T, p *kubernetes.Provider, ref schemas.Ref) {
	t.Helper()
	got := strings.Fields(sh(t, p, in(ref, "wc -c <beats; sleep 0.3; wc -c <beats")))
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("a process of the run lives on: %q", got)
	}
}

func TestStreamCutInTheMiddle(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "ten seconds with an API server and its pods")
	for name, o := range map[string]kubetest.Options{"WebSocket": {}, "SPDY": {NoWebSockets: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kubetest.Start(t, o)
			p := open(t, c, nil)
			ref := reserve(t, p)
			done := background(t, p, in(ref, loop))
			var refused atomic.Int32
			refuse(c, -1, func(r *http.Request) bool { return isExec(r) && refused.Add(1) <= 3 }) // it does not come back at once
			c.CutExecs()
			o := ended(t, done)
			if wantCode(t, o.err, schemas.Interrupted); !o.res.Started || string(o.res.Stdout) != "begun\n" {
				t.Errorf("%+v", o.res)
			}
			silent(t, p, ref)
		})
	}
}

func TestEvictedInTheMiddle(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		ref := reserve(t, p)
		done := background(t, p, in(ref, "echo begun; sleep 600"))
		c.Evict(c.Objects("pods")[0], "the node was low on memory")
		o := ended(t, done)
		if wantCode(t, o.err, schemas.Interrupted); !strings.Contains(o.err.Error(), "Evicted: the node was low on memory") {
			t.Errorf("the error says %v", o.err)
		}
		_, err := p.Run(t.Context(), in(ref, "true"))
		wantCode(t, err, schemas.NotFound)
		again := reserve(t, p)
		if again.Epoch == ref.Epoch {
			t.Error("the new pod has the old epoch")
		}
		sh(t, p, in(again, "true"))
	})
}

func TestConflicts(t *testing.T) {
	longtest.Only(t, "ten seconds with an API server and its pods")
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		ref := reserve(t, p)
		var n atomic.Int32
		refuse(c, http.StatusConflict, func(r *http.Request) bool { return r.Method == http.MethodPatch && n.Add(1) <= 5 })
		changed := command("").Spec
		changed.Network = schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"192.0.2.0/24"}}
		again, err := p.Reserve(t.Context(), "key", changed)
		if err != nil || again != ref || n.Load() < 6 {
			t.Errorf("%+v after %d changes, %v", again, n.Load(), err)
		}
		sh(t, p, in(ref, "true"))
		refuse(c, http.StatusConflict, func(r *http.Request) bool { return r.Method == http.MethodPatch })
		_, err = p.Reserve(t.Context(), "key", command("").Spec)
		wantCode(t, err, schemas.Unavailable) // a storm without an end is not waited for
	})
}

func TestBusyServer(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	p := open(t, c, nil)
	var n atomic.Int32
	c.Fault(func(x *kubetest.Faults) {
		x.Answer = func(*http.Request) (int, int) {
			if n.Add(1) <= 2 {
				return http.StatusTooManyRequests, 1
			}
			return 0, 0
		}
	})
	reserve(t, p)
	if n.Load() < 3 {
		t.Errorf("%d requests", n.Load())
	}
}

func TestWatchesExpire(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		c.Fault(func(x *kubetest.Faults) { x.NoRoom = "0/3 nodes are available" })
		got := make(chan error, 1)
		go func() {
			_, err := p.Reserve(t.Context(), "key", command("").Spec)
			got <- err
		}()
		until(t, "a pod", func() bool { return len(c.Objects("pods")) == 1 })
		pod := c.Objects("pods")[0]
		for n := range 20 { // what is reported and forgotten at once finds a watch before it, in the midst of it and behind it
			word := fmt.Sprintf("0/%d nodes are available", 4+n)
			c.Fault(func(x *kubetest.Faults) { x.NoRoom = word })
			until(t, "the word of the scheduler", func() bool { return strings.Contains(fmt.Sprint(c.Get("pods", pod)["status"]), word) })
			c.Forget()
		}
		c.Fault(func(x *kubetest.Faults) { x.NoRoom = "" })
		c.Forget()
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		c.Fault(func(x *kubetest.Faults) { x.PullError = "manifest unknown" })
		res, err := p.Run(t.Context(), command("true"))
		wantCode(t, err, schemas.Unavailable)
		for _, word := range []string{"registry.example/sandbox:1", "ImagePullBackOff", "manifest unknown"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("the error does not say %q: %v", word, err)
			}
		}
		if res.Started {
			t.Error("it says that it was started")
		}
		until(t, "the end of the box", func() bool { return len(c.Objects("pods"))+len(c.Objects("networkpolicies")) == 0 })
	})
}

func TestNoNodeHasRoom(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, func(o *kubernetes.Options) { o.StartTimeout = time.Second })
		c.Fault(func(x *kubetest.Faults) { x.NoRoom = "0/3 nodes are available: 3 Insufficient memory" })
		_, err := p.Reserve(t.Context(), "key", command("").Spec)
		if wantCode(t, err, schemas.Unavailable); err != nil && !strings.Contains(err.Error(), "3 Insufficient memory") {
			t.Errorf("the error says %v", err)
		}
	})
}

func TestNoController(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{Sandboxes: []string{"v1beta1"}})
	p := open(t, c, func(o *kubernetes.Options) { o.StartTimeout = time.Second })
	c.Fault(func(x *kubetest.Faults) { x.NoController = true })
	_, err := p.Reserve(t.Context(), "key", command("").Spec)
	if wantCode(t, err, schemas.Unavailable); err != nil && !strings.Contains(err.Error(), "controller") {
		t.Errorf("the error says %v", err)
	}
}

// What a worker that dies leaves behind is found by its labels.
func TestOrphansAreFound(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		ref := reserve(t, p)
		refuse(c, http.StatusInternalServerError, func(r *http.Request) bool {
			return r.Method == http.MethodDelete || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "sandboxes/pods")
		})
		_, _ = p.Run(t.Context(), command("true")) // with pods, the box is not made; with Sandbox objects it is not removed
		_ = p.Close()
		c.Fault(func(x *kubetest.Faults) { x.Answer = nil })
		later := time.Now().Add(time.Hour)
		if now, err := p.Sweep(t.Context(), time.Now(), false); err != nil || len(now) != 0 {
			t.Errorf("what is young was removed: %v, %v", now, err)
		}
		found, err := p.Sweep(t.Context(), later, true)
		if err != nil || len(found) != 1 || !strings.HasPrefix(found[0], "run-") {
			t.Fatalf("found %v, %v", found, err)
		}
		if _, err := p.Sweep(t.Context(), later, false); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of the orphan", func() bool { return len(c.Objects("networkpolicies")) == 1 && len(c.Objects("pods")) == 1 })
		sh(t, p, in(ref, "true")) // the kept box is none
		if _, err := p.Sweep(t.Context(), later.Add(365*24*time.Hour), false); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of a box that nobody uses", func() bool { return len(c.Objects("networkpolicies"))+len(c.Objects("pods")) == 0 })
	})
}

// The policy is there before the pod, and nothing of a command is in the requests.
func TestOrderAndSecrets(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		var mu sync.Mutex
		var made, urls []string
		refuse(c, 0, func(r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			text, _ := url.QueryUnescape(r.URL.String())
			urls = append(urls, text)
			if r.Method == http.MethodPost && !isExec(r) {
				made = append(made, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
			}
			return false
		})
		cmd := command("echo hidden-in-the-script")
		cmd.Env, cmd.Stdin = map[string]string{"KEY": "hidden-in-a-variable"}, []byte("hidden-in-the-input")
		sh(t, p, cmd)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"persistentvolumeclaims", "networkpolicies"}; len(made) != 3 || !slices.Equal(made[:2], want) {
			t.Errorf("made %v, want %v and then the box", made, want)
		}
		for _, u := range urls {
			if strings.Contains(u, "hidden") {
				t.Errorf("the cluster's log has %s", u)
			}
		}
	})
}

func TestLimitsOfTheOperatorHold(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	p := open(t, c, func(o *kubernetes.Options) {
		o.Networks, o.MaxMemory = []schemas.NetworkMode{schemas.DenyAll, schemas.Restricted}, 512<<20
	})
	for what, change := range map[string]func(*providers.Command){
		"allow-all": func(cmd *providers.Command) { cmd.Network.Mode = schemas.AllowAll },
		"domains": func(cmd *providers.Command) {
			cmd.Network = schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"example.com"}}
		},
		"memory":    func(cmd *providers.Command) { cmd.Spec.MemoryLimit = 1 << 30 },
		"processes": func(cmd *providers.Command) { cmd.Spec.Pids = 10 },
		"level":     func(cmd *providers.Command) { cmd.Spec.MinIsolation = "L9" },
	} {
		cmd := command("true")
		change(&cmd)
		_, err := p.Run(t.Context(), cmd)
		if schemas.CodeOf(err) != schemas.Unsupported {
			t.Errorf("%s: %v", what, err)
		}
	}
	cmd := command("true")
	cmd.Network = schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"example.com"}}
	_, err := p.Run(t.Context(), cmd)
	wantCode(t, err, schemas.Invalid)
	if n := len(c.Objects("networkpolicies")) + len(c.Objects("pods")); n != 0 {
		t.Errorf("%d objects were made for what is refused", n)
	}
}

// TestAHomeIsNeverTheFormerSandboxes reserves a box again when it was just released, and the cluster has not removed its home yet.
func TestAHomeIsNeverTheFormerSandboxes(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, nil)
		ref := reserve(t, p)
		sh(t, p, in(ref, "echo former >~/file"))
		home := "home-" + strings.TrimPrefix(ref.ID, kubetest.Namespace+"/")
		former := c.Get("persistentvolumeclaims", home)
		c.Fault(func(x *kubetest.Faults) { x.NoCollector = true })
		if err := p.Release(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if c.Get("persistentvolumeclaims", home) == nil { // the provider's own work in a cluster of pods: as if it were not done yet
			delete(former["metadata"].(map[string]any), "uid")
			if err := c.Add(former); err != nil {
				t.Fatal(err)
			}
		}
		var looked atomic.Int32
		refuse(c, http.StatusInternalServerError, func(r *http.Request) bool {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, home) {
				looked.Add(1)
			}
			return false
		})
		type reserved struct {
			ref schemas.Ref
			err error
		}
		done := make(chan reserved, 1)
		go func() {
			ref, err := p.Reserve(t.Context(), "key", command("").Spec)
			done <- reserved{ref, err}
		}()
		until(t, "a look at the former home", func() bool { return looked.Load() > 0 || len(done) > 0 })
		c.Fault(func(x *kubetest.Faults) { x.NoCollector = false })
		again := <-done
		if again.err != nil {
			t.Fatal(again.err)
		}
		if got := sh(t, p, in(again.ref, "ls ~; echo own >~/file")); got != "" {
			t.Errorf("the new box has the former one's %q", got)
		}
		if err := p.Pause(t.Context(), again.ref); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, p, in(reserve(t, p), "cat ~/file")); got != "own\n" {
			t.Errorf("after a pause it has %q", got)
		}
	})
}
