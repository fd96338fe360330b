package daytonatest

import (
	"os"
	"path/filepath"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// box is a sandbox. The service's lock protects it.
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

// goes lets it change its state by way of another.
func (b *box) goes(by, to string) {
	b.state, b.next, b.looks = by, to, b.s.opt.Looks
}

// look is what a client sees of it; its state may change with that look.
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

// public is what the service says of it.
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

// boot starts what runs in it: a moment later the sandbox is started.
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

// touch counts as use. The lock is held, as below.
func (b *box) touch() {
	b.used = b.s.now()
	b.after(*b.creation.AutoStop, b.idle)
}

// after does something in some minutes, in place of what was to be done.
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

// idle is what happens when it was unused for its time.
func (b *box) idle() {
	if b.state == "started" {
		b.halt()
	}
}

// halt stops it, and lets its time until it is deleted begin.
func (b *box) halt() {
	b.running.End()
	b.goes("stopping", "stopped")
	b.after(*b.creation.AutoDelete, b.destroy)
	if *b.creation.AutoDelete == 0 {
		b.destroy()
	}
}

// destroy deletes it: it is gone when nothing of it runs.
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
