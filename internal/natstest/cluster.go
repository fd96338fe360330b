package natstest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
)

// Members is how many servers a [Cluster] has.
const Members = 3

const clusterPassword = "cluster"

// ClusterOptions configure a [Cluster].
type ClusterOptions struct {
	// Lag delays the traffic on the routes of the last member, each way, so that its replicas lag.
	Lag time.Duration
	// MaxPayload is the servers' limit of one message, at least 128 KiB. Default 1 MiB.
	MaxPayload int32
	// Processes runs each member as a process of its own, with the test's program: its TestMain must begin with [ServeMember].
	Processes bool
	// SyncAlways syncs every write before it is acknowledged.
	SyncAlways bool
	// Streams are the options of every Bus. Replicas 0 means 3.
	Streams streams.Options
}

// Cluster is three NATS servers with JetStream on files. Their routes go through proxies, so that they can be delayed and cut. They run in
// this process, or with Processes in others.
type Cluster struct {
	t         testing.TB
	o         ClusterOptions
	dirs      [Members]string
	ports     [Members]int // of client connections
	routes    [Members]int
	servers   [Members]*server.Server
	processes [Members]*process
	logs      [Members]*criticalLog
	proxies   [Members]*faultproxy.Proxy // of the route from each member to the next
}

// StartCluster starts a cluster, and stops it at the end of the test.
func StartCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	tickOutside()
	testwait.ForRealTime(t)
	forgetTimers()
	if o.Streams.Replicas == 0 {
		o.Streams.Replicas = Members
	}
	c := &Cluster{t: t, o: o}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	var proxies sync.WaitGroup
	t.Cleanup(func() {
		for i := range c.servers {
			c.Kill(i)
		}
		cancel()
		proxies.Wait()
	})
	for i := range Members {
		c.dirs[i], c.logs[i], c.ports[i], c.routes[i] = filepath.Join(dir, fmt.Sprint(i)), &criticalLog{}, freePort(t), freePort(t)
	}
	for i := range Members { // each dials the next: a clustered server needs a route to another
		to := (i + 1) % Members
		var f faultproxy.Faults
		if i == Members-1 || to == Members-1 {
			f.Delay = faultproxy.Span{Min: o.Lag, Max: o.Lag}
		}
		p, err := faultproxy.Listen(ctx, fmt.Sprintf("127.0.0.1:%d", c.routes[to]), 1, f)
		if err != nil {
			t.Fatal(err)
		}
		proxies.Go(func() { _ = p.Run(ctx) })
		c.proxies[i] = p
	}
	for i := range Members {
		c.Restart(i)
	}
	c.AwaitReady()
	c.awaitAll()
	return c
}

// awaitAll waits until a stream with a replica on each member can be created.
func (c *Cluster) awaitAll() {
	c.t.Helper()
	const name = "PROBE"
	js := c.JetStream(0)
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"probe"}, Replicas: Members,
			Storage: jetstream.MemoryStorage})
		if err == nil {
			err = js.DeleteStream(ctx, name)
		}
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("the members do not come together: %v", err)
		}
	}
}

// Restart starts a member that was killed, on its files.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	m := member{
		Name: c.Name(i), Port: c.ports[i], Route: c.routes[i], Next: c.proxies[i].Addr(), Dir: c.dirs[i],
		SyncAlways: c.o.SyncAlways, MaxPayload: cmp.Or(c.o.MaxPayload, 1<<20),
	}
	if c.o.Processes {
		c.processes[i] = startProcess(c.t, m, c.logs[i])
		return
	}
	s, err := server.NewServer(m.options())
	if err != nil {
		c.t.Fatal(err)
	}
	s.SetLoggerV2(c.logs[i], false, false, false)
	c.servers[i] = s // shut down at the end of the test in any case
	s.Start()
	for end := time.Now().Add(within); !s.ReadyForConnections(time.Second); {
		if fatal := c.logs[i].fatal(); fatal != "" || time.Now().After(end) {
			c.t.Fatalf("member %d does not take connections: %s", i, fatal)
		}
	}
}

// Name returns the server name of a member.
func (c *Cluster) Name(i int) string { return fmt.Sprintf("n%d", i) }

// Kill ends a member, with SIGKILL if it is a process. It does nothing if the member is not running.
func (c *Cluster) Kill(i int) {
	if s := c.servers[i]; s != nil {
		s.Shutdown()
		s.WaitForShutdown()
		c.servers[i] = nil
	}
	if p := c.processes[i]; p != nil {
		p.signal(syscall.SIGKILL)
		<-p.gone
		c.processes[i] = nil
	}
}

// Stop ends a member that is a process with SIGTERM, as for an upgrade, and waits until it has exited.
func (c *Cluster) Stop(i int) {
	p := c.processes[i]
	p.signal(syscall.SIGTERM)
	<-p.gone
	c.processes[i] = nil
}

// Pause suspends a member that is a process, until [Cluster.Continue].
func (c *Cluster) Pause(i int) { c.processes[i].signal(syscall.SIGSTOP) }

// Continue resumes a member after [Cluster.Pause].
func (c *Cluster) Continue(i int) { c.processes[i].signal(syscall.SIGCONT) }

// Dir returns the folder with a member's files.
func (c *Cluster) Dir(i int) string { return c.dirs[i] }

// Cut separates a member from the others and returns when its routes are gone. Its clients stay connected. It may be called from any
// goroutine.
func (c *Cluster) Cut(i int) {
	c.t.Helper()
	c.link(i, func(p *faultproxy.Proxy, _ int) { p.Aim(); p.CutAll() })
	for end := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		n, err := c.routesOf(i)
		if err == nil && n == 0 {
			return
		}
		if err != nil || time.Now().After(end) {
			c.t.Errorf("member %d is not cut off: it has %d routes: %v", i, n, err)
			return
		}
	}
}

