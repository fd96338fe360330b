package crashtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
)

func TestMain(m *testing.M) {
	natstest.ServeMember()
	os.Exit(run(m))
}

// run makes the folder of the programs, which all tests share.
func run(m *testing.M) int {
	longtest.SideBySide()
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built = sync.OnceValue(func() error { return makePrograms(dir) })
	programs = dir
	return dockertest.Main(m)
}

var (
	programs string
	built    func() error
)

func makePrograms(dir string) error {
	out, err := exec.Command("go", "build", "-o", dir+"/", "github.com/sandjet/sandjet/cmd/sandjet",
		"github.com/sandjet/sandjet/cmd/sandjet-box").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// build makes the programs from source, once for all tests.
func build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		longtest.Missing(t, "missing: the go command, to build the processes")
	}
	if err := built(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(programs, "sandjet")
}

// cluster is a set of roles, each a process of its own, with a common data folder.
type cluster struct {
	log     *journal
	roles   []*process // in the order of their start
	program string
	gateway string
	account string
	key     string
	sandbox string   // of calls; empty: the account's own
	shared  []string // the arguments of every role

	environment []string // of every role, beside this process's

	gatewayFlags []string
	workerless   bool              // they come later
	metrics      map[string]string // where a role shows its metrics, by its name
	clocks       string            // the folder of those that tests set; empty: all have the host's
	descriptors  int               // that the gateway may have; 0: as many as this process

	data  string // the data folder
	links *links // where each role reaches the server through a network that may fail; else nil
}

// newCluster returns a cluster without roles. Roles that are added are killed at the end of the test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	program := build(t)
	// The path of a socket in the data folder must stay short, so not below the test's own folder.
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		log: &journal{}, program: program, gateway: freePort(t), account: "acct_crash", key: "sk_crash_0123456789",
		data: filepath.Join(dir, "data"),
	}
	c.shared = []string{"--json", "--log-level", "info"}
	t.Cleanup(func() {
		for _, p := range slices.Backward(c.roles) {
			p.kill()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
		if t.Failed() {
			t.Logf("the last lines of the processes:\n%s", c.log)
		}
	})
	return c
}

// role adds a process. The first of its arguments is the command.
func (c *cluster) role(name string, args ...string) {
	args = slices.Concat(args, []string{"--data-dir", c.data}, c.shared)
	if address := c.metrics[name]; address != "" && name != "gateway" { // which shows them to its clients
		args = append(args, "--metrics-listen", address)
	}
	p := &process{name: name, program: c.program, args: args, log: c.log}
	if c.clocks != "" {
		p.clock = c.clock(name)
	}
	c.roles = append(c.roles, p)
}

// credential is the credential with which roles connect to the NATS server. They find it in the data folder.
type credential struct{ URL, User, Password string }

func (c *cluster) credential(t *testing.T) (r credential) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.data, "role.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// identity returns the arguments with which a role creates the account of the cluster.
func (c *cluster) identity() []string { return []string{"--account", c.account, "--key", c.key} }

// workers adds two that share the work.
func (c *cluster) workers(ctx context.Context, t *testing.T, flags ...string) {
	t.Helper()
	args := append([]string{"worker", "--slots", "16", "--pool", "1"}, flags...)
	if !canIsolate(ctx, c.program) {
		t.Log("this host cannot isolate commands: the workers run them without a sandbox")
		args = append(args, "--allow-unisolated")
	}
	c.role("worker-1", args...)
	c.role("worker-2", args...)
}

// startMissing starts every role that does not run.
func (c *cluster) startMissing(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range c.roles {
		if p.alive() {
			continue
		}
		p.kill()
		if err := p.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// option adds roles, or changes those that startCluster starts. It returns the flags of the workers.
type option func(c *cluster, worker []string) []string

// startCluster starts a server of the log, a gateway and two workers.
func startCluster(ctx context.Context, t *testing.T, options ...option) *cluster {
	t.Helper()
	c := newCluster(t)
	server := freePort(t)
	c.role("server", append([]string{"server", "--nats-listen", server}, c.identity()...)...)
	var worker []string
	for _, o := range options {
		worker = o(c, worker)
	}
	c.role("gateway", slices.Concat([]string{"gateway", "--listen", c.gateway}, c.gatewayFlags, c.identity())...)
	if c.descriptors > 0 {
		c.roles[len(c.roles)-1].holds(c.descriptors)
	}
	if !c.workerless {
		c.workers(ctx, t, worker...)
	}
	for i, p := range c.roles {
		p.environment = c.environment
		if i > 0 && c.links != nil {
			c.links.lead(ctx, t, c, p, server)
		}
		if err := p.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// startPair starts a server of the log and a gateway.
func startPair(ctx context.Context, t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.role("server", append([]string{"server", "--nats-listen", freePort(t)}, c.identity()...)...)
	c.role("gateway", append([]string{"gateway", "--listen", c.gateway}, c.identity()...)...)
	c.startMissing(ctx, t)
	return c
}

// startOnServers starts a gateway and two workers on an outside log.
func startOnServers(ctx context.Context, t *testing.T, servers *natstest.Cluster) *cluster {
	t.Helper()
	c := newCluster(t)
	user, password := servers.User()
	c.shared = append(c.shared, "--nats-url", servers.URL(), "--nats-user", user, "--nats-password", password)
	c.role("gateway", append([]string{"gateway", "--listen", c.gateway, "--replicas", "3", "--shards", "1"}, c.identity()...)...)
	c.workers(ctx, t)
	c.startMissing(ctx, t)
	return c
}

// withDelivery adds the role that delivers, and lets as many jobs run as the test has.
func withDelivery(c *cluster, worker []string) []string {
	c.role("deliver", "deliver", "--webhook-allow-loopback", "--webhook-allow-http")
	c.gatewayFlags = append(c.gatewayFlags, "--webhook-allow-http")
	return append(worker, "--sandbox-jobs", "500", "--probe-every", "2s")
}

// withoutWorkers leaves the workers to the test.
func withoutWorkers(c *cluster, worker []string) []string {
	c.workerless = true
	return worker
}

// withRedis has the caps counted there.
func withRedis(url string) option {
	return func(c *cluster, worker []string) []string {
		c.gatewayFlags = append(c.gatewayFlags, "--redis-url", url)
		return append(worker, "--redis-url", url)
	}
}

// canIsolate asks the doctor, whose exit code says whether this host can make a sandbox.
func canIsolate(ctx context.Context, program string) bool {
	cmd := exec.CommandContext(ctx, program, "doctor", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	cmd.Env = settings(os.Environ())
	return cmd.Run() == nil
}
