package verceltest

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// The states of a session.
const (
	statePending      = "pending"
	stateRunning      = "running"
	stateStopping     = "stopping"
	stateSnapshotting = "snapshotting"
	stateStopped      = "stopped"
	stateFailed       = "failed"
)

// box is a sandbox. The service's lock protects it, and all below.
type box struct {
	s             *Service
	c             creation
	body          map[string]any
	made, changed time.Time
	hidden        int // lists that it is missing from yet
	current       *session
	snapshot      string // the id of the one from which it is resumed; empty: from its image
	tags          map[string]string
	gone          bool
}

// session is one run of a sandbox's virtual machine.
type session struct {
	s        *Service
	box      *box
	id, dir  string
	made     time.Time
	started  time.Time
	ended    time.Time
	timeout  time.Duration
	policy   policy
	from     string // the snapshot
	running  *servicetest.Box
	state    string
	next     []string // the states that it will have, each after some more looks
	looks    int
	clock    *time.Timer
	commands map[string]*command
}

// snapshot holds the files of a session that has ended.
type snapshot struct {
	id, dir, session, box string
	made                  time.Time
}

// drive is a set of files that outlives sandboxes.
type drive struct {
	id, name, dir string
	made          time.Time
	writer        *session // that has it mounted
	written       bool
}

// goes makes a session pass through states.
func (t *session) goes(states ...string) {
	t.state, t.next, t.looks = states[0], states[1:], t.s.opt.Looks
	t.box.changed = t.s.now()
}

// look returns the state that a client sees; each read may advance the state.
func (t *session) look() string {
	if len(t.next) > 0 {
		if t.looks--; t.looks < 0 {
			t.state, t.next, t.looks = t.next[0], t.next[1:], t.s.opt.Looks
		}
	}
	return t.state
}

func (t *session) public() map[string]any {
	d := map[string]any{
		"id": t.id, "memory": 4096, "vcpus": 2, "region": "iad1", "timeout": t.timeout.Milliseconds(), "status": t.look(),
		"requestedAt": millis(t.made), "createdAt": millis(t.made), "updatedAt": millis(t.made), "cwd": "/vercel/sandbox",
		"networkPolicy": t.policy.public(),
	}
	if !t.started.IsZero() {
		d["startedAt"] = millis(t.started)
	}
	if !t.ended.IsZero() {
		d["stoppedAt"] = millis(t.ended)
	}
	if t.from != "" {
		d["sourceSnapshotId"] = t.from
	}
	return d
}

func (b *box) public() map[string]any {
	d := map[string]any{
		"name": b.c.Name, "persistent": *b.c.Persistent, "region": "iad1", "vcpus": 2, "memory": 4096, "timeout": b.c.Timeout,
		"networkPolicy": b.c.policy.public(), "createdAt": millis(b.made), "updatedAt": millis(b.changed), "statusUpdatedAt": millis(b.changed),
		"currentSessionId": b.current.id, "status": b.current.look(), "cwd": "/vercel/sandbox", "tags": b.tags, "mounts": b.mounts(),
	}
	if b.snapshot != "" {
		d["currentSnapshotId"] = b.snapshot
	}
	return d
}

func (b *box) answer(more map[string]any) map[string]any {
	d := map[string]any{"sandbox": b.public(), "session": b.current.public(), "routes": []any{}}
	maps.Copy(d, more)
	return d
}

// mountBusyError reports that another sandbox writes to a drive.
type mountBusyError struct{ error }

// begin makes the next session of a sandbox, from its snapshot; boot starts its processes. The lock is held.
func (b *box) begin() (*session, error) {
	t := &session{
		s: b.s, box: b, id: newID("sess_"), made: b.s.now(), timeout: time.Duration(b.c.Timeout) * time.Millisecond, policy: b.c.policy,
		from: b.snapshot, commands: map[string]*command{},
	}
	for _, m := range b.c.Mounts {
		d := b.s.drives[m.Drive]
		switch {
		case d == nil:
			return nil, errors.New("Drive " + m.Drive + " not found")
		case m.Mode == "snapshot" && !d.written:
			return nil, errors.New("Drive " + m.Drive + " has no data to take a snapshot of")
		case m.Mode != "snapshot" && d.writer != nil:
			return nil, &mountBusyError{errors.New("Drive " + m.Drive + " is already attached to a running sandbox")}
		}
	}
	for _, m := range b.c.Mounts {
		if m.Mode != "snapshot" {
			d := b.s.drives[m.Drive]
			d.writer, d.written = t, true
		}
	}
	t.dir = filepath.Join(b.s.dir, "sessions", t.id)
	t.state = statePending
	b.s.sessions[t.id], b.current = t, t
	b.changed = b.s.now()
	return t, nil
}

