package verceltest

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// creation is the body of a create request. Times are in milliseconds.
type creation struct {
	Project    string            `json:"projectId"`
	Name       string            `json:"name"`
	Timeout    int64             `json:"timeout"`
	Env        map[string]string `json:"env"`
	Image      string            `json:"image"`
	Tags       map[string]string `json:"tags"`
	Persistent *bool             `json:"persistent"`
	Policy     json.RawMessage   `json:"networkPolicy"`
	Mounts     map[string]struct {
		Drive string `json:"drive"`
		Mode  string `json:"mode"`
	} `json:"mounts"`
	Keep *struct {
		Count int `json:"count"`
	} `json:"keepLastSnapshots"`

	policy policy
}

// policy is a network policy as it is stored.
type policy struct {
	Mode                     string
	Domains, Allowed, Denied []string
}

func (p policy) public() map[string]any {
	d := map[string]any{"mode": p.Mode}
	for k, v := range map[string][]string{"allowedDomains": p.Domains, "allowedCIDRs": p.Allowed, "deniedCIDRs": p.Denied} {
		if p.Mode == "custom" && v != nil {
			d[k] = v
		}
	}
	return d
}

// readPolicy parses a requested policy: a mode, or lists; lists of names may have rules for each name.
func readPolicy(text json.RawMessage) (p policy, err error) {
	if len(text) == 0 {
		return policy{Mode: "allow-all"}, nil
	}
	var asked struct {
		Mode    string          `json:"mode"`
		Allow   json.RawMessage `json:"allow"`
		Subnets struct {
			Allow []string `json:"allow"`
			Deny  []string `json:"deny"`
		} `json:"subnets"`
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		return p, err
	}
	if asked.Mode == "allow-all" || asked.Mode == "deny-all" {
		return policy{Mode: asked.Mode}, nil
	}
	p = policy{Mode: "custom", Allowed: asked.Subnets.Allow, Denied: asked.Subnets.Deny}
	rules := map[string]json.RawMessage{}
	switch {
	case asked.Mode != "":
		return p, errors.New("unknown mode " + asked.Mode)
	case len(asked.Allow) == 0:
	case json.Unmarshal(asked.Allow, &p.Domains) == nil:
	case json.Unmarshal(asked.Allow, &rules) == nil:
		for name := range rules {
			p.Domains = append(p.Domains, name)
		}
	default:
		return p, errors.New("allow is neither a list nor rules")
	}
	for _, text := range slices.Concat(p.Allowed, p.Denied) {
		if _, err := netip.ParsePrefix(text); err != nil {
			return p, err
		}
	}
	return p, nil
}

