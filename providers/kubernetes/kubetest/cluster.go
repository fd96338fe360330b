package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandjet/sandjet/internal/longtest"
)

// Namespace is the one that exists.
const Namespace = "sandboxes"

// Options are the settings of a cluster.
type Options struct {
	// Sandboxes are the served versions of the Sandbox resource, such as v1beta1; none: it has no agent-sandbox.
	Sandboxes []string
	// WarmPools says that it serves the extensions of agent-sandbox too, in the same versions.
	WarmPools bool
	// Rules are what the client may do; nil: everything.
	Rules []Rule
	// Services are those of other namespaces, by namespace/name: their spec.
	Services map[string]map[string]any
	// Joined is called with the first process of a pod whose only way out is to other pods, before the pod runs: it is what enforces that.
	// Nil: such a pod reaches nothing.
	Joined func(pid int)
	// NoWebSockets refuses them, as an old server or a proxy does.
	NoWebSockets bool
	// S3 says that it has the driver s3.csi.aws.com, whose buckets are folders here.
	S3 bool
	// Node is the only one.
	Node Node
}

// Cluster simulates an API server with its controllers, scheduler and kubelet. Its methods are safe for concurrent use.
type Cluster struct {
	opt    Options
	dir    string
	server *httptest.Server
	ctx    context.Context //nolint:containedctx // it is the cluster's life
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	objects map[key]object
	events  []event
	version int64
	oldest  int64         // the last version whose events are forgotten
	changed chan struct{} // closed at each change
	pods    map[string]*pod
	used    map[Use]bool
	faults  Faults
	execs   map[*stream]bool
	numbers int
}

// Faults are the failures that a test injects.
type Faults struct {
	// Answer refuses a request with a status, 0 not.
	Answer func(r *http.Request) (status int, retryAfter int)
	// PullError is what the kubelet says of images: they cannot be pulled.
	PullError string
	// NoRoom is what the scheduler says of pods: no node has room.
	NoRoom string
	// NoController lets objects of agent-sandbox be.
	NoController bool
	// NoCollector leaves what belongs to objects that are gone, as a garbage collector does that has much to do.
	NoCollector bool
}

// Start starts a cluster that ends with tb, with all its processes. If pods cannot run here the test is skipped; if CI is set it fails
// instead.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if reason := missing(); reason != "" {
		longtest.Missing(tb, "%s", reason)
	}
	for fd := 3; fd < 1024; fd++ { // what the test's own parent left open is none of the pods' business
		syscall.CloseOnExec(fd)
	}
	c := &Cluster{
		opt: o, dir: tb.TempDir(), objects: map[key]object{}, changed: make(chan struct{}), pods: map[string]*pod{},
		used: map[Use]bool{}, execs: map[*stream]bool{},
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	if o.S3 {
		driver := object{"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": object{"name": driverS3}}
		c.mu.Lock()
		if err := c.create(key{"storage.k8s.io", "csidrivers", driverS3}, driver); err != nil {
			tb.Error(err)
		}
		c.mu.Unlock()
	}
	c.work.Go(c.control)
	tb.Cleanup(func() {
		c.stop()
		c.CutExecs()
		c.server.CloseClientConnections()
		c.server.Close()
		c.endPods()
		c.work.Wait()
	})
	return c
}

// missing returns why pods cannot run here; empty if they can.
func missing() string {
	if os.Geteuid() != 0 {
		return "pods need root here, for namespaces of their own"
	}
	for _, tool := range []string{"bash", "nsenter", "setpriv", "chroot", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "pods need " + tool + " here: install bash, coreutils, mount and util-linux"
		}
	}
	return ""
}

// Config returns the configuration for connecting to the cluster.
func (c *Cluster) Config() *rest.Config { return &rest.Config{Host: c.server.URL} }

// Kubeconfig writes a configuration file for kubectl into a directory and returns its name.
func (c *Cluster) Kubeconfig(tb testing.TB, dir string) string {
	tb.Helper()
	name := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: test\n" +
		"contexts:\n- name: test\n  context: {cluster: test, user: test, namespace: " + Namespace + "}\n" +
		"clusters:\n- name: test\n  cluster: {server: \"" + c.server.URL + "\"}\n" +
		"users:\n- name: test\n  user: {}\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

// Fault changes the injected failures.
func (c *Cluster) Fault(change func(f *Faults)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.faults)
	c.notify()
}

// CutExecs breaks the connections of all execs; their programs continue.
func (c *Cluster) CutExecs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.execs {
		s.cut()
	}
}

// Forget drops all events so far: watches that begin before now get 410.
func (c *Cluster) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oldest, c.events = c.version, nil
	c.notify()
}

// Objects lists the names of all objects of a resource.
func (c *Cluster) Objects(resource string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for k := range c.objects {
		if k.resource == resource {
			names = append(names, k.name)
		}
	}
	return names
}

// Get returns a copy of an object; nil if it does not exist.
func (c *Cluster) Get(resource, name string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, o := range c.objects {
		if k.resource == resource && k.name == name {
			return clone(o)
		}
	}
	return nil
}

// Add stores an object as an operator does, with all rights.
func (c *Cluster) Add(o map[string]any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.resources() {
		for _, v := range s.versions {
			req := request{served: s, version: v, name: text(o, "metadata", "name")}
			if s.kind != text(o, "kind") || versionOf(req) != text(o, "apiVersion") {
				continue
			}
			admitted, err := c.admit(req, o, nil)
			if err != nil {
				return err
			}
			return c.create(req.key(), admitted)
		}
	}
	return fmt.Errorf("%s of %s is not served", text(o, "kind"), text(o, "apiVersion"))
}

// Change replaces an object by a copy that change has modified, as an operator or a controller does.
func (c *Cluster) Change(resource, name string, change func(o map[string]any)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, o := range c.objects {
		if k.resource == resource && k.name == name {
			changed := clone(o)
			change(changed)
			return c.update(k, changed)
		}
	}
	return fmt.Errorf("there is no %s %s", resource, name)
}

// Processes returns how many processes of pods are running.
func (c *Cluster) Processes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, all := 0, namespaces()
	for _, p := range c.pods {
		n += len(p.processes(all))
	}
	return n
}

// Volume returns the directory with the files of a claim; empty if the claim does not exist.
func (c *Cluster) Volume(claim string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[key{"", "persistentvolumeclaims", claim}]
	if o == nil {
		return ""
	}
	return c.volumeDir(c.volumeOf(o))
}

// Scratch returns the directory of a pod's emptyDir volume.
func (c *Cluster) Scratch(pod, volume string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return filepath.Join(c.podDir(text(c.objects[key{"", "pods", pod}], "metadata", "uid")), "volumes", volume)
}

// Evict ends a pod as a kubelet does on a node that is short of a resource: its object stays, as failed.
func (c *Cluster) Evict(name, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[name]; p != nil {
		p.fail("Evicted", message, "", 0)
	}
}

func (c *Cluster) volumeDir(uid string) string { return filepath.Join(c.dir, "volumes", uid) }

// number returns a number that was never used before.
func (c *Cluster) number() string {
	c.numbers++
	return strconv.Itoa(c.numbers)
}

// notify wakes all goroutines that wait for changes. The lock is held.
func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// control runs all controllers, the scheduler and the kubelet.
func (c *Cluster) control() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		changed := c.changed
		c.reconcile()
		c.mu.Unlock()
		select {
		case <-c.ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}
