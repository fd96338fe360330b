package natstest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// memberVariable is set in the environment of a test's program that runs as a server of a [Cluster]. It has the JSON of its member.
const memberVariable = "SANDJET_TEST_MEMBER"

const nowhere = "127.0.0.1:1"

// member is the configuration of a server of a cluster.
type member struct {
	Name       string `json:"name"`
	Port       int    `json:"port"`
	Route      int    `json:"route"`
	Monitor    int    `json:"monitor"` // HTTP port for monitoring; 0: none
	Next       string `json:"next"`    // address of the route that it dials
	Dir        string `json:"dir"`
	SyncAlways bool   `json:"sync_always"`
	MaxPayload int32  `json:"max_payload"`
}

func (m member) options() *server.Options {
	return &server.Options{
		ServerName: m.Name, Host: "127.0.0.1", Port: m.Port, NoSigs: true, DisableJetStreamBanner: true,
		HTTPHost: "127.0.0.1", HTTPPort: m.Monitor,
		JetStream: true, StoreDir: m.Dir, JetStreamMaxStore: 8 << 30, JetStreamMaxMemory: 1 << 30, SyncAlways: m.SyncAlways,
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: -1}, MaxPayload: m.MaxPayload, PingInterval: 10 * time.Second,
		// Members announce their addresses to each other, and would then connect directly, past the proxies. So they announce an address
		// where nothing listens.
		Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: m.Route, NoAdvertise: true, PoolSize: 1, Advertise: nowhere},
		Routes:  []*url.URL{{Scheme: "nats-route", Host: m.Next}},
		Users:   []*server.User{{Username: "sandjet", Password: clusterPassword}},
	}
}

// ServeMember runs a server of a [Cluster] and exits, if the process was started as one. In any other process it does nothing.
func ServeMember() {
	text := os.Getenv(memberVariable)
	if text == "" {
		return
	}
	os.Exit(serveMember(text))
}

func serveMember(text string) int {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := m.options()
	o.NoLog = false
	s, err := server.NewServer(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.ConfigureLogger()
	orphan := make(chan struct{})
	go func() { // the test's process has the other end, which closes with it
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(orphan)
	}()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	s.Start()
	select {
	case <-orphan:
	case <-asked:
	}
	s.Shutdown()
	s.WaitForShutdown()
	return 0
}

// process is a member that runs as a process.
type process struct {
	cmd     *exec.Cmd
	gone    chan struct{}
	monitor string
}

func startProcess(t testing.TB, m member, log *criticalLog) *process {
	t.Helper()
	m.Monitor = freePort(t)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self), gone: make(chan struct{}),
		monitor: fmt.Sprintf("http://127.0.0.1:%d", m.Monitor)}
	p.cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.gone)
		defer in.Close() //nolint:errcheck // it has ended
		for lines := bufio.NewScanner(out); lines.Scan(); {
			log.line(m.Name + ": " + lines.Text())
		}
		_ = p.cmd.Wait()
	}()
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

func (p *process) ask(path string, answer any) error {
	c := http.Client{Timeout: 2 * time.Second}
	r, err := c.Get(p.monitor + path) //nolint:noctx // it has a timeout
	if err != nil {
		return fmt.Errorf("ask a server: %w", err)
	}
	defer r.Body.Close() //nolint:errcheck // read only
	if err := json.NewDecoder(r.Body).Decode(answer); err != nil {
		return fmt.Errorf("ask a server: %w", err)
	}
	return nil
}

func (p *process) unready() string {
	var health struct{ Status, Error string }
	if err := p.ask("/healthz", &health); err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(health.Status+health.Error, "ok")
}

func (p *process) leads(stream string) bool {
	var js struct {
		Accounts []struct {
			Streams []struct {
				Name    string
				Cluster struct{ Leader string }
			} `json:"stream_detail"`
		} `json:"account_details"`
		Meta struct{ Name string } `json:"meta_cluster"`
	}
	var v struct {
		Name string `json:"server_name"`
	}
	if p.ask("/varz", &v) != nil || p.ask("/jsz?streams=true", &js) != nil {
		return false
	}
	for _, a := range js.Accounts {
		for _, s := range a.Streams {
			if s.Name == stream {
				return s.Cluster.Leader == v.Name
			}
		}
	}
	return false
}