// read decodes the body of a request. If that fails it writes an error response and returns false.
func read(w http.ResponseWriter, r *http.Request, into ...any) bool {
	raw, err := io.ReadAll(r.Body)
	for _, one := range into {
		if len(raw) > 0 {
			err = errors.Join(err, json.Unmarshal(raw, one))
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "Invalid request: %v", err)
	}
	return err == nil
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// check returns an error for an invalid create request.
func (s *Service) check(c *creation) (err error) {
	c.Name = cmp.Or(c.Name, newID("sandbox-"))
	persistent := true
	c.Persistent = cmp.Or(c.Persistent, &persistent)
	c.Timeout = cmp.Or(c.Timeout, (5 * time.Minute).Milliseconds())
	if c.policy, err = readPolicy(c.Policy); err != nil {
		return err
	}
	if s.opt.OwnNetwork {
		c.policy = policy{Mode: "allow-all"}
	}
	if len(c.Tags) > 5 {
		return errors.New("`tags` must have at most 5 entries")
	}
	for k, v := range c.Tags {
		if k == "" || len(k) > 128 || len(v) > 256 {
			return errors.New("`tags` has an entry that is too long")
		}
	}
	switch {
	case !namePattern.MatchString(c.Name):
		return errors.New("`name` must be URL-safe")
	case c.Timeout < 1000 || c.Timeout > s.opt.MaxTimeout.Milliseconds():
		return errors.New("`timeout` must be at most " + strconv.FormatInt(s.opt.MaxTimeout.Milliseconds(), 10))
	case c.Image == "none":
		return errors.New("image not found")
	}
	return nil
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	var c creation
	body := map[string]any{}
	if !read(w, r, &c, &body) {
		return
	}
	if c.Project != Project {
		fail(w, http.StatusNotFound, "Project not found.")
		return
	}
	if err := s.check(&c); err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	s.mu.Lock()
	running := 0
	for _, other := range s.boxes {
		if other.current.alive() {
			running++
		}
	}
	switch {
	case s.boxes[c.Name] != nil:
		s.mu.Unlock()
		fail(w, http.StatusBadRequest, "Named sandbox '%s' already exists. Use GET /sandboxes/%s to resume it.", c.Name, c.Name)
		return
	case running >= s.opt.MaxRunning:
		s.mu.Unlock()
		failAs(w, http.StatusTooManyRequests, "concurrency_limit_exceeded", "Too many sandboxes run at a time.")
		return
	}
	b := &box{s: s, c: c, body: body, made: s.now(), hidden: s.opt.ListLag, tags: c.Tags}
	if b.tags == nil {
		b.tags = map[string]string{}
	}
	t, err := b.begin()
	if err == nil {
		s.made++
		s.boxes[c.Name] = b // it counts from now on
	}
	s.mu.Unlock()
	s.boot(w, b, t, err, nil)
}

// boot starts a session and writes the response.
func (s *Service) boot(w http.ResponseWriter, b *box, t *session, err error, more map[string]any) {
	if busy, ok := errors.AsType[*mountBusyError](err); ok {
		failAs(w, http.StatusConflict, "drive_in_use", busy.Error())
		return
	}
	if err != nil {
		failAs(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	if err := t.boot(); err != nil {
		s.mu.Lock()
		t.fail()
		b.destroy()
		s.mu.Unlock()
		fail(w, http.StatusInternalServerError, "Sandbox failed to start: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	servicetest.Answer(w, http.StatusOK, b.answer(more))
}

// one returns a handler that finds the sandbox of a request and calls h with the lock held.
func (s *Service) one(h func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return s.locked(func(w http.ResponseWriter, r *http.Request) {
		b := s.boxes[r.PathValue("name")]
		if b == nil {
			fail(w, http.StatusNotFound, "Sandbox not found.")
			return
		}
		h(w, r, b)
	})
}

// detail returns the state of a sandbox, and resumes it if that is requested.
func (s *Service) detail(w http.ResponseWriter, r *http.Request, b *box) {
	state := b.current.look()
	switch {
	case r.URL.Query().Get("resume") != "true" || state == stateRunning || state == statePending:
		servicetest.Answer(w, http.StatusOK, b.answer(nil))
	case state == stateStopping:
		failAs(w, http.StatusUnprocessableEntity, "sandbox_stopping", "Sandbox is stopping.")
	case state == stateSnapshotting:
		failAs(w, http.StatusUnprocessableEntity, "sandbox_snapshotting", "Sandbox is creating a snapshot.")
	case b.snapshot != "" && s.snapshots[b.snapshot] == nil:
		failAs(w, http.StatusGone, "snapshot_not_found", "The snapshot of this sandbox was deleted or has expired.")
	case !*b.c.Persistent:
		failStopped(w)
	default:
		t, err := b.begin()
		s.mu.Unlock() // as one holds it
		s.boot(w, b, t, err, map[string]any{"resumed": true})
		s.mu.Lock()
	}
}

func (s *Service) update(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct {
		Tags    map[string]string `json:"tags"`
		Timeout int64             `json:"timeout"`
		Policy  json.RawMessage   `json:"networkPolicy"`
	}
	if !read(w, r, &body) {
		return
	}
	if body.Tags != nil {
		b.tags = body.Tags
	}
	b.c.Timeout = cmp.Or(body.Timeout, b.c.Timeout)
	if len(body.Policy) > 0 {
		p, err := readPolicy(body.Policy)
		if err != nil {
			fail(w, http.StatusBadRequest, "%v", err)
			return
		}
		b.c.policy = p
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"sandbox": b.public(), "routes": []any{}})
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request, b *box) {
	b.destroy()
	if r.URL.Query().Get("deleteOrphanSnapshots") == "true" {
		for id, n := range s.snapshots {
			if n.box == b.c.Name {
				delete(s.snapshots, id)
			}
		}
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"sandbox": b.public()})
}

func (s *Service) sessionDetail(w http.ResponseWriter, r *http.Request) {
	t := s.sessions[r.PathValue("id")]
	if t == nil {
		fail(w, http.StatusNotFound, "Session not found.")
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"session": t.public(), "routes": []any{}})
}

func (s *Service) stop(w http.ResponseWriter, _ *http.Request, t *session) {
	n := t.halt()
	d := map[string]any{"session": t.public(), "sandbox": t.box.public()}
	if n != nil {
		d["snapshot"] = n.public()
	}
	servicetest.Answer(w, http.StatusOK, d)
}

func (s *Service) extend(w http.ResponseWriter, r *http.Request, t *session) {
	var body struct {
		Duration int64 `json:"duration"`
	}
	if !read(w, r, &body) {
		return
	}
	more := t.timeout + time.Duration(body.Duration)*time.Millisecond
	if body.Duration < 1000 || more > s.opt.MaxTimeout {
		fail(w, http.StatusBadRequest, "`duration` must be at least 1000, and the timeout at most %d", s.opt.MaxTimeout.Milliseconds())
		return
	}
	t.timeout = more
	t.wind()
	servicetest.Answer(w, http.StatusOK, map[string]any{"session": t.public()})
}

func (s *Service) setPolicy(w http.ResponseWriter, r *http.Request, t *session) {
	var body json.RawMessage
	if !read(w, r, &body) {
		return
	}
	p, err := readPolicy(body)
	if err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	t.policy = p
	servicetest.Answer(w, http.StatusOK, map[string]any{"session": t.public()})
}

func (s *Service) takeSnapshot(w http.ResponseWriter, _ *http.Request, t *session) {
	t.over()
	t.goes(stateSnapshotting, stateStopped)
	n := t.save()
	if n == nil {
		fail(w, http.StatusInternalServerError, "Snapshot failed.")
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"session": t.public(), "snapshot": n.public()})
}

func (s *Service) snapshot(w http.ResponseWriter, r *http.Request) { s.aSnapshot(w, r, false) }

func (s *Service) removeSnapshot(w http.ResponseWriter, r *http.Request) { s.aSnapshot(w, r, true) }

func (s *Service) aSnapshot(w http.ResponseWriter, r *http.Request, remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.snapshots[r.PathValue("id")]
	if n == nil {
		failAs(w, http.StatusNotFound, "not_found", "Snapshot not found.")
		return
	}
	d := n.public()
	if remove {
		delete(s.snapshots, n.id)
		d["status"] = "deleted"
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"snapshot": d})
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := 20
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = n
	}
	tag, value, tagged := strings.Cut(q.Get("tags"), ":")
	if limit < 1 || limit > 50 || len(q["tags"]) > 1 || q.Get("namePrefix") != "" && q.Get("sortBy") != "name" {
		fail(w, http.StatusBadRequest, "Invalid query.")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*box
	for _, b := range s.boxes {
		fits := (!tagged || b.tags[tag] == value) && strings.HasPrefix(b.c.Name, q.Get("namePrefix"))
		switch {
		case fits && b.hidden > 0:
			b.hidden--
		case fits:
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *box) int {
		n := b.made.Compare(a.made)
		switch q.Get("sortBy") {
		case "name":
			n = strings.Compare(b.c.Name, a.c.Name)
		case "statusUpdatedAt":
			n = b.changed.Compare(a.changed)
		}
		if q.Get("sortOrder") == "asc" {
			n = -n
		}
		return cmp.Or(n, strings.Compare(a.c.Name, b.c.Name))
	})
	if after := q.Get("cursor"); after != "" { // the name of the last one of the page before
		found = found[slices.IndexFunc(found, func(b *box) bool { return b.c.Name == after })+1:]
	}
	items := []map[string]any{}
	for _, b := range found[:min(limit, len(found))] {
		items = append(items, b.public())
	}
	var next any
	if len(found) > limit {
		next = found[limit-1].c.Name
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{
		"sandboxes": items, "pagination": map[string]any{"count": len(items), "next": next},
	})
}