// routesOf returns the number of a member's routes.
func (c *Cluster) routesOf(i int) (int, error) {
	if s := c.servers[i]; s != nil {
		return s.NumRoutes(), nil
	}
	var routes server.Routez
	if p := c.processes[i]; p != nil {
		if err := p.ask("/routez", &routes); err != nil {
			return 0, err
		}
	}
	return routes.NumRoutes, nil
}

// MetaLeader returns the member of this process that is the meta leader; -1 for none.
func (c *Cluster) MetaLeader() int {
	return slices.IndexFunc(c.servers[:], func(s *server.Server) bool { return s != nil && s.JetStreamIsLeader() })
}

// Join reconnects a member after [Cluster.Cut].
func (c *Cluster) Join(i int) {
	c.link(i, func(p *faultproxy.Proxy, to int) { p.Aim(fmt.Sprintf("127.0.0.1:%d", c.routes[to])) })
}

func (c *Cluster) link(i int, do func(p *faultproxy.Proxy, to int)) {
	for from, p := range c.proxies {
		if to := (from + 1) % Members; from == i || to == i {
			do(p, to)
		}
	}
}

// URL returns the addresses of the given members for clients, or of all.
func (c *Cluster) URL(members ...int) string {
	if len(members) == 0 {
		members = []int{0, 1, 2}
	}
	var urls []string
	for _, i := range members {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", c.ports[i]))
	}
	return strings.Join(urls, ",")
}

// User returns the name and the password of clients.
func (c *Cluster) User() (name, password string) { return "sandjet", clusterPassword }

// Options returns the options of a Bus on the given members, or on all.
func (c *Cluster) Options(members ...int) streams.Options {
	o := c.o.Streams
	o.URL, o.User, o.Password = c.URL(members...), "sandjet", clusterPassword
	if o.Log == nil {
		o.Log = logOf(c.t)
	}
	return o
}

// Open opens a Bus on the given members, or on all. It is closed at the end of the test.
func (c *Cluster) Open(members ...int) *streams.Bus {
	c.t.Helper()
	b, err := streams.Open(c.t.Context(), c.Options(members...))
	if err != nil {
		c.t.Fatalf("open the log: %v", err)
	}
	c.t.Cleanup(func() { closeBus(c.t, b) })
	return b
}

// JetStream returns a plain JetStream client of a member.
func (c *Cluster) JetStream(member int) jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(c.URL(member), nats.UserInfo("sandjet", clusterPassword), nats.Timeout(within))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(within))
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// Replicas returns the number of replicas of each stream, including those of buckets and object stores.
func (c *Cluster) Replicas() map[string]int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	list := c.JetStream(0).ListStreams(ctx)
	n := map[string]int{}
	for info := range list.Info() {
		n[info.Config.Name] = info.Config.Replicas
	}
	if err := list.Err(); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// Lead makes a member the leader of the given streams.
func (c *Cluster) Lead(member int, names ...string) {
	c.t.Helper()
	nc, err := nats.Connect(c.URL(member), nats.UserInfo("sandjet", clusterPassword), nats.Timeout(within))
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": c.Name(member)}})
	if err != nil {
		c.t.Fatal(err)
	}
	const again = 2 * time.Second // between requests, of which one may be lost
	end, next := time.Now().Add(within), time.Time{}
	for ; ; time.Sleep(20 * time.Millisecond) {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return c.Leader(name) == member })
		if len(names) == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("not led by member %d: %v", member, names)
		}
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(again)
		for _, name := range names {
			if err := nc.PublishRequest("$JS.API.STREAM.LEADER.STEPDOWN."+name, nc.NewInbox(), body); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// Leader returns the member that leads a stream; -1 for none.
func (c *Cluster) Leader(name string) int {
	for i := range Members {
		if s := c.servers[i]; s != nil && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, name) {
			return i
		}
		if p := c.processes[i]; p != nil && p.leads(name) {
			return i
		}
	}
	return -1
}

// AwaitReady waits until every running member has caught up with the leaders.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		reason := c.unready()
		if reason == "" {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("the cluster is not ready: %s", reason)
		}
	}
}

func (c *Cluster) unready() string {
	for i := range Members {
		if s := c.servers[i]; s != nil {
			if h := s.Healthz(&server.HealthzOptions{}); h.StatusCode != http.StatusOK {
				return fmt.Sprintf("member %d: %s", i, h.Error)
			}
		}
		if p := c.processes[i]; p != nil {
			if reason := p.unready(); reason != "" {
				return fmt.Sprintf("member %d: %s", i, reason)
			}
		}
	}
	return ""
}

// Critical returns the lines of a member's log about failed storage.
func (c *Cluster) Critical(i int) []string {
	l := c.logs[i]
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// criticalLog is a server's logger that stores lines about failed storage.
type criticalLog struct {
	mu    sync.Mutex
	lines []string
	end   string // why the server cannot continue
}

func (l *criticalLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *criticalLog) keep(format string, v ...any) {
	l.line(fmt.Sprintf(format, v...))
}

func (l *criticalLog) line(line string) {
	if !strings.Contains(line, "Critical write error") && !strings.Contains(line, "corrupt") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *criticalLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = fmt.Sprintf(format, v...)
}
func (l *criticalLog) Noticef(format string, v ...any) { l.keep(format, v...) }
func (l *criticalLog) Warnf(format string, v ...any)   { l.keep(format, v...) }
func (l *criticalLog) Errorf(format string, v ...any)  { l.keep(format, v...) }
func (l *criticalLog) Debugf(string, ...any)           {}
func (l *criticalLog) Tracef(string, ...any)           {}
