package modaltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// The credentials that the service takes.
const (
	TokenID     = "ak-0123456789abcdef012345"
	TokenSecret = "as-0123456789abcdef012345"
)

// BuiltImage is the id of an image that is there.
const BuiltImage = "im-0123456789abcdef012345"

// Options are the settings of a service.
type Options struct {
	MaxRunning int           // sandboxes at a time; 0: 20
	ListLag    int           // how many lists a new sandbox is missing from
	TokenLife  time.Duration // of what is given for the credentials, and of a router's credentials; 0: 20 minutes
	ClockAhead time.Duration // by which its clock is ahead of this host's
	StartTwice bool          // it forgets the ids of processes: who says one twice starts two, which the service does not do
	NoMarks    bool          // processes cannot have the limit by which those of a command are known
	NoVolumes  bool          // the credentials may not make them
	App        string        // an app that is there from the beginning; empty: there is none
}

// Service simulates the control plane and all sandboxes. Its methods are safe for concurrent use.
type Service struct {
	opt    Options
	dir    string
	server *grpc.Server
	work   sync.WaitGroup
	faults faults

	mu      sync.Mutex
	conns   map[string]net.Conn // by the other side's address
	address string
	apps    map[string]string // ids, by name
	images  map[string]bool   // whether it is built, by id
	volumes map[string]string // ids, by name
	boxes   map[string]*box   // also those that have ended
	tokens  map[string]time.Time
	made    int
	reloads int
	starts  int // of processes
}

// Start starts a service and returns its address. The service and its sandboxes end with tb. If no sandboxes can be made here the test is
// skipped; if CI is set it fails instead.
func Start(tb testing.TB, o Options) (*Service, string) {
	tb.Helper()
	servicetest.Need(tb)
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := New(tb.TempDir(), o)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener) }) // it ends with Close
	tb.Cleanup(func() {
		s.Close()
		serving.Wait()
	})
	return s, "http://" + listener.Addr().String()
}

// New is a service with its files in a folder. The caller serves and closes it.
func New(dir string, o Options) *Service {
	servicetest.CloseOnExec()
	o.MaxRunning, o.TokenLife = cmp.Or(o.MaxRunning, 20), cmp.Or(o.TokenLife, 20*time.Minute)
	s := &Service{
		opt: o, dir: dir, conns: map[string]net.Conn{}, apps: map[string]string{}, images: map[string]bool{BuiltImage: true},
		volumes: map[string]string{}, boxes: map[string]*box{}, tokens: map[string]time.Time{},
	}
	if o.App != "" {
		s.apps[o.App] = "ap-" + random()
	}
	s.server = grpc.NewServer(
		grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream), grpc.MaxRecvMsgSize(16<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterModalClientServer(s.server, &control{s: s})
	pb.RegisterTaskCommandRouterServer(s.server, &router{s: s})
	return s
}

// Serve answers at a listener until the service is closed.
func (s *Service) Serve(l net.Listener) error {
	s.mu.Lock()
	s.address = l.Addr().String()
	s.mu.Unlock()
	return s.server.Serve(&listener{l, s})
}

// Run serves the service at an address until ctx ends.
func (s *Service) Run(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.server.Stop)
	defer stop()
	defer s.Close()
	if err := s.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Close ends the service and all sandboxes.
func (s *Service) Close() {
	s.mu.Lock()
	for _, b := range s.boxes {
		b.terminate(pb.GenericResult_GENERIC_STATUS_TERMINATED)
	}
	s.mu.Unlock()
	s.server.Stop()
	s.work.Wait()
}

// listener knows its connections, so that one of them can be broken.
type listener struct {
	net.Listener
	s *Service
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.s.mu.Lock()
		l.s.conns[c.RemoteAddr().String()] = c
		l.s.mu.Unlock()
	}
	return c, err
}

// Fail adds a fault, which applies f.Times times.
func (s *Service) Fail(f Fault) { s.faults.add(f) }

// Boxes returns the ids of the running sandboxes.
func (s *Service) Boxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, b := range s.boxes {
		if b.result == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Made returns how many sandboxes were ever made, Starts how many processes were started, Reloads how often volumes were reloaded.
func (s *Service) Made() int { return s.count(&s.made) }

// Starts is described at Made.
func (s *Service) Starts() int { return s.count(&s.starts) }

// Reloads is described at Made.
func (s *Service) Reloads() int { return s.count(&s.reloads) }

func (s *Service) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

// Idle ends a sandbox as if it was unused for its idle time, Expire as if its lifetime had ended, Break as if its machine had failed.
func (s *Service) Idle(id string) { s.ends(id, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT) }

// Expire is described at Idle.
func (s *Service) Expire(id string) { s.ends(id, pb.GenericResult_GENERIC_STATUS_TIMEOUT) }

// Break is described at Idle.
func (s *Service) Break(id string) { s.ends(id, pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE) }

func (s *Service) ends(id string, why pb.GenericResult_GenericStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		b.terminate(why)
	}
}

// Revoke invalidates all issued tokens, including those of routers.
func (s *Service) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]time.Time{}
}

// Cut breaks all connections.
func (s *Service) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// Created returns the request that created a sandbox.
func (s *Service) Created(id string) *pb.SandboxCreateV2Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b.request
	}
	return nil
}

// Folders returns the folders with the files of volumes.
func (s *Service) Folders() []string {
	found, _ := filepath.Glob(filepath.Join(s.dir, "volumes", "*")) // the pattern is right
	return found
}

// token issues a new token. The lock is held.
func (s *Service) token(of string) string {
	end := time.Now().Add(s.opt.ClockAhead + s.opt.TokenLife)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	t := part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"exp":%d,"for":%q,"n":%q}`, end.Unix(), of, random())) + "." + part("signature")
	s.tokens[t] = time.Now().Add(s.opt.TokenLife)
	return t
}

// takes reports whether a token is valid for of.
func (s *Service) takes(token, of string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.tokens[token]
	if !ok || time.Now().After(end) {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	return err == nil && strings.Contains(string(text), fmt.Sprintf(`"for":%q`, of))
}

func random() string {
	var b [11]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (s *Service) folder(kind, id string) (string, error) {
	dir := filepath.Join(s.dir, kind, id)
	return dir, os.MkdirAll(dir, 0o755)
}
