package e2btest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// The control plane: sandboxes, the template and volumes.

// creation is the body of a create request.
type creation struct {
	Template string            `json:"templateID"`
	Timeout  *int              `json:"timeout"`
	Pause    bool              `json:"autoPause"`
	Metadata map[string]string `json:"metadata"`
	Env      map[string]string `json:"envVars"`
	Internet *bool             `json:"allow_internet_access"`
	Network  struct {
		Deny []string `json:"denyOut"`
	} `json:"network"`
	Mounts []struct {
		Name string `json:"name"`
		Path string `json:"path"`
	} `json:"volumeMounts"`
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	var c creation
	body := map[string]any{}
	text := json.NewDecoder(r.Body)
	var raw json.RawMessage
	if err := errors.Join(text.Decode(&raw), json.Unmarshal(raw, &c), json.Unmarshal(raw, &body)); err != nil {
		fail(w, http.StatusBadRequest, "Error when parsing request: %s", err)
		return
	}
	life, ok := s.life(w, c.Timeout)
	if !ok {
		return
	}
	if c.Template != Template {
		fail(w, http.StatusNotFound, "template '%s' not found", c.Template)
		return
	}
	key := r.Header.Get("X-API-Key")
	b := &box{s: s, key: key, creation: c, body: body, id: newID("i"), token: newID("ea_"), processes: map[int]*process{}, hidden: s.opt.ListLag}
	for _, m := range c.Mounts {
		dir := s.Volume(volumeOf(key, m.Name))
		if dir == "" {
			fail(w, http.StatusBadRequest, "volume '%s' not found", m.Name)
			return
		}
		b.binds = append(b.binds, dir, m.Path)
	}
	s.mu.Lock()
	running := 0
	for _, other := range s.boxes {
		if !other.paused && other.key == key {
			running++
		}
	}
	if running >= s.opt.MaxRunning {
		s.mu.Unlock()
		fail(w, http.StatusTooManyRequests, "you have reached the maximum number of concurrent E2B sandboxes (%d)", s.opt.MaxRunning)
		return
	}
	s.made++
	b.number = s.made
	s.boxes[b.id] = b // it counts from now on
	s.mu.Unlock()
	if err := b.boot(); err != nil {
		b.forget()
		fail(w, http.StatusInternalServerError, "Failed to start sandbox: %s", err)
		return
	}
	s.mu.Lock()
	b.started = time.Now()
	b.lives(life)
	s.mu.Unlock()
	servicetest.Answer(w, http.StatusCreated, b.public())
}

// lifetime is a request that sets the lifetime of a sandbox.
type lifetime struct {
	Timeout *int `json:"timeout"`
}

// named is a request for something with a name.
type named struct {
	Name string `json:"name"`
}

// life returns a timeout. If it is invalid it writes an error response and returns false.
func (s *Service) life(w http.ResponseWriter, seconds *int) (time.Duration, bool) {
	d := 300 * time.Second
	if seconds != nil {
		d = time.Duration(*seconds) * time.Second
	}
	if d < 0 || d > s.opt.MaxTimeout {
		fail(w, http.StatusBadRequest, "Timeout cannot be greater than %d hours", int(s.opt.MaxTimeout.Hours()))
		return 0, false
	}
	return d, true
}

// the returns the sandbox of a request with the lock held. If there is none it writes an error response and returns nil, without the lock.
func (s *Service) the(w http.ResponseWriter, r *http.Request) *box {
	s.mu.Lock()
	b := s.boxes[r.PathValue("id")]
	if b == nil || b.started.IsZero() || b.key != r.Header.Get("X-API-Key") {
		s.mu.Unlock()
		fail(w, http.StatusNotFound, "sandbox %q not found", r.PathValue("id"))
		return nil
	}
	return b
}

func (s *Service) detail(w http.ResponseWriter, r *http.Request) {
	if b := s.the(w, r); b != nil {
		d := b.listed()
		d["envdAccessToken"] = b.token
		s.mu.Unlock()
		servicetest.Answer(w, http.StatusOK, d)
	}
}

