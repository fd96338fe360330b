package crashtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// size is how much a run of the suite does.
type size struct {
	calls   int
	naps    time.Duration // the longest that a call sleeps
	kills   int           // at least so many of each role
	between time.Duration // the longest pause between two kills
	ends    time.Duration // when the test gives up
}

func sizeOf(t *testing.T) size {
	t.Helper()
	switch v := os.Getenv("SANDJET_CRASH"); v {
	case "", "short":
		return size{calls: 60, naps: 500 * time.Millisecond, kills: 1, between: 1500 * time.Millisecond, ends: 8 * time.Minute}
	case "long":
		return size{calls: 500, naps: 2 * time.Second, kills: 4, between: 2 * time.Second, ends: 8 * time.Minute}
	default:
		t.Fatalf("SANDJET_CRASH=%q: use short or long", v)
		return size{}
	}
}

// TestEveryCallOnceInSpiteOfKills holds Sandjet to its first two promises: while calls are in
// flight, each role is killed with SIGKILL again and again and started anew. At the end every call
// has exactly one result, and none has run twice: each appends its id to a file of the workspace.
func TestEveryCallOnceInSpiteOfKills(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		missing(t, "the go command, to build the processes that are killed")
	}
	s := sizeOf(t)
	seed := seedOf(t)
	t.Logf("%d calls, SANDJET_CRASH_SEED=%d", s.calls, seed)
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()

	c := startCluster(ctx, t, build(t))
	calls := newCalls(s, rand.New(rand.NewPCG(seed, 1)))
	chaos, quiet := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() { c.killAtRandom(chaos, t, s, rand.New(rand.NewPCG(seed, 2))) })
	accepted := c.submit(ctx, t, calls)
	results := c.results(ctx, t, accepted)
	c.awaitKills(ctx, t, s.kills)
	quiet()
	killer.Wait()
	c.startMissing(ctx, t)

	c.check(ctx, t, accepted, results)
	if t.Failed() {
		t.Logf("the last lines of the processes:\n%s", c.log)
	}
}

// seedOf is the seed of a run: a new one, or that of a run to be repeated.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	v := os.Getenv("SANDJET_CRASH_SEED")
	if v == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("SANDJET_CRASH_SEED: %v", err)
	}
	return n
}

// wanted is one call of the test.
type wanted struct {
	id           string
	conversation string
	command      string
}

const mark = "ran.txt"

func newCalls(s size, r *rand.Rand) []wanted {
	calls := make([]wanted, s.calls)
	for i := range calls {
		id := fmt.Sprintf("crash-%04d", i)
		nap := time.Duration(r.Int64N(int64(s.naps)))
		calls[i] = wanted{
			id: id, conversation: fmt.Sprintf("crash-%d", i%10), // some share a conversation
			// Short lines are appended in one write, so they never mix.
			command: fmt.Sprintf("echo %s >> %s; sleep %.3f; echo done %s", id, mark, nap.Seconds(), id),
		}
	}
	return calls
}

// cluster is all roles on one data folder.
type cluster struct {
	log     *journal
	roles   []*process // server, gateway, worker, worker
	gateway string
	account string
	key     string

	gatewayFlags []string

	data  string // the data folder
	links *links // where each role reaches the server through a network that may fail; else nil
}

// withDelivery adds the role that delivers, and lets as many jobs run as the test has.
func withDelivery(c *cluster, role func(name string, args ...string), worker []string) []string {
	role("deliver", "deliver", "--webhook-allow-loopback", "--webhook-allow-http")
	c.gatewayFlags = append(c.gatewayFlags, "--webhook-allow-http")
	return append(worker, "--sandbox-jobs", "500", "--probe-every", "2s")
}

// withRedis has the caps counted there.
func withRedis(url string) option {
	return func(c *cluster, _ func(string, ...string), worker []string) []string {
		c.gatewayFlags = append(c.gatewayFlags, "--redis-url", url)
		return append(worker, "--redis-url", url)
	}
}

type option func(c *cluster, role func(name string, args ...string), worker []string) []string