// boot starts the processes of a session, which is running shortly after.
func (t *session) boot() error {
	b := t.box
	files := filepath.Join(t.dir, "files")
	err := os.MkdirAll(filepath.Dir(files), 0o755)
	if err == nil && t.from != "" {
		t.s.mu.Lock()
		from := t.s.snapshots[t.from]
		t.s.mu.Unlock()
		if from != nil {
			err = copyFiles(from.dir, files)
		}
	}
	binds := []string{}
	for place, mode := range map[string]os.FileMode{"/home/" + user: 0o755, "/tmp": 0o777 | os.ModeSticky, "/vercel/sandbox": 0o777} {
		here := filepath.Join(files, filepath.Base(place))
		err = errors.Join(err, os.MkdirAll(here, 0o755), os.Chmod(here, mode))
		binds = append(binds, here, place)
	}
	var reads []string
	for place, m := range b.c.Mounts {
		t.s.mu.Lock()
		dir := t.s.drives[m.Drive].dir
		t.s.mu.Unlock()
		if m.Mode == "snapshot" {
			seen := filepath.Join(t.dir, "drive-"+m.Drive)
			err = errors.Join(err, copyFiles(dir, seen))
			reads = append(reads, seen, place)
			continue
		}
		binds = append(binds, dir, place)
	}
	if err != nil {
		return err
	}
	place := filepath.Join(t.dir, "boot")
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	ended := make(chan struct{})
	running, err := servicetest.Boot(servicetest.Options{
		Dir: place, User: user, Env: b.c.Env, Binds: binds, ReadOnly: reads, Network: t.policy.Mode == "allow-all", Sudo: true,
		Ended: func() { close(ended) },
	})
	if err != nil {
		return err
	}
	t.s.work.Go(func() { <-ended })
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.running, t.started = running, t.s.now()
	if b.gone || t.state != statePending { // meanwhile
		running.End()
		return nil
	}
	t.goes(statePending, stateRunning)
	t.wind()
	return nil
}

func copyFiles(from, to string) error {
	out, err := exec.Command("cp", "-a", "--", from, to).CombinedOutput() //nolint:noctx // it is short
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}

// wind restarts the timer for the session's end.
func (t *session) wind() {
	if t.clock != nil {
		t.clock.Stop()
	}
	var mine *time.Timer
	mine = time.AfterFunc(t.started.Add(t.timeout).Sub(t.s.now()), func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		if t.clock == mine && t.alive() && !t.halting() {
			t.halt()
		}
	})
	t.clock = mine
}

func (t *session) alive() bool { return !slices.Contains([]string{stateStopped, stateFailed}, t.state) }

func (t *session) halting() bool { return t.state == stateStopping || t.state == stateSnapshotting }

// over ends the session's processes, and releases its drives.
func (t *session) over() {
	if t.clock != nil {
		t.clock.Stop()
	}
	if t.running != nil {
		t.running.End()
		<-t.running.Over()
	}
	t.ended = t.s.now()
	for _, d := range t.s.drives {
		if d.writer == t {
			d.writer = nil
		}
	}
	for _, c := range t.commands {
		c.cut()
	}
}

// halt ends a session properly: a persistent sandbox gets a snapshot.
func (t *session) halt() *snapshot {
	t.over()
	if !*t.box.c.Persistent {
		t.goes(stateStopping, stateStopped)
		return nil
	}
	t.goes(stateStopping, stateSnapshotting, stateStopped)
	return t.save()
}

// save makes a snapshot of a session that has ended, in place of the sandbox's last one.
func (t *session) save() *snapshot {
	n := &snapshot{id: newID("snap_"), session: t.id, box: t.box.c.Name, made: t.s.now()}
	n.dir = filepath.Join(t.s.dir, "snapshots", n.id)
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.dir), 0o755), os.Rename(filepath.Join(t.dir, "files"), n.dir)); err != nil {
		t.goes(stateFailed)
		return nil
	}
	if t.box.c.Keep != nil && t.box.c.Keep.Count == 1 {
		delete(t.s.snapshots, t.box.snapshot)
	}
	t.s.snapshots[n.id], t.box.snapshot = n, n.id
	return n
}

// fail ends a session without a snapshot.
func (t *session) fail() {
	if t.alive() {
		t.over()
		t.goes(stateFailed)
	}
}

// destroy deletes a sandbox: its name is free at once, and its processes end.
func (b *box) destroy() {
	if b.gone {
		return
	}
	b.gone = true
	delete(b.s.boxes, b.c.Name)
	if b.current.alive() && !b.current.halting() {
		b.current.over()
		b.current.goes(stateStopping, stateStopped)
	}
}

func (n *snapshot) public() map[string]any {
	return map[string]any{
		"id": n.id, "sourceSessionId": n.session, "region": "iad1", "status": "created", "sizeBytes": 1, "createdAt": millis(n.made),
		"updatedAt": millis(n.made),
	}
}

func (d *drive) public() map[string]any {
	p := map[string]any{
		"id": d.id, "name": d.name, "projectId": Project, "region": "iad1", "maxSizeBytes": 1 << 40, "createdAt": millis(d.made),
		"updatedAt": millis(d.made),
	}
	if d.writer != nil {
		p["currentSessionId"], p["currentSandboxName"] = d.writer.id, d.writer.box.c.Name
	}
	return p
}

func (b *box) mounts() any {
	if b.c.Mounts == nil {
		return map[string]any{}
	}
	return b.c.Mounts
}
