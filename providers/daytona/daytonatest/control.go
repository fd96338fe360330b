package daytonatest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// creation is the body of a create request.
type creation struct {
	Name       string            `json:"name"`
	Snapshot   string            `json:"snapshot"`
	User       string            `json:"user"`
	Env        map[string]string `json:"env"`
	Labels     map[string]string `json:"labels"`
	BlockAll   bool              `json:"networkBlockAll"`
	AllowList  string            `json:"networkAllowList"`
	AutoStop   *int              `json:"autoStopInterval"`
	AutoDelete *int              `json:"autoDeleteInterval"`
	Volumes    []struct {
		ID    string `json:"volumeId"`
		Path  string `json:"mountPath"`
		Below string `json:"subpath"`
	} `json:"volumes"`
	Build *struct {
		Dockerfile string `json:"dockerfileContent"`
	} `json:"buildInfo"`
}

// read decodes the body of a request. If that fails it writes an error response and returns false.
func read(w http.ResponseWriter, r *http.Request, into ...any) bool {
	var raw json.RawMessage
	err := json.NewDecoder(r.Body).Decode(&raw)
	for _, one := range into {
		err = errors.Join(err, json.Unmarshal(raw, one))
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "Bad Request: %v", err)
	}
	return err == nil
}

func proxyOf(r *http.Request) string { return "http://" + r.Host + "/toolbox" }

func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	var c creation
	body := map[string]any{}
	if !read(w, r, &c, &body) {
		return
	}
	quarter, never := 15, -1
	c.AutoStop, c.AutoDelete, c.User = cmp.Or(c.AutoStop, &quarter), cmp.Or(c.AutoDelete, &never), cmp.Or(c.User, "daytona")
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	ranges := strings.Split(c.AllowList, ",")
	for _, text := range ranges {
		if at, err := netip.ParsePrefix(text); c.AllowList != "" && (err != nil || !at.Addr().Is4() || len(ranges) > 10) {
			fail(w, http.StatusBadRequest, "Invalid network allow list: %s", c.AllowList)
			return
		}
	}
	switch {
	case c.Snapshot != "" && c.Snapshot != Snapshot:
		fail(w, http.StatusBadRequest, "Snapshot %s not found. Did you add it through the Daytona Dashboard?", c.Snapshot)
		return
	case c.Build != nil && (c.Snapshot != "" || !strings.HasPrefix(c.Build.Dockerfile, "FROM ")):
		fail(w, http.StatusBadRequest, "Cannot build this")
		return
	case s.opt.OwnNetwork:
		c.BlockAll, c.AllowList = false, ""
	}
	b := &box{s: s, creation: c, body: body, id: newID(), made: time.Now().Add(s.opt.Skew), hidden: s.opt.ListLag, used: s.now()}
	b.creation.Name = cmp.Or(c.Name, b.id)
	b.dir = filepath.Join(s.dir, b.id)
	if err := errors.Join(os.MkdirAll(b.dir, 0o755), s.mounts(b)); err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	s.mu.Lock()
	running := 0
	for _, other := range s.boxes {
		if other.creation.Name == b.creation.Name {
			s.mu.Unlock()
			fail(w, http.StatusConflict, "Sandbox with name %s already exists", b.creation.Name)
			return
		}
		if other.state != "stopped" && other.state != "destroying" {
			running++
		}
	}
	if running >= s.opt.MaxRunning {
		s.mu.Unlock()
		fail(w, http.StatusForbidden, "Total CPU limit exceeded. Maximum allowed: %d.", s.opt.MaxRunning)
		return
	}
	s.made++
	b.state = "creating"
	if c.Build != nil {
		b.state = "pending_build"
	}
	s.boxes[b.id] = b // it counts from now on
	s.mu.Unlock()
	s.boot(w, r, b, b.state)
}

// mounts resolves the volumes that a sandbox mounts.
func (s *Service) mounts(b *box) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range b.creation.Volumes {
		found := false
		for _, v := range s.volumes {
			if v.ID == m.ID && v.State == "ready" {
				dir := filepath.Join(s.dir, "volumes", v.ID, m.Below)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				b.binds, found = append(b.binds, dir, m.Path), true
			}
		}
		if !found {
			return errors.New("Volume " + m.ID + " is not in a ready state")
		}
	}
	return nil
}

