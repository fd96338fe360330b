package verceltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// What the service takes.
const (
	Token   = "vcp_0123456789abcdef0123456789abcdef"
	Team    = "team_0123456789abcdef"
	Project = "prj_0123456789abcdef"
)

const user = "ubuntu" // of sandboxes

// Options are the settings of a service.
type Options struct {
	MaxRunning int           // sandboxes at a time; 0: 20
	MaxTimeout time.Duration // of a session; 0: 45 minutes
	Looks      int           // after how many looks at a session it has changed its state; 0: 1; below: with the first
	ListLag    int           // how many lists a new sandbox is missing from
	NoDrives   bool          // the project has none
	OwnNetwork bool          // what is asked for is not kept
	Skew       time.Duration // that the service's clock is ahead of this host's
}

// Fault is something that goes wrong. Its route has neither "/api" nor the way to a session, and "{id}" for a command: "POST /cmd".
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
	sent   atomic.Int64 // bytes of logs

	mu        sync.Mutex
	boxes     map[string]*box // by name
	sessions  map[string]*session
	drives    map[string]*drive // by name
	snapshots map[string]*snapshot
	streams   map[*stream]bool
	made      int
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
	o.MaxRunning, o.Looks, o.MaxTimeout = cmp.Or(o.MaxRunning, 20), cmp.Or(o.Looks, 1), cmp.Or(o.MaxTimeout, 45*time.Minute)
	s := &Service{
		opt: o, dir: dir, mux: http.NewServeMux(), boxes: map[string]*box{}, sessions: map[string]*session{}, drives: map[string]*drive{},
		snapshots: map[string]*snapshot{}, streams: map[*stream]bool{},
	}
	for route, h := range map[string]http.HandlerFunc{
		"POST /api/v3/sandboxes":                  s.create,
		"GET /api/v2/sandboxes":                   s.list,
		"GET /api/v2/sandboxes/{name}":            s.one(s.detail),
		"PATCH /api/v2/sandboxes/{name}":          s.one(s.update),
		"DELETE /api/v2/sandboxes/{name}":         s.one(s.remove),
		"GET /api/v2/sandboxes/drives":            s.listDrives,
		"POST /api/v2/sandboxes/drives/{name}":    s.makeDrive,
		"DELETE /api/v2/sandboxes/drives/{name}":  s.removeDrive,
		"GET /api/v2/sandboxes/snapshots/{id}":    s.snapshot,
		"DELETE /api/v2/sandboxes/snapshots/{id}": s.removeSnapshot,
		"GET /api/v2/sandboxes/sessions/{id}":     s.locked(s.sessionDetail),
		// Of a session that has ended too.
	} {
		s.mux.HandleFunc(route, s.withToken(h))
	}
	const at = " /api/v2/sandboxes/sessions/{id}"
	for route, h := range map[string]func(http.ResponseWriter, *http.Request, *session){
		"POST" + at + "/stop":           s.locking(s.stop),
		"POST" + at + "/extend-timeout": s.locking(s.extend),
		"POST" + at + "/network-policy": s.locking(s.setPolicy),
		"POST" + at + "/snapshot":       s.locking(s.takeSnapshot),
		"POST" + at + "/cmd":            s.runCommand,
		"GET" + at + "/cmd/{cmd}":       s.getCommand,
		"GET" + at + "/cmd/{cmd}/logs":  s.logs,
		"POST" + at + "/cmd/{cmd}/kill": s.kill,
		"POST" + at + "/fs/write":       s.writeFiles,
		"POST" + at + "/fs/read":        s.readFile,
		"POST" + at + "/fs/mkdir":       s.makeDir,
	} {
		s.mux.HandleFunc(route, s.withToken(s.inSession(h)))
	}
	return s
}

var (
	sessionPath = regexp.MustCompile(`^/v2/sandboxes/sessions/[^/]+/`)
	commandPath = regexp.MustCompile(`^/cmd/[^/]+`)
)

// ServeHTTP answers a request, or applies a fault.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := sessionPath.ReplaceAllString(strings.TrimPrefix(r.URL.Path, "/api"), "/")
	path = commandPath.ReplaceAllString(path, "/cmd/{id}")
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	s.faults.Serve(s.mux, w, r, r.Method+" "+path, fail)
}

// Fail adds a fault, which applies f.Times times.
func (s *Service) Fail(f Fault) { s.faults.Add(f) }

// now returns the time of the service's clock.
func (s *Service) now() time.Time { return time.Now().Add(s.opt.Skew) }

// end ends all sandboxes, without waiting.
func (s *Service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		b.destroy()
	}
	for t := range s.streams {
		t.cut()
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

// Boxes returns the names of all sandboxes, running or not.
func (s *Service) Boxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.boxes))
	for name := range s.boxes {
		names = append(names, name)
	}
	return names
}

