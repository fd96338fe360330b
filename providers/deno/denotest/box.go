package denotest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// extension is how far the end of a sandbox's time is put off at most.
const extension = 30 * time.Minute

// creation is the body of a create request.
type creation struct {
	StopAt  *int64            `json:"stop_at_ms"`
	Memory  int               `json:"memory_mb"`
	Labels  map[string]string `json:"labels"`
	Root    *mount            `json:"root"`
	Volumes []mount           `json:"volumes"`
	Allowed *[]string         `json:"allow_net"`
	Secrets map[string]struct {
		Hosts []string `json:"hosts"`
		Value string   `json:"value"`
	} `json:"secrets"`
}

type mount struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// box is a sandbox of the service, protected by the service's lock.
type box struct {
	*servicetest.Box // nil: it has not booted yet

	s        *Service
	creation creation
	body     map[string]any
	id       string
	region   string
	env      map[string]string
	binds    []string
	hidden   int // lists that it is missing from yet

	made, stops, stopped time.Time // the end of its time; when it has stopped
	said                 time.Time // when it says that it was made
	clock                *time.Timer
	ending               bool
	processes            map[int]*process
	lastProcess          int
}

// readCreation decodes a create request. An error is the client's fault.
func readCreation(header string) (c creation, body map[string]any, err error) {
	text, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return c, nil, err
	}
	if err = errors.Join(json.Unmarshal(text, &c), json.Unmarshal(text, &body)); err != nil {
		return c, nil, err
	}
	if slices.ContainsFunc(text, func(b byte) bool { return b > 0x7f }) {
		return c, nil, errors.New("the configuration is not ASCII")
	}
	if c.Memory < 768 || c.Memory > 4096 {
		return c, nil, errors.New("memory_mb must be between 768 and 4096")
	}
	if len(c.Labels) > 5 {
		return c, nil, errors.New("at most 5 labels can be specified")
	}
	for k, v := range c.Labels {
		if len(k) > 64 || len(v) > 128 {
			return c, nil, errors.New("a label is too long: " + k)
		}
	}
	return c, body, nil
}

// create makes a sandbox and upgrades the request to its WebSocket.
func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	c, body, err := readCreation(r.Header.Get("X-Deno-Sandbox-Config"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "INVALID_CONFIG", "%v", err)
		return
	}
	region := "ord"
	if host, _, ok := strings.Cut(r.Host, "."); ok && host == "ams" {
		region = host
	}
	b := &box{
		s: s, creation: c, body: body, id: "sbx_" + region + "_" + newID(20), region: region, made: s.now(), hidden: s.opt.ListLag,
		processes: map[int]*process{}, env: map[string]string{"DENO_DEPLOY_ORGANIZATION_ID": Org},
	}
	for name := range c.Secrets {
		b.env[name] = "DENO_SECRET_PLACEHOLDER_" + newID(32)
	}
	if !s.place(w, b) {
		return
	}
	if err := b.boot(); err != nil {
		b.over()
		refuse(w, http.StatusInternalServerError, "BOOT_FAILED", "Failed to start sandbox: %v", err)
		return
	}
	s.speak(w, r, b, true)
}

