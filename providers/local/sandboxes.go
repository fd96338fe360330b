//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/accountfiles"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/providers/local/confine"
	"github.com/sandjet/sandjet/schemas"
)

// shape is the properties of a box that must be known before it is made. Boxes of one shape are interchangeable until they are claimed.
type shape struct {
	hostID  int
	hostNet bool
	relay   bool   // it has a network of its own with one way out
	ports   string // at which it listens for what it sends; empty: at one for all
	memory  int64
	pids    int
	cpus    float64
}

// shape returns the shape of a box for spec.
func (p *host) shape(spec providers.Spec) shape {
	s := shape{hostID: p.hostID(spec.Account), hostNet: spec.Network.Mode == schemas.AllowAll && p.mode != box.Isolated,
		relay: p.relayed(spec.Network.Mode), memory: spec.MemoryLimit,
		pids: spec.Pids, cpus: spec.CPUs}
	if s.memory <= 0 {
		s.memory = DefaultMemory
		if p.opt.MaxMemory > 0 {
			s.memory = min(s.memory, p.opt.MaxMemory)
		}
	}
	if s.cpus <= 0 && p.opt.MaxCPUs > 0 && contains(p.cgroups.Words(), "cgroup.cpu") {
		s.cpus = p.opt.MaxCPUs
	}
	if s.pids <= 0 {
		s.pids = p.pids
	}
	return s
}

// sandbox is a box with the worker's resources and state for it.
type sandbox struct {
	*box.Box
	shape  shape
	cgroup *confine.Cgroup // nil: nothing limits it but itself
	temp   string          // its private directory, where it has no root of its own
	way    *wayOut         // out of its network; nil: none, or that of the host
	home   *home           // its home folder on the disk; nil: in memory, or in temp
	born   time.Time
	holds  occupation
	once   sync.Once
	forget func()
	why    atomic.Pointer[string] // it was ended; nil: not said
	// replaced says that it was ended because its key gets another.
	replaced atomic.Bool
	// evicted is why it was ended for what it had written; nil: it was not.
	evicted atomic.Pointer[schemas.Error]
}

// build makes a box without waiting for its view: Ready does. The caller ends it.
func (p *boxes) build(s shape) (*sandbox, error) {
	spawner, err := p.launch()
	if err != nil {
		return nil, err
	}
	sb := &sandbox{shape: s, born: time.Now()}
	sb.forget = func() {
		p.quotas.leave(sb)
		if sb.home != nil {
			p.quotas.gone(sb.home.name)
		}
		p.ending.Done()
	}
	setup := box.Setup{Pids: s.pids, Tmp: p.opt.Tmp, FileSize: p.opt.FileSize, OpenFiles: p.opt.OpenFiles,
		Relay: s.relay, Ports: portsOf(s.ports), MaxABI: p.mostABI}
	options := box.Options{Mode: p.mode, HostNet: s.hostNet || p.mode != box.Isolated, HostID: s.hostID}
	words := p.cgroups.Words()
	if !contains(words, "cgroup.memory") {
		setup.Memory = s.memory
	}
	if len(words) > 0 {
		name := schemas.NewID("") // several providers may live in one process
		// Init's own threads are no processes of the tenant.
		limits := confine.Limits{MemoryBytes: s.memory, Pids: s.pids + box.OwnThreads, CPUs: s.cpus}
		if sb.cgroup, err = p.cgroups.New(name, limits); err != nil {
			p.ending.Done()
			return nil, schemas.Wrap(schemas.Unavailable, "make box", "the box's limits cannot be set", err)
		}
		options.Cgroup, options.Tasks = sb.cgroup.FD(), sb.cgroup.Tasks()
	}
	if p.mode != box.Isolated {
		if sb.temp, err = tempDir(s.hostID); err != nil {
			defer p.ending.Done()
			return nil, errors.Join(schemas.Wrap(schemas.Unavailable, "make box", "the box's temporary directory cannot be made", err), sb.clean())
		}
	}
	if sb.Box, err = spawner.Make(options); err != nil {
		defer p.ending.Done()
		return nil, errors.Join(boxError("make box", err), sb.clean())
	}
	if err := sb.BeginSetup(setup); err != nil {
		sb.end()
		return nil, boxError("make box", err)
	}
	return sb, nil
}

// claim waits until the box is ready, then mounts its files and makes it drop its rights.
func (s *sandbox) claim(mode box.Mode, mounts []providers.Mount, trust []byte) error {
	c := box.Claim{TempDir: s.temp, DenyNetwork: mode == box.Landlocked && !s.shape.hostNet, Trust: string(trust)}
	for _, m := range mounts {
		c.Mounts = append(c.Mounts, box.Mount{Name: m.Namespace, ReadOnly: m.ReadOnly})
	}
	if s.home != nil {
		c.Home = s.home.name
	}
	err := s.BeginClaim(c)
	if err == nil {
		err = s.Claimed()
	}
	if err != nil {
		return boxError("make box", err)
	}
	return nil
}

// end kills the box and waits until no process, connection or file of it is left. It may be called more than once.
func (s *sandbox) end() {
	s.Kill()
	<-s.Gone()
	<-s.Ended()
	if s.way != nil {
		<-s.way.done
	}
	s.once.Do(func() {
		_ = s.clean() // what stays is swept at the next start
		s.holds.end()
		s.forget()
	})
}

// written returns all mounts that the box may write to: mounts and its home folder.
func (s *sandbox) written(mounts []providers.Mount) []providers.Mount {
	if s.home == nil {
		return mounts
	}
	return append(slices.Clone(mounts), s.home.mount())
}