func (s *Service) listDrives(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opt.NoDrives {
		fail(w, http.StatusForbidden, "Drives are not available.")
		return
	}
	all := []map[string]any{}
	for _, d := range s.drives {
		all = append(all, d.public())
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"drives": all, "pagination": map[string]any{"count": len(all), "next": nil}})
}

func (s *Service) makeDrive(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Project string `json:"projectId"`
	}
	if !read(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	d := s.drives[name]
	switch {
	case s.opt.NoDrives:
		fail(w, http.StatusForbidden, "Drives are not available.")
		return
	case body.Project != Project:
		fail(w, http.StatusNotFound, "Project not found.")
		return
	case !namePattern.MatchString(name):
		fail(w, http.StatusBadRequest, "Invalid name.")
		return
	case d == nil:
		d = &drive{id: newID("drv_"), name: name, made: s.now()}
		d.dir = filepath.Join(s.dir, "drives", d.id)
		if err := os.MkdirAll(d.dir, 0o755); err != nil {
			fail(w, http.StatusInternalServerError, "drive: %v", err)
			return
		}
		s.drives[name] = d
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"drive": d.public()})
}

func (s *Service) removeDrive(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drives[r.PathValue("name")]
	switch {
	case d == nil:
		fail(w, http.StatusNotFound, "Drive not found.")
	case d.writer != nil:
		failAs(w, http.StatusConflict, "drive_in_use", "Drive is attached to a running sandbox")
	default:
		delete(s.drives, d.name)
		servicetest.Answer(w, http.StatusOK, map[string]any{"drive": d.public()})
	}
}
