package e2btest

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
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// The API keys that the service takes, each of a team of its own: neither sees sandboxes and volumes of the other.
const (
	Key      = "e2b_0123456789abcdef0123456789abcdef01234567"
	OtherKey = "e2b_89abcdef0123456789abcdef0123456789abcdef"
)

// Template is the only one that there is.
const Template = "base"

// Options are the settings of a service.
type Options struct {
	MaxRunning int           // sandboxes at a time; 0: 20
	MaxTimeout time.Duration // of a sandbox; 0: an hour
	ListLag    int           // how many lists a new sandbox is missing from
	Later      time.Duration // that each sandbox says it was started later than the one before; below 0: as if in another order
	Skew       time.Duration // that the service's clock is ahead of this host's
	NoVolumes  bool          // the team has none
}

// Service simulates the control plane and all sandboxes. Its methods are safe for concurrent use.
type Service struct {
	opt    Options
	dir    string
	mux    *http.ServeMux
	work   sync.WaitGroup
	faults servicetest.Faults

	mu      sync.Mutex
	boxes   map[string]*box
	volumes map[string]string // ids by name, those of the other team with its key before
	streams map[*stream]bool
	made    int
}

// Start starts a service and returns its address. The service and its sandboxes end with tb. If no sandboxes can be made here the test is
// skipped; if CI is set it fails instead.
func Start(tb testing.TB, o Options) (*Service, string) {
	tb.Helper()
	servicetest.Need(tb)
	s := New(tb.TempDir(), o)
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		s.CutStreams()
		server.CloseClientConnections()
		server.Close()
		s.Close()
	})
	return s, server.URL
}

// New returns a service as an [http.Handler], with its files in a folder. The caller closes it.
func New(dir string, o Options) *Service {
	servicetest.CloseOnExec()
	o.MaxRunning, o.MaxTimeout = cmp.Or(o.MaxRunning, 20), cmp.Or(o.MaxTimeout, time.Hour)
	s := &Service{opt: o, dir: dir, mux: http.NewServeMux(), boxes: map[string]*box{}, volumes: map[string]string{},
		streams: map[*stream]bool{}}
	for route, h := range map[string]func(http.ResponseWriter, *http.Request){
		"POST /v2/sandboxes":              s.create,
		"POST /sandboxes":                 s.create,
		"GET /v2/sandboxes":               s.list,
		"GET /sandboxes/{id}":             s.detail,
		"DELETE /sandboxes/{id}":          s.kill,
		"POST /sandboxes/{id}/pause":      s.pause,
		"POST /sandboxes/{id}/timeout":    s.timeout,
		"POST /sandboxes/{id}/connect":    s.connect,
		"POST /v2/sandboxes/{id}/connect": s.connect,
		"GET /templates/aliases/{alias}":  s.template,
		"GET /volumes":                    s.listVolumes,
		"POST /volumes":                   s.makeVolume,
	} {
		s.mux.HandleFunc(route, s.withKey(h))
	}
	for route, h := range map[string]func(http.ResponseWriter, *http.Request, *box){
		"GET /health":                         func(w http.ResponseWriter, _ *http.Request, _ *box) { w.WriteHeader(http.StatusNoContent) },
		"GET /files":                          s.readFile,
		"POST /files":                         s.writeFile,
		"POST /filesystem.Filesystem/ListDir": s.listDir,
		"POST /process.Process/Start":         s.startProcess,
		"POST /process.Process/Connect":       s.attach,
		"POST /process.Process/List":          s.listProcesses,
		"POST /process.Process/SendInput":     s.sendInput,
		"POST /process.Process/CloseStdin":    s.closeStdin,
		"POST /process.Process/SendSignal":    s.sendSignal,
	} {
		s.mux.HandleFunc(route, s.inBox(h))
	}
	return s
}

// ServeHTTP answers a request, or applies a fault.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.faults.Serve(s.mux, w, r, r.Method+" "+r.URL.Path, fail)
}

// Close ends all sandboxes and waits for their end.
func (s *Service) Close() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.boxes))
	for _, b := range all {
		b.end()
	}
	s.mu.Unlock()
	for _, b := range all {
		if b.Box != nil {
			<-b.Over()
		}
	}
	s.work.Wait()
}

// Boxes returns the ids of all sandboxes, running or paused.
func (s *Service) Boxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.boxes))
	for id := range s.boxes {
		ids = append(ids, id)
	}
	return ids
}

// Made returns how many sandboxes were ever made.
func (s *Service) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Expire ends a sandbox's lifetime now.
func (s *Service) Expire(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		b.expire()
	}
}

// End ends a sandbox as if its machine had failed.
func (s *Service) End(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		b.end()
	}
}

// Created returns the body of the request that created a sandbox; nil if there is no such sandbox.
func (s *Service) Created(id string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b.body
	}
	return nil
}

// volumeOf returns the internal name of a team's volume.
func volumeOf(key, name string) string {
	if key == Key {
		return name
	}
	return key + "/" + name
}

// BoxesOf returns the ids of the sandboxes of the team with that key.
func (s *Service) BoxesOf(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, b := range s.boxes {
		if b.key == key {
			ids = append(ids, id)
		}
	}
	return ids
}

// Volumes returns the names of all volumes.
func (s *Service) Volumes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.volumes))
}

// Volume returns the folder with the files of a volume; empty if there is no such volume.
func (s *Service) Volume(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := s.volumes[name]; id != "" {
		return filepath.Join(s.dir, "volumes", id)
	}
	return ""
}

// withKey refuses requests without the key.
func (s *Service) withKey(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("X-API-Key"); key != Key && key != OtherKey {
			fail(w, http.StatusUnauthorized, "Invalid API key, please visit https://e2b.dev/docs/api-key: %s", r.Header.Get("X-API-Key"))
			return
		}
		h(w, r)
	}
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	servicetest.Answer(w, status, map[string]any{"code": status, "message": fmt.Sprintf(format, args...)})
}

// newID returns a random id in the service's format: lower-case letters and digits.
func newID(prefix string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// missing writes the router's response for a sandbox that does not run.
func missing(w http.ResponseWriter, id string) {
	servicetest.Answer(w, http.StatusBadGateway,
		map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
}

// inBox returns a handler that finds the sandbox of a request, by the headers that the router reads.
func (s *Service) inBox(h func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("E2b-Sandbox-Id")
		s.mu.Lock()
		b := s.boxes[id]
		there := b != nil && !b.started.IsZero() && !b.paused
		s.mu.Unlock()
		switch {
		case !there:
			missing(w, id)
		case r.Header.Get("X-Access-Token") != b.token:
			fail(w, http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported")
		default:
			h(w, r, b)
		}
	}
}

var _ http.Handler = (*Service)(nil)

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