// clean removes the cgroup and the files of an ended box.
func (s *sandbox) clean() error {
	var errs []error
	if s.cgroup != nil {
		var err error
		for range 100 {
			if err = s.cgroup.Remove(); err == nil {
				break
			}
			time.Sleep(time.Millisecond) // the kernel takes its time to let go of the last process
		}
		errs = append(errs, err)
	}
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	if s.home != nil {
		errs = append(errs, s.home.remove())
	}
	return errors.Join(errs...)
}

// oomKills returns how many processes of the box the kernel has killed because memory ran out; 0 if unknown.
func (s *sandbox) oomKills() int {
	if s.cgroup == nil {
		return 0
	}
	n, err := s.cgroup.OOMKills()
	if err != nil {
		return 0
	}
	return n
}

// tempDir makes the private directory of a box without a root of its own.
func tempDir(hostID int) (string, error) {
	dir, err := os.MkdirTemp("", "sandjet-box-")
	if err != nil {
		return "", err
	}
	for _, d := range []string{dir, filepath.Join(dir, "tmp"), filepath.Join(dir, "home")} {
		if d != dir {
			if err := os.Mkdir(d, 0o700); err != nil {
				return "", errors.Join(err, os.RemoveAll(dir))
			}
		}
		if hostID > 0 {
			if err := os.Chown(d, hostID, hostID); err != nil {
				return "", errors.Join(err, os.RemoveAll(dir))
			}
		}
	}
	return dir, nil
}

// launch returns the spawner, starting a new one if the last has ended. The box to be made with it counts in p.ending from here on. It
// does not hold the provider's lock while a new spawner is loaded from the disk.
func (p *boxes) launch() (*box.Spawner, error) {
	p.launching.Lock()
	defer p.launching.Unlock()
	p.mu.Lock()
	s, closed := p.spawner, p.closed
	if !closed {
		p.ending.Add(1)
	}
	p.mu.Unlock()
	if closed {
		return nil, errClosed("make box")
	}
	if s != nil {
		select {
		case <-s.Gone():
			p.log.Warn("spawner ended, starting another one")
		default:
			return s, nil
		}
	}
	s, err := box.Launch(box.Config{Program: p.program, Workspaces: p.opt.Workspaces, Log: &logLines{log: p.log}})
	if err != nil {
		p.ending.Done()
		return nil, schemas.Wrap(schemas.Unavailable, "make box", "the spawner of boxes cannot be started", err)
	}
	p.mu.Lock()
	if closed = p.closed; !closed {
		p.spawner = s
	}
	p.mu.Unlock()
	if closed { // Close did not see this spawner
		defer p.ending.Done()
		return nil, errors.Join(errClosed("make box"), s.Close())
	}
	return s, nil
}

func errClosed(op string) error {
	return schemas.OpErrorf(schemas.Unavailable, op, "the provider is closed")
}

// boxError maps an error of package box to one with a code.
func boxError(op string, err error) error {
	if step, ok := errors.AsType[*box.StepError](err); ok {
		reason, remedy := explain(step)
		return schemas.Wrap(schemas.Unavailable, op, fmt.Sprintf("the box could not be made (%s): %s", reason, remedy), err)
	}
	return schemas.Wrap(schemas.Unavailable, op, "the box could not be made", err)
}

// openMounts makes the directories of the spec's workspaces, and returns open files whose locks keep the workspaces from being removed
// until they are closed.
func (p *workspaces) openMounts(spec providers.Spec) (occupied []*os.File, err error) {
	return p.files.Open(spec.Mounts, func(namespace string) error { return p.makeWorkspace(spec.Account, namespace) })
}

// occupation holds the locked owner files of a box's workspaces. A box may end by itself before they are stored here.
type occupation struct {
	mu    sync.Mutex
	files []*os.File
	ended bool
}

func (o *occupation) begin(files []*os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		accountfiles.CloseAll(files)
		return
	}
	o.files = files
}

func (o *occupation) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	accountfiles.CloseAll(o.files)
	o.files, o.ended = nil, true
}

// fresh returns a claimed box for spec, from the pool or newly made.
func (p *boxes) fresh(ctx context.Context, spec providers.Spec) (*sandbox, error) {
	rules, err := p.rules(spec.Network)
	if err != nil {
		return nil, err
	}
	s := p.shape(spec)
	if s.relay {
		s.ports = p.listenAt(rules, spec.Network)
	}
	occupied, err := p.openMounts(spec)
	if err != nil {
		return nil, err
	}
	var sb *sandbox
	defer func() {
		if sb == nil {
			accountfiles.CloseAll(occupied)
		}
	}()
	creds, err := egress.NewCredentials(rules)
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "make box", "the box's own certificates cannot be made", err)
	}
	var trust []byte
	if creds != nil {
		trust = creds.Certificate()
	}
	if sb = p.take(s); sb == nil {
		if sb, err = p.build(s); err != nil {
			return nil, err
		}
	}
	sb.holds.begin(occupied)
	stop := context.AfterFunc(ctx, sb.Kill)
	defer stop()
	if p.mode == box.Isolated && len(spec.Mounts) > 0 { // without files there is nothing to install anything for
		if sb.home, err = p.makeHome(s.hostID); err != nil {
			sb.end()
			return nil, err
		}
	}
	if err := sb.claim(p.mode, spec.Mounts, trust); err != nil {
		sb.end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	if s.relay {
		if err := p.openWay(sb, rules, creds, spec); err != nil {
			sb.end()
			return nil, err
		}
	}
	p.quotas.enter(sb, spec.Account, sb.written(spec.Mounts))
	return sb, nil
}