func startCluster(ctx context.Context, t *testing.T, program string, options ...option) *cluster {
	t.Helper()
	// The path of a socket in the data folder must stay short, so not below the test's own folder.
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		log: &journal{}, gateway: freePort(t), account: "acct_crash", key: "sk_crash_0123456789", data: filepath.Join(dir, "data"),
	}
	server := freePort(t)
	role := func(name string, args ...string) {
		args = append(args, "--data-dir", c.data, "--json", "--log-level", "info")
		c.roles = append(c.roles, &process{name: name, program: program, args: args, log: c.log})
	}
	identity := []string{"--account", c.account, "--key", c.key}
	role("server", append([]string{"server", "--nats-listen", server}, identity...)...)
	worker := []string{"worker", "--slots", "16", "--pool", "1"}
	for _, o := range options {
		worker = o(c, role, worker)
	}
	role("gateway", append(append([]string{"gateway", "--listen", c.gateway}, c.gatewayFlags...), identity...)...)
	if !canIsolate(ctx, program) {
		t.Log("this host cannot isolate commands: the workers run them without a sandbox")
		worker = append(worker, "--allow-unisolated")
	}
	role("worker-1", worker...)
	role("worker-2", worker...)
	t.Cleanup(func() {
		for _, p := range slices.Backward(c.roles) {
			p.kill()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	for i, p := range c.roles {
		if i > 0 && c.links != nil {
			c.links.lead(ctx, t, c, p, server)
		}
		if err := p.start(ctx); err != nil {
			t.Fatalf("%v\n%s", err, c.log)
		}
	}
	return c
}

// canIsolate asks the doctor, whose exit code says whether this host can make a sandbox.
func canIsolate(ctx context.Context, program string) bool {
	cmd := exec.CommandContext(ctx, program, "doctor", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	cmd.Env = settings(os.Environ())
	return cmd.Run() == nil
}

// killAtRandom kills a role and starts it again after a while, over and over, until ctx ends. Now
// and then it takes two at once.
func (c *cluster) killAtRandom(ctx context.Context, t *testing.T, s size, r *rand.Rand) {
	t.Helper()
	var next []int // as cards are dealt: by chance, but everybody's turn comes
	for ctx.Err() == nil {
		pause(ctx, time.Duration(r.Int64N(int64(s.between))))
		if ctx.Err() != nil {
			return
		}
		if len(next) == 0 {
			next = r.Perm(len(c.roles))
		}
		victims := []*process{c.roles[next[0]]}
		next = next[1:]
		if r.IntN(4) == 0 {
			if other := c.roles[r.IntN(len(c.roles))]; other != victims[0] {
				victims = append(victims, other)
			}
		}
		for _, p := range victims {
			c.log.note("--- kill -9 " + p.name)
			if !p.alive() {
				t.Errorf("%s had ended by itself", p.name)
			}
			p.kill()
		}
		pause(ctx, time.Duration(r.Int64N(int64(s.between))))
		var up sync.WaitGroup
		for _, p := range victims { // at the same time: one may need the other
			up.Go(func() { c.revive(t, p) })
		}
		up.Wait()
	}
}

// revive starts a killed process again. A role that finds the log away may say so and end: whoever
// supervises it starts it again, and so does this test.
func (c *cluster) revive(t *testing.T, p *process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := p.start(ctx)
		if err == nil {
			c.log.note("--- up again: " + p.name)
			p.mu.Lock()
			p.kills++
			p.mu.Unlock()
			return
		}
		p.kill()
		c.log.note("--- not up: " + err.Error())
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Errorf("%s does not come up again: %v", p.name, err)
			return
		}
	}
}

// awaitKills waits until each role was killed often enough, so that no seed makes the test easy.
func (c *cluster) awaitKills(ctx context.Context, t *testing.T, least int) {
	t.Helper()
	for _, p := range c.roles {
		for {
			p.mu.Lock()
			n := p.kills
			p.mu.Unlock()
			if n >= least {
				break
			}
			if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
				t.Fatalf("%s was killed %d times, want %d", p.name, n, least)
			}
		}
	}
}

func (c *cluster) startMissing(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range c.roles {
		if !p.alive() {
			p.kill()
			if err := p.start(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// missing skips with the name of what is not there, or fails where it has to be.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing, and CI=true", what)
	}
	t.Skipf("%s is missing", what)
}

// lines splits what a command printed.
func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}
