package daytonatest

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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// Key is the API key that the service takes.
const Key = "dtn_0123456789abcdef0123456789abcdef"

// Snapshot is the only one that there is.
const Snapshot = "daytona-small"

// Options are the settings of a service.
type Options struct {
	MaxRunning int           // sandboxes at a time; 0: 20
	Looks      int           // after how many looks at a sandbox it has changed its state; 0: 1
	ListLag    int           // how many lists a new sandbox is missing from
	NoVolumes  bool          // the key may not use them
	Skew       time.Duration // that the service's clock is ahead of this host's
	OwnNetwork bool          // the organization may not set networks: what is asked for is not kept
}

// Fault is something that goes wrong. Its route has neither "/api" nor the way to a toolbox.
type Fault = servicetest.Fault

// The moments at which a connection is dropped.
const (
	Before = servicetest.Before // the request is read, and nothing is done
	After  = servicetest.After  // it was carried out, and the answer is lost
	Half   = servicetest.Half   // it was carried out, and half of the answer arrives
)

// Service simulates the control plane and all sandboxes. Its methods are safe for concurrent use.
type Service struct {
	opt    Options
	dir    string
	mux    *http.ServeMux
	work   sync.WaitGroup
	faults servicetest.Faults

	mu      sync.Mutex
	boxes   map[string]*box
	volumes map[string]*volume // by name
	made    int
}

type volume struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Org   string `json:"organizationId"`
	State string `json:"state"`
	Made  string `json:"createdAt"`
	Last  string `json:"updatedAt"`
}

// Start starts a service and returns the address of its API. The service and its sandboxes end with tb. If no sandboxes can be made here
// the test is skipped; if CI is set it fails instead.
func Start(tb testing.TB, o Options) (*Service, string) {
	tb.Helper()
	servicetest.Need(tb)
	s := New(tb.TempDir(), o)
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		s.end()
		server.CloseClientConnections()
		server.Close()
		s.Close()
	})
	return s, server.URL + "/api"
}

// New returns a service as an [http.Handler], with its files in a folder. The caller closes it.
func New(dir string, o Options) *Service {
	servicetest.CloseOnExec()
	o.MaxRunning, o.Looks = cmp.Or(o.MaxRunning, 20), cmp.Or(o.Looks, 1)
	s := &Service{opt: o, dir: dir, mux: http.NewServeMux(), boxes: map[string]*box{}, volumes: map[string]*volume{}}
	for route, h := range map[string]http.HandlerFunc{
		"POST /api/sandbox":                       s.create,
		"GET /api/sandbox":                        s.list,
		"GET /api/sandbox/{id}":                   s.one(s.detail),
		"DELETE /api/sandbox/{id}":                s.one(s.remove),
		"POST /api/sandbox/{id}/start":            s.one(s.start),
		"POST /api/sandbox/{id}/stop":             s.one(s.stop),
		"POST /api/sandbox/{id}/recover":          s.one(s.recover),
		"POST /api/sandbox/{id}/last-activity":    s.one(s.lastActivity),
		"POST /api/sandbox/{id}/autostop/{n}":     s.one(s.interval),
		"POST /api/sandbox/{id}/autodelete/{n}":   s.one(s.interval),
		"PUT /api/sandbox/{id}/labels":            s.one(s.setLabels),
		"GET /api/sandbox/{id}/toolbox-proxy-url": s.one(s.proxyURL),
		"GET /api/snapshots/{id}":                 s.snapshot,
		"GET /api/volumes":                        s.listVolumes,
		"POST /api/volumes":                       s.makeVolume,
		"GET /api/volumes/by-name/{name}":         s.volumeByName,
	} {
		s.mux.HandleFunc(route, s.withKey(h))
	}
	for route, h := range map[string]func(http.ResponseWriter, *http.Request, *box){
		"POST /toolbox/{id}/process/execute":                             s.execute,
		"POST /toolbox/{id}/process/session":                             s.makeSession,
		"GET /toolbox/{id}/process/session":                              s.listSessions,
		"DELETE /toolbox/{id}/process/session/{session}":                 s.endSession,
		"POST /toolbox/{id}/process/session/{session}/exec":              s.sessionExec,
		"GET /toolbox/{id}/process/session/{session}/command/{cmd}":      s.sessionCommand,
		"GET /toolbox/{id}/process/session/{session}/command/{cmd}/logs": s.sessionLogs,
		"POST /toolbox/{id}/files/upload-v2":                             s.upload,
		"POST /toolbox/{id}/files/bulk-upload":                           s.upload,
		"POST /toolbox/{id}/files/bulk-download":                         s.bulkDownload,
		"GET /toolbox/{id}/files/download":                               s.download,
		"GET /toolbox/{id}/files":                                        s.listFiles,
		"DELETE /toolbox/{id}/files":                                     s.deleteFile,
	} {
		s.mux.HandleFunc(route, s.withKey(s.inBox(h)))
	}
	return s
}