// boot starts a sandbox and writes the response.
func (s *Service) boot(w http.ResponseWriter, r *http.Request, b *box, by string) {
	if err := b.boot(); err != nil {
		s.mu.Lock()
		delete(s.boxes, b.id)
		s.mu.Unlock()
		fail(w, http.StatusInternalServerError, "Failed to start sandbox: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.state == "destroying" { // meanwhile
		b.running.End()
	} else {
		b.goes(by, "started")
	}
	servicetest.Answer(w, http.StatusOK, b.public(proxyOf(r)))
}

// one returns a handler that finds the sandbox of a request by its id or name and calls h with the lock held.
func (s *Service) one(h func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		want := r.PathValue("id")
		for _, b := range s.boxes {
			if b.id == want || b.creation.Name == want {
				h(w, r, b)
				return
			}
		}
		fail(w, http.StatusNotFound, "Sandbox with ID or name %s not found", want)
	}
}

func (s *Service) detail(w http.ResponseWriter, r *http.Request, b *box) {
	servicetest.Answer(w, http.StatusOK, b.public(proxyOf(r)))
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request, b *box) {
	b.destroy()
	servicetest.Answer(w, http.StatusOK, b.public(proxyOf(r)))
}

func (s *Service) start(w http.ResponseWriter, r *http.Request, b *box) {
	if b.state != "stopped" {
		fail(w, http.StatusConflict, "Sandbox is not in valid state: %s", b.state)
		return
	}
	b.state = "starting"
	s.mu.Unlock() // as one holds it
	s.boot(w, r, b, "starting")
	s.mu.Lock()
}

// recover starts a sandbox again that has failed and is recoverable.
func (s *Service) recover(w http.ResponseWriter, r *http.Request, b *box) {
	if b.state != "error" || !b.recoverable {
		fail(w, http.StatusBadRequest, "Sandbox is not recoverable")
		return
	}
	b.state = "starting"
	s.mu.Unlock() // as one holds it
	s.boot(w, r, b, "starting")
	s.mu.Lock()
}

func (s *Service) stop(w http.ResponseWriter, r *http.Request, b *box) {
	if b.look() != "started" {
		fail(w, http.StatusConflict, "Sandbox is not started")
		return
	}
	b.halt()
	servicetest.Answer(w, http.StatusOK, b.public(proxyOf(r)))
}

func (s *Service) lastActivity(w http.ResponseWriter, _ *http.Request, b *box) {
	b.touch()
	w.WriteHeader(http.StatusCreated)
}

func (s *Service) interval(w http.ResponseWriter, r *http.Request, b *box) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		fail(w, http.StatusBadRequest, "Bad Request: %v", err)
		return
	}
	if strings.Contains(r.URL.Path, "/autostop/") {
		b.creation.AutoStop = &n
	} else {
		b.creation.AutoDelete = &n
	}
	b.touch()
	servicetest.Answer(w, http.StatusOK, b.public(proxyOf(r)))
}

func (s *Service) setLabels(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct {
		Labels map[string]string `json:"labels"`
	}
	if read(w, r, &body) {
		b.creation.Labels = body.Labels
		servicetest.Answer(w, http.StatusOK, body)
	}
}

func (s *Service) proxyURL(w http.ResponseWriter, r *http.Request, _ *box) {
	servicetest.Answer(w, http.StatusOK, map[string]string{"url": proxyOf(r)})
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	want := map[string]string{}
	if text := r.URL.Query().Get("labels"); text != "" {
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			fail(w, http.StatusBadRequest, "Invalid labels: %v", err)
			return
		}
	}
	limit := 100
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
		limit = min(max(n, 1), 200)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*box
	for _, b := range s.boxes {
		fits := true
		for k, v := range want {
			fits = fits && b.creation.Labels[k] == v
		}
		switch {
		case fits && b.hidden > 0:
			b.hidden--
		case fits:
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *box) int { return cmp.Or(b.made.Compare(a.made), cmp.Compare(a.id, b.id)) })
	if after := r.URL.Query().Get("cursor"); after != "" { // the id of the last one of the page before
		found = found[slices.IndexFunc(found, func(b *box) bool { return b.id == after })+1:]
	}
	items := []map[string]any{}
	for _, b := range found[:min(limit, len(found))] {
		items = append(items, b.public(proxyOf(r)))
	}
	var next any
	if len(found) > limit {
		next = found[limit-1].id
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"items": items, "nextCursor": next})
}