// place resolves what a new sandbox needs, and registers it. If that is impossible it writes an error response and returns false.
func (s *Service) place(w http.ResponseWriter, b *box) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, other := range s.boxes {
		if other.stopped.IsZero() {
			running++
		}
	}
	if running >= s.opt.MaxRunning {
		refuse(w, http.StatusTooManyRequests, "SANDBOX_LIMIT_EXCEEDED", "the organization may have %d sandboxes at a time", s.opt.MaxRunning)
		return false
	}
	if b.creation.StopAt != nil {
		b.stops = time.UnixMilli(*b.creation.StopAt)
		if !b.stops.After(s.now()) {
			refuse(w, http.StatusBadRequest, "INVALID_STOP_AT", "stop_at_ms is in the past")
			return false
		}
		b.bound()
	}
	if root := b.creation.Root; root != nil {
		v, snapshot := find(s.volumes, root.Volume), find(s.snapshots, root.Volume)
		if (v == nil || !v.bootable) && snapshot == nil {
			refuse(w, http.StatusNotFound, "ROOT_NOT_FOUND", "no bootable volume or snapshot %s", root.Volume)
			return false
		}
		if v != nil && !s.attach(w, b, v) {
			return false
		}
	}
	for _, m := range b.creation.Volumes {
		v := find(s.volumes, m.Volume)
		switch {
		case v == nil:
			refuse(w, http.StatusNotFound, "VOLUME_NOT_FOUND", "volume %s not found", m.Volume)
			return false
		case v.region != b.region:
			refuse(w, http.StatusBadRequest, "VOLUME_REGION_MISMATCH", "volume %s is in %s", m.Volume, v.region)
			return false
		case !s.attach(w, b, v):
			return false
		}
		b.binds = append(b.binds, s.folder(v), m.Path)
	}
	s.made++
	b.said = b.made.Add(time.Duration(s.made) * s.opt.Later)
	s.boxes[b.id] = b
	return true
}

// attach attaches a volume to a sandbox. If another sandbox has it attached it writes an error response and returns false. The lock is
// held, as in the methods below.
func (s *Service) attach(w http.ResponseWriter, b *box, v *volume) bool {
	if v.holder != nil && v.holder.stopped.IsZero() && s.boxes[v.holder.id] != nil {
		refuse(w, http.StatusConflict, "VOLUME_IN_USE", "volume %s is attached to another sandbox", v.slug)
		return false
	}
	v.holder = b
	return true
}

// bound limits the end of the sandbox's lifetime to the maximum.
func (b *box) bound() {
	if most := b.made.Add(b.s.opt.MaxLife); b.s.opt.MaxLife > 0 && b.stops.After(most) {
		b.stops = most
	}
}

// boot starts the first process of the box.
func (b *box) boot() error {
	dir, err := os.MkdirTemp(b.s.dir, "box-")
	if err != nil {
		return err
	}
	booted, err := servicetest.Boot(servicetest.Options{
		Dir: dir, User: User, Binds: b.binds, Network: b.creation.Allowed == nil, Sudo: true, Ended: b.over,
	})
	if err != nil {
		return err
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.work.Go(func() { <-booted.Over() })
	b.Box = booted
	if b.ending { // meanwhile
		booted.End()
	}
	if !b.stops.IsZero() {
		b.lives()
	}
	return nil
}

// lives starts the timer for the end of the sandbox.
func (b *box) lives() {
	if b.clock != nil {
		b.clock.Stop()
	}
	b.clock = time.AfterFunc(b.stops.Sub(b.s.now()), func() {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		if !b.s.now().Before(b.stops) {
			b.end()
		}
	})
}

// end kills all processes of the box.
func (b *box) end() {
	b.ending = true
	if b.clock != nil {
		b.clock.Stop()
	}
	if b.Box != nil {
		b.End()
	}
}

// over closes the box's connections when all its processes have ended. The lock is not held.
func (b *box) over() {
	b.s.mu.Lock()
	b.ending, b.stopped = true, b.s.now()
	var mine []*socket
	for c := range b.s.sockets {
		if c.box == b {
			mine = append(mine, c)
		}
	}
	b.s.mu.Unlock()
	for _, c := range mine {
		c.bye()
	}
}

// public returns the box as a list shows it.
func (b *box) public() map[string]any {
	d := map[string]any{
		"id": b.id, "createdAt": b.said.UTC().Format(time.RFC3339Nano), "stoppedAt": nil, "region": b.region, "status": "running",
		"labels": b.creation.Labels,
	}
	if b.creation.Labels == nil {
		d["labels"] = map[string]string{}
	}
	if !b.stopped.IsZero() {
		d["stoppedAt"], d["status"] = b.stopped.UTC().Format(time.RFC3339Nano), "stopped"
	}
	return d
}

// variables returns the environment that all processes of the box share.
func (b *box) variables() map[string]string {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return maps.Clone(b.env)
}