// Made returns how many sandboxes were ever made.
func (s *Service) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Snapshots returns how many snapshots exist.
func (s *Service) Snapshots() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.snapshots)
}

// Created returns the body of the request that created a sandbox; nil if there is no such sandbox.
func (s *Service) Created(name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[name]; b != nil {
		return b.body
	}
	return nil
}

// Left returns the remaining lifetime of a sandbox's session.
func (s *Service) Left(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[name]; b != nil {
		return b.current.started.Add(b.current.timeout).Sub(s.now())
	}
	return 0
}

// Expire ends the lifetime of a sandbox's session now.
func (s *Service) Expire(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[name]; b != nil && b.current.state == stateRunning {
		b.current.halt()
	}
}

// Break ends the session of a sandbox by a simulated failure: its changes to files are lost.
func (s *Service) Break(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[name]; b != nil {
		b.current.fail()
	}
}

// Forget deletes the snapshots of a sandbox as if they had expired.
func (s *Service) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[name]; b != nil {
		delete(s.snapshots, b.snapshot)
	}
}

// Age moves the last status change of a sandbox into the past.
func (s *Service) Age(name string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[name]; b != nil {
		b.made, b.changed = b.made.Add(-by), b.changed.Add(-by)
	}
}

// Sent returns how many bytes of logs were ever sent.
func (s *Service) Sent() int64 { return s.sent.Load() }

// CutStreams breaks the connections of all readers of logs. Commands continue.
func (s *Service) CutStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.streams {
		t.cut()
	}
}

// Folders returns the folders with the files of workspaces, of all drives.
func (s *Service) Folders() []string {
	found, _ := filepath.Glob(filepath.Join(s.dir, "drives", "*")) // the pattern is right
	return found
}

// withToken refuses requests without the token.
func (s *Service) withToken(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		project := cmp.Or(r.URL.Query().Get("projectId"), r.URL.Query().Get("project"))
		switch {
		case r.Header.Get("Authorization") != "Bearer "+Token:
			failAs(w, http.StatusForbidden, "forbidden", "Not authorized: "+r.Header.Get("Authorization"))
		case r.URL.Query().Get("teamId") != Team:
			failAs(w, http.StatusForbidden, "forbidden", "Not authorized")
		case project != "" && project != Project:
			failAs(w, http.StatusNotFound, "not_found", "Project not found.")
		default:
			h(w, r)
		}
	}
}

// failAs writes an error response with the service's error code.
func failAs(w http.ResponseWriter, status int, kind, message string) {
	servicetest.Answer(w, status, map[string]any{"error": map[string]string{"code": kind, "message": message}})
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	kind := map[int]string{
		http.StatusBadRequest: "bad_request", http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden",
		http.StatusNotFound: "not_found", http.StatusTooManyRequests: "rate_limited", http.StatusConflict: "conflict",
		http.StatusGone: "sandbox_stopped",
	}[status]
	failAs(w, status, cmp.Or(kind, "internal_server_error"), fmt.Sprintf(format, args...))
}

// newID returns a random id in the service's format.
func newID(prefix string) string {
	var b [14]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

func millis(t time.Time) int64 { return t.UnixMilli() }

// locked returns a handler that calls h with the lock held.
func (s *Service) locked(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		h(w, r)
	}
}

func (s *Service) locking(h func(http.ResponseWriter, *http.Request, *session)) func(http.ResponseWriter, *http.Request, *session) {
	return func(w http.ResponseWriter, r *http.Request, t *session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		h(w, r, t)
	}
}

// inSession returns a handler that finds the session of a request, which must be running.
func (s *Service) inSession(h func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		t, state := s.sessions[r.PathValue("id")], ""
		if t != nil {
			state = t.look()
		}
		s.mu.Unlock()
		switch state {
		case "":
			fail(w, http.StatusNotFound, "Session not found.")
		case stateRunning:
			h(w, r, t)
		case stateStopping:
			failAs(w, http.StatusUnprocessableEntity, "sandbox_stopping", "Sandbox is stopping.")
		case stateSnapshotting:
			failAs(w, http.StatusUnprocessableEntity, "sandbox_snapshotting", "Sandbox is creating a snapshot.")
		case statePending:
			fail(w, http.StatusConflict, "Sandbox is not running yet.")
		default:
			failStopped(w)
		}
	}
}

// Arguments returns the arguments of all commands ever started, as the service stores them.
func (s *Service) Arguments() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, t := range s.sessions {
		for _, c := range t.commands {
			all = append(all, c.name)
			all = append(all, c.args...)
		}
	}
	return strings.Join(all, "\n")
}

// failStopped writes the response for a session that is not running.
func failStopped(w http.ResponseWriter) {
	failAs(w, http.StatusGone, "sandbox_stopped", "Sandbox has stopped execution and is no longer available")
}