func (s *Service) kill(w http.ResponseWriter, r *http.Request) {
	b := s.the(w, r)
	if b == nil {
		return
	}
	b.end()
	s.mu.Unlock()
	<-b.Over()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) pause(w http.ResponseWriter, r *http.Request) {
	b := s.the(w, r)
	if b == nil {
		return
	}
	defer s.mu.Unlock()
	if b.paused {
		fail(w, http.StatusConflict, "Error pausing sandbox - sandbox '%s' is already paused", b.id)
		return
	}
	b.freeze()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) timeout(w http.ResponseWriter, r *http.Request) {
	var body lifetime
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "Error when parsing request: %s", err)
		return
	}
	d, ok := s.life(w, body.Timeout)
	if !ok {
		return
	}
	if b := s.the(w, r); b != nil {
		defer s.mu.Unlock()
		if b.paused {
			fail(w, http.StatusNotFound, "sandbox %q not found", b.id)
			return
		}
		b.lives(d)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Service) connect(w http.ResponseWriter, r *http.Request) {
	var body lifetime
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "Error when parsing request: %v", err)
		return
	}
	d, ok := s.life(w, body.Timeout)
	if !ok {
		return
	}
	b := s.the(w, r)
	if b == nil {
		return
	}
	status := http.StatusOK
	if b.paused {
		status = http.StatusCreated
		b.thaw()
		b.lives(d)
	} else if time.Until(b.ends) < d {
		b.lives(d)
	}
	s.mu.Unlock()
	servicetest.Answer(w, status, b.public())
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	want, err := metadataOf(r.URL.Query().Get("metadata"))
	if err != nil {
		fail(w, http.StatusBadRequest, "Error when parsing metadata: %s", err)
		return
	}
	states := strings.Split(cmp.Or(r.URL.Query().Get("state"), "running,paused"), ",")
	limit := 100
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
		limit = min(max(n, 1), 100)
	}
	s.mu.Lock()
	found, running := []*box{}, 0
	for _, b := range s.boxes {
		fits := b.key == r.Header.Get("X-API-Key") && !b.started.IsZero() && slices.Contains(states, b.state())
		for k, v := range want {
			fits = fits && b.creation.Metadata[k] == v
		}
		if fits && b.hidden > 0 {
			b.hidden--
			continue
		}
		if fits {
			found = append(found, b)
			if !b.paused {
				running++
			}
		}
	}
	slices.SortFunc(found, func(a, b *box) int { return cmp.Or(b.started.Compare(a.started), cmp.Compare(a.id, b.id)) })
	if next := r.URL.Query().Get("nextToken"); next != "" { // the id of the last one of the page before
		found = found[slices.IndexFunc(found, func(b *box) bool { return b.id == next })+1:]
	}
	page := []map[string]any{}
	for _, b := range found[:min(limit, len(found))] {
		page = append(page, b.listed())
	}
	s.mu.Unlock()
	if len(found) > limit {
		w.Header().Set("X-Next-Token", found[limit-1].id)
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	servicetest.Answer(w, http.StatusOK, page)
}

// metadataOf decodes a filter: pairs with escaped names and values, in a query that is escaped once more.
func metadataOf(text string) (map[string]string, error) {
	pairs, err := url.ParseQuery(text)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for k, v := range pairs {
		name, err := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(v[0])
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		all[name] = value
	}
	return all, nil
}

func (s *Service) template(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("alias") != Template {
		fail(w, http.StatusNotFound, "template with alias '%s' not found", r.PathValue("alias"))
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"templateID": Template, "public": true})
}

func (s *Service) listVolumes(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	all := []map[string]string{}
	key := r.Header.Get("X-API-Key")
	for name, id := range s.volumes {
		name = strings.TrimPrefix(name, volumeOf(key, ""))
		if strings.Contains(name, "/") {
			continue // the other team's
		}
		all = append(all, map[string]string{"volumeID": id, "name": name})
	}
	s.mu.Unlock()
	servicetest.Answer(w, http.StatusOK, all)
}

var volumeName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (s *Service) makeVolume(w http.ResponseWriter, r *http.Request) {
	var body named
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || !volumeName.MatchString(body.Name) {
		fail(w, http.StatusBadRequest, "Invalid volume name: %v", err)
		return
	}
	if s.opt.NoVolumes {
		fail(w, http.StatusForbidden, "use of volumes is not enabled for this team")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := volumeOf(r.Header.Get("X-API-Key"), body.Name)
	if s.volumes[name] != "" {
		fail(w, http.StatusBadRequest, "Volume with name '%s' already exists", body.Name)
		return
	}
	id := newID("")
	if err := os.MkdirAll(filepath.Join(s.dir, "volumes", id), 0o755); err != nil {
		fail(w, http.StatusInternalServerError, "volume: %v", err)
		return
	}
	s.volumes[name] = id
	servicetest.Answer(w, http.StatusCreated, map[string]string{"volumeID": id, "name": body.Name, "token": newID("vt_")})
}
