package daytonatest

import (
	"os"
	"path/filepath"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// box is a sandbox of the service, protected by the service's lock.
type box struct {
	s        *Service
	creation creation
	body     map[string]any
	id, dir  string
	binds    []string
	made     time.Time
	hidden   int // lists that it is missing from yet

	running     *servicetest.Box // nil: nothing runs
	state       string
	next        string // the state that it will have, after some more looks; empty: it stays
	looks       int
	clock       *time.Timer
	used        string
	recoverable bool // of one that has failed
	sessions    map[string]*session
}

// goes sets the state by, which changes to the state to after some reads.
func (b *box) goes(by, to string) {
	b.state, b.next, b.looks = by, to, b.s.opt.Looks
}

// look returns the state that a client sees; each read may advance the state.
func (b *box) look() string {
	seen := b.state
	if b.next != "" {
		if b.looks--; b.looks < 0 {
			b.state, b.next = b.next, ""
			return b.state
		}
	}
	return seen
}

// public returns the box as the service describes it.
func (b *box) public(toolbox string) map[string]any {
	d := map[string]any{
		"id": b.id, "organizationId": "org", "name": b.creation.Name, "snapshot": Snapshot, "user": b.creation.User, "env": b.creation.Env,
		"labels": b.creation.Labels, "public": false, "networkBlockAll": b.creation.BlockAll, "target": "us", "cpu": 1, "gpu": 0, "memory": 1,
		"disk": 3, "state": b.look(), "autoStopInterval": *b.creation.AutoStop, "autoDeleteInterval": *b.creation.AutoDelete,
		"createdAt": b.made.UTC().Format(time.RFC3339Nano), "updatedAt": b.used, "toolboxProxyUrl": toolbox,
	}
	if b.state == "error" {
		d["errorReason"], d["recoverable"] = "the disk of the sandbox is full", b.recoverable
	}
	if b.creation.AllowList != "" {
		d["networkAllowList"] = b.creation.AllowList
	}
	return d
}

// boot starts the processes of the box: shortly after, its state is started.
func (b *box) boot() error {
	dir, err := os.MkdirTemp(b.dir, "start-")
	if err != nil {
		return err
	}
	binds := b.binds
	for place, mode := range map[string]os.FileMode{"/home/daytona": 0o755, "/tmp": 0o777 | os.ModeSticky} {
		here := filepath.Join(b.dir, filepath.Base(place))
		if err := os.MkdirAll(here, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(here, mode); err != nil {
			return err
		}
		binds = append(binds, here, place)
	}
	ended := make(chan struct{})
	running, err := servicetest.Boot(servicetest.Options{
		Dir: dir, User: "daytona", Env: b.creation.Env, Binds: binds, Network: !b.creation.BlockAll && b.creation.AllowList == "", Sudo: true,
		Ended: func() { close(ended) },
	})
	if err != nil {
		return err
	}
	b.s.work.Go(func() { <-ended })
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.running, b.sessions = running, map[string]*session{}
	b.touch()
	return nil
}

// touch records a use of the box. The lock is held, as in the methods below.
func (b *box) touch() {
	b.used = b.s.now()
	b.after(*b.creation.AutoStop, b.idle)
}

// after schedules do in some minutes, in place of what was scheduled before.
func (b *box) after(minutes int, do func()) {
	if b.clock != nil {
		b.clock.Stop()
	}
	if minutes <= 0 {
		return
	}
	var mine *time.Timer
	mine = time.AfterFunc(time.Duration(minutes)*time.Minute, func() {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		if b.clock == mine {
			do()
		}
	})
	b.clock = mine
}

// idle stops the box when it was unused for its idle time.
func (b *box) idle() {
	if b.state == "started" {
		b.halt()
	}
}

// halt stops the box, and schedules its deletion.
func (b *box) halt() {
	b.running.End()
	b.goes("stopping", "stopped")
	b.after(*b.creation.AutoDelete, b.destroy)
	if *b.creation.AutoDelete == 0 {
		b.destroy()
	}
}

// destroy deletes the box: it is gone when all its processes have ended.
func (b *box) destroy() {
	if b.state == "destroying" {
		return
	}
	if b.clock != nil {
		b.clock.Stop()
	}
	b.state, b.next = "destroying", ""
	running := b.running
	if running == nil {
		delete(b.s.boxes, b.id)
		return
	}
	running.End()
	b.s.work.Go(func() {
		<-running.Over()
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		delete(b.s.boxes, b.id)
	})
}