// ServeHTTP answers a request, or applies a fault.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api")
	if rest, ok := strings.CutPrefix(path, "/toolbox/"); ok {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	s.faults.Serve(s.mux, w, r, r.Method+" "+path, fail)
}

// Fail adds a fault, which applies f.Times times.
func (s *Service) Fail(f Fault) { s.faults.Add(f) }

// end ends all sandboxes, without waiting.
func (s *Service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		b.destroy()
	}
}

// Close ends all sandboxes and waits for their end.
func (s *Service) Close() {
	s.end()
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

// Boxes returns the ids of all sandboxes, in any state except those being deleted.
func (s *Service) Boxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, b := range s.boxes {
		if b.state != "destroying" {
			ids = append(ids, id)
		}
	}
	return ids
}

// Made returns how many sandboxes were ever made.
func (s *Service) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Idle treats a sandbox as unused for its idle time.
func (s *Service) Idle(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		b.idle()
	}
}

// Break ends a sandbox as if its machine had failed.
func (s *Service) Break(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		b.destroy()
	}
}

// Damage stops a sandbox by a simulated failure, from which it is recoverable or not.
func (s *Service) Damage(id string, recoverable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil && b.running != nil {
		b.running.End()
		b.state, b.next, b.recoverable = "error", "", recoverable
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

// Folders returns the folders with the files of workspaces, in all volumes.
func (s *Service) Folders() []string {
	found, _ := filepath.Glob(filepath.Join(s.dir, "volumes", "*", "*")) // the pattern is right
	return found
}

// withKey refuses requests without the key.
func (s *Service) withKey(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+Key {
			fail(w, http.StatusUnauthorized, "Invalid credentials %s", r.Header.Get("Authorization"))
			return
		}
		h(w, r)
	}
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	servicetest.Answer(w, status, map[string]any{
		"statusCode": status, "message": fmt.Sprintf(format, args...), "error": http.StatusText(status), "path": "/", "timestamp": now(),
	})
}

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// now returns the time of the service's clock.
func (s *Service) now() string { return time.Now().Add(s.opt.Skew).UTC().Format(time.RFC3339Nano) }

// newID returns a random id in the service's format.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	t := hex.EncodeToString(b[:])
	return t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:]
}

// failNoAddress writes the proxy's response for a sandbox that does not run.
func failNoAddress(w http.ResponseWriter) {
	fail(w, http.StatusBadRequest, "bad request: no IP address found. Is the Sandbox started?")
}

// inBox returns a handler that finds the sandbox of a request, as the proxy does.
func (s *Service) inBox(h func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		b := s.boxes[r.PathValue("id")]
		running := b != nil && b.state == "started"
		if running {
			b.touch()
		}
		s.mu.Unlock()
		switch {
		case b == nil:
			fail(w, http.StatusNotFound, "sandbox %s not found", r.PathValue("id"))
		case !running:
			failNoAddress(w)
		default:
			h(w, r, b)
		}
	}
}

func (s *Service) snapshot(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != Snapshot {
		fail(w, http.StatusNotFound, "Snapshot with ID or name %s not found", r.PathValue("id"))
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"id": Snapshot, "name": Snapshot, "state": "active"})
}

func (s *Service) listVolumes(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.volumes))
	s.mu.Unlock()
	servicetest.Answer(w, http.StatusOK, all)
}

func (s *Service) volumeByName(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.volumes[r.PathValue("name")]
	switch {
	case s.opt.NoVolumes:
		fail(w, http.StatusForbidden, "Access denied: read:volumes")
	case v == nil:
		fail(w, http.StatusNotFound, "Volume with name %s not found", r.PathValue("name"))
	default:
		servicetest.Answer(w, http.StatusOK, v)
		v.State = "ready" // with the next look
	}
}

func (s *Service) makeVolume(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"name"`
	}
	if !read(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opt.NoVolumes:
		fail(w, http.StatusForbidden, "Access denied: write:volumes")
		return
	case s.volumes[body.Name] != nil:
		fail(w, http.StatusBadRequest, "Volume with name %s already exists", body.Name)
		return
	}
	v := &volume{ID: newID(), Name: body.Name, Org: "org", State: "pending_create", Made: s.now(), Last: s.now()}
	if err := os.MkdirAll(filepath.Join(s.dir, "volumes", v.ID), 0o755); err != nil {
		fail(w, http.StatusInternalServerError, "volume: %v", err)
		return
	}
	s.volumes[body.Name] = v
	servicetest.Answer(w, http.StatusOK, v)
}
