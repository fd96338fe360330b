package denotest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// one returns the sandbox of a request with the lock held. If there is none it writes an error response and returns nil, without the lock.
func (s *Service) one(w http.ResponseWriter, r *http.Request) *box {
	s.mu.Lock()
	b := s.boxes[r.PathValue("id")]
	if b == nil || b.Box == nil || b.ending {
		s.mu.Unlock()
		refuse(w, http.StatusNotFound, "SANDBOX_NOT_FOUND", "sandbox %s not found", r.PathValue("id"))
		return nil
	}
	return b
}

func (s *Service) connect(w http.ResponseWriter, r *http.Request) {
	if b := s.one(w, r); b != nil {
		s.mu.Unlock()
		s.speak(w, r, b, false)
	}
}

// end of time: the body of a PATCH, and its answer.
type life struct {
	StopAt int64 `json:"stop_at_ms"`
}

func (s *Service) extend(w http.ResponseWriter, r *http.Request) {
	var body life
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "INVALID_BODY", "%v", err)
		return
	}
	b := s.one(w, r)
	if b == nil {
		return
	}
	defer s.mu.Unlock()
	b.stops = time.UnixMilli(body.StopAt)
	if most := s.now().Add(extension); b.stops.After(most) {
		b.stops = most
	}
	b.bound()
	b.lives()
	servicetest.Answer(w, http.StatusOK, life{b.stops.UnixMilli()})
}

func (s *Service) kill(w http.ResponseWriter, r *http.Request) {
	if b := s.one(w, r); b != nil {
		b.end()
		s.mu.Unlock()
		servicetest.Answer(w, http.StatusOK, map[string]any{})
	}
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	want := map[string]string{}
	for k, v := range r.URL.Query() {
		if name, ok := strings.CutPrefix(k, "labels["); ok {
			want[strings.TrimSuffix(name, "]")] = v[0]
		}
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
	all := []map[string]any{}
	for size := 0; size < s.ended; size += 1 << 10 {
		all = append(all, map[string]any{
			"id": fmt.Sprintf("sbx_ord_ended%d", size), "createdAt": time.Time{}, "stoppedAt": time.Time{}, "status": "stopped", "labels": want,
			"padding": strings.Repeat("x", 1<<10),
		})
	}
	for _, b := range found {
		all = append(all, b.public())
	}
	servicetest.Answer(w, http.StatusOK, all)
}

// find finds a volume or snapshot by its id or slug.
func find(all map[string]*volume, name string) *volume {
	for _, v := range all {
		if v.id == name || v.slug == name {
			return v
		}
	}
	return nil
}

func (s *Service) folder(v *volume) string { return filepath.Join(s.dir, "volumes", v.id) }

func (v *volume) public() map[string]any {
	return map[string]any{
		"id": v.id, "slug": v.slug, "region": v.region, "capacity": v.capacity, "estimated_allocated_size": 0, "estimated_flattened_size": 0,
		"is_bootable": v.bootable, "base_snapshot": nil,
	}
}

func (v *volume) publicSnapshot() map[string]any {
	return map[string]any{
		"id": v.id, "slug": v.slug, "region": v.region, "allocated_size": 0, "flattened_size": 0, "is_bootable": v.bootable,
		"volume": map[string]string{"id": v.from, "slug": v.from},
	}
}

func (s *Service) listVolumes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := 30
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = min(max(n, 1), 100)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*volume
	for _, v := range s.volumes {
		if strings.Contains(v.slug, q.Get("search")) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b *volume) int { return cmp.Compare(a.slug, b.slug) })
	if after := q.Get("cursor"); after != "" {
		found = found[slices.IndexFunc(found, func(v *volume) bool { return v.slug == after })+1:]
	}
	page := []map[string]any{}
	for _, v := range found[:min(limit, len(found))] {
		page = append(page, v.public())
	}
	if len(found) > limit {
		q.Set("cursor", found[limit-1].slug)
		w.Header().Set("Link", "<http://"+r.Host+r.URL.Path+"?"+q.Encode()+`>; rel="next"`)
	}
	servicetest.Answer(w, http.StatusOK, page)
}

var slugPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}[a-z0-9]$`)

// named makes a volume or snapshot with a unique slug. If that is impossible it writes an error response and returns nil. The lock is
// held.
func (s *Service) named(w http.ResponseWriter, kind, slug, region string) *volume {
	switch {
	case !slugPattern.MatchString(slug) || len(slug) > 3 && slug[2:4] == "--":
		refuse(w, http.StatusBadRequest, "INVALID_SLUG", "invalid slug %s", slug)
		return nil
	case find(s.volumes, slug) != nil || find(s.snapshots, slug) != nil:
		refuse(w, http.StatusConflict, "SLUG_ALREADY_EXISTS", "the slug %s is taken", slug)
		return nil
	}
	return &volume{id: kind + "_" + region + "_" + newID(20), slug: slug, region: region}
}

// capacity is a number of bytes, or a text with a unit.
type capacity int64

var capacityPattern = regexp.MustCompile(`^"(\d+)(kB|MB|GB|KiB|MiB|GiB)"$`)

func (c *capacity) UnmarshalJSON(text []byte) error {
	units := map[string]int64{"": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	number, unit := string(text), ""
	if parts := capacityPattern.FindStringSubmatch(number); parts != nil {
		number, unit = parts[1], parts[2]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	*c = capacity(n * units[unit])
	return err
}

func (s *Service) makeVolume(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Slug     string   `json:"slug"`
		Region   string   `json:"region"`
		Capacity capacity `json:"capacity"`
		From     string   `json:"from"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "INVALID_BODY", "%v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opt.NoVolumes:
		refuse(w, http.StatusForbidden, "VOLUMES_NOT_ENABLED", "the organization has no volumes")
		return
	case body.Region != "ord" && body.Region != "ams":
		refuse(w, http.StatusBadRequest, "INVALID_REGION", "invalid region %s", body.Region)
		return
	case body.Capacity < 300_000_000 || body.Capacity > 20<<30:
		refuse(w, http.StatusBadRequest, "INVALID_CAPACITY", "capacity must be between 300 MB and 20 GB")
		return
	case body.From != "" && body.From != "builtin:debian-13" && find(s.snapshots, body.From) == nil:
		refuse(w, http.StatusNotFound, "SNAPSHOT_NOT_FOUND", "snapshot %s not found", body.From)
		return
	}
	v := s.named(w, "vol", body.Slug, body.Region)
	if v == nil {
		return
	}
	v.capacity, v.bootable = int64(body.Capacity), body.From != ""
	if err := os.MkdirAll(s.folder(v), 0o755); err != nil {
		refuse(w, http.StatusInternalServerError, "INTERNAL", "volume: %v", err)
		return
	}
	s.volumes[v.id] = v
	servicetest.Answer(w, http.StatusOK, v.public())
}

// lookUp finds a volume or snapshot of a request, and does something with it while the lock is held.
func (s *Service) lookUp(w http.ResponseWriter, r *http.Request, all map[string]*volume, do func(v *volume)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := find(all, r.PathValue("id")); v != nil {
		do(v)
		return
	}
	refuse(w, http.StatusNotFound, "NOT_FOUND", "%s not found", r.PathValue("id"))
}

func (s *Service) getVolume(w http.ResponseWriter, r *http.Request) {
	s.lookUp(w, r, s.volumes, func(v *volume) { servicetest.Answer(w, http.StatusOK, v.public()) })
}

func (s *Service) deleteVolume(w http.ResponseWriter, r *http.Request) {
	s.lookUp(w, r, s.volumes, func(v *volume) {
		delete(s.volumes, v.id)
		servicetest.Answer(w, http.StatusOK, map[string]any{})
	})
}

func (s *Service) makeSnapshot(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Slug string `json:"slug"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "INVALID_BODY", "%v", err)
		return
	}
	s.lookUp(w, r, s.volumes, func(v *volume) {
		if v.holder != nil && v.holder.stopped.IsZero() {
			refuse(w, http.StatusConflict, "VOLUME_IN_USE", "volume %s is attached to a sandbox", v.slug)
			return
		}
		snapshot := s.named(w, "snp", body.Slug, v.region)
		if snapshot == nil {
			return
		}
		snapshot.bootable, snapshot.from = v.bootable, v.id
		s.snapshots[snapshot.id] = snapshot
		servicetest.Answer(w, http.StatusOK, snapshot.publicSnapshot())
	})
}

func (s *Service) getSnapshot(w http.ResponseWriter, r *http.Request) {
	s.lookUp(w, r, s.snapshots, func(v *volume) { servicetest.Answer(w, http.StatusOK, v.publicSnapshot()) })
}

func (s *Service) deleteSnapshot(w http.ResponseWriter, r *http.Request) {
	s.lookUp(w, r, s.snapshots, func(v *volume) {
		delete(s.snapshots, v.id)
		servicetest.Answer(w, http.StatusOK, map[string]any{})
	})
}
