package denotest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// Token is the organization's token that the service takes, and PersonalToken one that needs the header of the organization Org.
const (
	Token         = "ddo_0123456789abcdef0123456789abcdef"
	PersonalToken = "ddp_0123456789abcdef0123456789abcdef"
	Org           = "acme"
)

// User is that of sandboxes.
const User = "app"

// Options are the settings of a service.
type Options struct {
	MaxRunning int           // sandboxes at a time; 0: 20
	MaxLife    time.Duration // of a sandbox, however often its time is put off; 0: as long as that is done
	Clock      time.Duration // that its clock is before this host's
	ListLag    int           // how many lists a new sandbox is missing from
	Later      time.Duration // that each sandbox says it was made later than the one before; below 0: as if in another order
	NoVolumes  bool          // the organization has none
}

// Fault is something that goes wrong. The route of a message of a WebSocket is "RPC" and its method. Of those: a Status is an error of
// JSON-RPC; Drop and Slow are the connection's.
type Fault = servicetest.Fault

// The moments at which a connection is dropped.
const (
	Before = servicetest.Before // the request is read, and nothing is done
	After  = servicetest.After  // it was carried out, and the answer is lost
	Half   = servicetest.Half   // it was carried out, and half of the answer arrives
)

// Service simulates the API and all sandboxes. Its methods are safe for concurrent use.
type Service struct {
	opt    Options
	dir    string
	mux    *http.ServeMux
	work   sync.WaitGroup
	faults servicetest.Faults

	mu        sync.Mutex
	boxes     map[string]*box // also those that have stopped
	volumes   map[string]*volume
	snapshots map[string]*volume
	sockets   map[*socket]bool
	made      int
	spawned   int
	ended     int  // see [Service.Ended]
	closing   bool // sockets that open now are cut at once
}

// volume is a volume or a snapshot.
type volume struct {
	id, slug, region string
	capacity         int64
	bootable         bool
	from             string // of a snapshot the volume, of a volume the snapshot
	holder           *box   // that it is in
}

// Start starts a service and returns its address. The service and its sandboxes end with tb. If no sandboxes can be made here the test is
// skipped; if CI is set it fails instead.
func Start(tb testing.TB, o Options) (*Service, string) {
	tb.Helper()
	servicetest.Need(tb)
	s := New(tb.TempDir(), o)
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		s.end()
		s.CutSockets()
		server.CloseClientConnections()
		server.Close()
		s.Close()
	})
	return s, server.URL
}

// New returns a service as an [http.Handler], with its files in a folder. The caller closes it.
func New(dir string, o Options) *Service {
	servicetest.CloseOnExec()
	o.MaxRunning = cmp.Or(o.MaxRunning, 20)
	s := &Service{
		opt: o, dir: dir, mux: http.NewServeMux(), boxes: map[string]*box{}, volumes: map[string]*volume{}, snapshots: map[string]*volume{},
		sockets: map[*socket]bool{},
	}
	for route, h := range map[string]http.HandlerFunc{
		"GET /api/v3/sandboxes/create":         s.create,
		"GET /api/v3/sandbox/{id}/connect":     s.connect,
		"PATCH /api/v3/sandbox/{id}":           s.extend,
		"DELETE /api/v3/sandbox/{id}":          s.kill,
		"GET /api/v2/sandboxes":                s.list,
		"GET /api/v2/volumes":                  s.listVolumes,
		"POST /api/v2/volumes":                 s.makeVolume,
		"GET /api/v2/volumes/{id}":             s.getVolume,
		"DELETE /api/v2/volumes/{id}":          s.deleteVolume,
		"POST /api/v2/volumes/{id}/snapshot":   s.makeSnapshot,
		"GET /api/v2/snapshots/{id}":           s.getSnapshot,
		"DELETE /api/v2/snapshots/{id}":        s.deleteSnapshot,
		"POST /api/v3/sandbox/{id}/expose/ssh": s.unknown,
	} {
		s.mux.HandleFunc(route, s.withToken(h))
	}
	return s
}

// now returns the time of the service's clock.
func (s *Service) now() time.Time { return time.Now().Add(s.opt.Clock) }

// ServeHTTP answers a request, or applies a fault.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.work.Add(1) // so that what it starts is counted before a caller waits for the last
	defer s.work.Done()
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	w.Header().Set("X-Deno-Trace-Id", newID(16))
	s.faults.Serve(s.mux, w, r, r.Method+" "+r.URL.Path, fail)
}

// Fail adds a fault, which applies f.Times times.
func (s *Service) Fail(f Fault) { s.faults.Add(f) }

// withToken refuses requests without a valid token.
func (s *Service) withToken(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token == Token || token == PersonalToken && r.Header.Get("X-Deno-Org") == Org {
			h(w, r)
			return
		}
		refuse(w, http.StatusUnauthorized, "INVALID_TOKEN", "The token %s is invalid or expired", token)
	}
}

func (s *Service) unknown(w http.ResponseWriter, r *http.Request) {
	refuse(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", "%s", r.URL.Path)
}

// refuse writes an error response in the service's form.
func refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	servicetest.Answer(w, status, map[string]string{"code": code, "message": fmt.Sprintf(format, args...)})
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	code := map[int]string{http.StatusUnauthorized: "INVALID_TOKEN", http.StatusTooManyRequests: "RATE_LIMITED"}[status]
	refuse(w, status, cmp.Or(code, "INTERNAL"), format, args...)
}

// newID returns a random text of n lower-case letters and digits.
func newID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)[:n]
}

// end ends all sandboxes, without waiting.
func (s *Service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		b.end()
	}
}

// Close ends all sandboxes and waits for their end.
func (s *Service) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.end()
	s.CutSockets()
	s.work.Wait()
}

// Run serves the service at an address until ctx ends.
func (s *Service) Run(ctx context.Context, address string) error {
	server := &http.Server{Addr: address, Handler: s, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	defer s.Close()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// CutSockets breaks all WebSockets, as if a router in between had failed.
func (s *Service) CutSockets() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.sockets))
	s.mu.Unlock()
	for _, c := range all {
		_ = c.conn.NetConn().Close()
	}
}

// Boxes returns the ids of all sandboxes.
func (s *Service) Boxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, b := range s.boxes {
		if !b.ending {
			ids = append(ids, id)
		}
	}
	return ids
}

// Ended makes lists begin with that many bytes about stopped sandboxes, which the service's lists contain.
func (s *Service) Ended(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = size
}

// Made returns how many sandboxes were ever made.
func (s *Service) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Spawned returns how many processes were ever started over WebSockets.
func (s *Service) Spawned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spawned
}

// End ends a sandbox as if its time had ended or its machine had failed.
func (s *Service) End(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		b.end()
	}
}

// Created returns the decoded request that created a sandbox; nil if there is no such sandbox.
func (s *Service) Created(id string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b.body
	}
	return nil
}

// Stops returns when a sandbox stops, by the service's clock; the zero time if it stops with the connection that made it.
func (s *Service) Stops(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b.stops
	}
	return time.Time{}
}

// Volumes returns the folders with the files of all volumes.
func (s *Service) Volumes() []string {
	found, _ := filepath.Glob(filepath.Join(s.dir, "volumes", "*")) // the pattern is right
	return found
}

var upgrader = websocket.Upgrader{HandshakeTimeout: 10 * time.Second} //nolint:gochecknoglobals // it has no state

var _ http.Handler = (*Service)(nil)
