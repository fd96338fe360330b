package e2btest

import (
	"os"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// box is a sandbox of the service, protected by the service's lock.
type box struct {
	*servicetest.Box // nil: it has not booted yet

	s         *Service
	creation  creation
	body      map[string]any
	id, token string
	key       string   // of its team
	binds     []string // source and target, in turn
	hidden    int      // lists that it is missing from yet
	number    int

	started, ends time.Time
	paused        bool
	clock         *time.Timer
	processes     map[int]*process
	lastProcess   int
}

func (b *box) state() string {
	if b.paused {
		return "paused"
	}
	return "running"
}

// public returns the response to a request that makes or wakes the box.
func (b *box) public() map[string]any {
	return map[string]any{
		"templateID": Template, "sandboxID": b.id, "clientID": "6532622b", "envdVersion": "0.6.13", "envdAccessToken": b.token, "domain": nil,
	}
}

// listed returns the box as lists show it.
func (b *box) listed() map[string]any {
	d := b.public()
	delete(d, "envdAccessToken")
	skew := b.s.opt.Skew
	said, ends := b.started.Add(skew+time.Duration(b.number)*b.s.opt.Later), b.ends.Add(skew)
	d["startedAt"], d["endAt"], d["state"] = said.UTC().Format(time.RFC3339Nano), ends.UTC().Format(time.RFC3339Nano), b.state()
	d["cpuCount"], d["memoryMB"], d["diskSizeMB"], d["metadata"] = 2, 512, 10240, b.creation.Metadata
	return d
}

// isolated reports whether the box has no network access at all.
func (b *box) isolated() bool {
	return b.creation.Internet != nil && !*b.creation.Internet || len(b.creation.Network.Deny) > 0
}

// boot starts the first process of the box.
func (b *box) boot() error {
	dir, err := os.MkdirTemp(b.s.dir, "box-")
	if err != nil {
		return err
	}
	booted, err := servicetest.Boot(servicetest.Options{
		Dir: dir, User: "user", Env: b.creation.Env, Binds: b.binds, Network: !b.isolated(), Sudo: true, Ended: b.forget,
	})
	if err != nil {
		return err
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.Box = booted
	return nil
}

// forget removes the box from the service.
func (b *box) forget() {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.clock != nil {
		b.clock.Stop()
	}
	delete(b.s.boxes, b.id)
}

// lives sets the remaining lifetime of the box. The lock is held, as in the methods below.
func (b *box) lives(d time.Duration) {
	b.ends = time.Now().Add(d)
	if b.clock != nil {
		b.clock.Stop()
	}
	b.clock = time.AfterFunc(d, func() {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		if !time.Now().Before(b.ends) {
			b.expire()
		}
	})
}

// expire pauses or ends the box at the end of its lifetime.
func (b *box) expire() {
	switch {
	case b.paused:
	case b.creation.Pause:
		b.freeze()
	default:
		b.end()
	}
}

// end kills all processes of the box.
func (b *box) end() {
	if b.Box != nil {
		b.End()
	}
}

func (b *box) freeze() {
	b.paused = true
	b.Signal(syscall.SIGSTOP)
}

func (b *box) thaw() {
	b.paused = false
	b.started = time.Now()
	b.Signal(syscall.SIGCONT)
}
