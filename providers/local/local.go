//go:build linux

// Package local is the provider that runs commands on the worker's own host: without a daemon,
// without root where the kernel allows it, in boxes of namespaces, a root of their own, landlock,
// seccomp and limits. It protects the host and the tenants from a hostile command, not from a hole in the kernel that
// they share.
//
// The level of isolation is found out at [New] by a real box that tries to break out:
//
//	L3  user, mount, pid, net, ipc, uts and cgroup namespaces and all of L2
//	L2  landlock, seccomp, no capabilities, no new privileges, limits, a private temporary directory
//	L0  a bare process: only when the operator allows it
//
// Network deny-all is a network namespace with nothing but a loopback (L2: no sockets but pairs).
// Networks restricted and allow-all are one whose every connection arrives at a relay in this process, which decides by the rules of
// the sandbox and dials (package egress); it never reaches what is not public, but by the operator's leave. Without namespaces
// restricted is refused, and allow-all is the host's own network.
//
// Boxes and the spawner that makes them end with the worker, whatever ends it, and so do background
// jobs. What these printed and how they ended stays in the state directory: see [Provider.StartJob].
package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/accountfiles"
	"github.com/sandjet/sandjet/providers/internal/folderid"
	"github.com/sandjet/sandjet/providers/local/box"
	_ "github.com/sandjet/sandjet/providers/local/boxentry" // makes this program a box binary too
	"github.com/sandjet/sandjet/providers/local/confine"
	"github.com/sandjet/sandjet/schemas"
)

// Limits of a box that a spec does not name.
const (
	DefaultMemory    int64 = 2 << 30 // bytes
	DefaultPids            = 512     // processes and threads
	DefaultTmp             = box.DefaultTmp
	DefaultFileSize        = box.DefaultFileSize
	DefaultOpenFiles       = box.DefaultOpenFiles
	// LeastProcesses is how many processes a box has at least: what a shell and its tools need.
	LeastProcesses = 64
	// DefaultPool is how many boxes are kept ready.
	DefaultPool = 2
	mostPool    = 64
)

// Options configures the provider. StateDir and Workspaces are required.
type Options struct {
	// StateDir is a directory for what the provider keeps for itself. It is made when absent.
	StateDir string
	// Workspaces is the directory with the files, one directory for each workspace. It is made when
	// absent.
	Workspaces string
	// Box is the path of the box binary, sandjet-box. Empty: the one beside this executable, else
	// this executable itself.
	Box string
	// AllowUnisolated accepts a host that forbids namespaces: runs are then kept by landlock and
	// seccomp (L2) where the kernel has both, else by nothing (L0).
	AllowUnisolated bool
	// Pool is how many boxes are kept ready for each kind of box in use. 0: DefaultPool, below 0: none.
	Pool int
	// Networks are the network modes that a spec may ask for. Empty: deny-all alone.
	Networks []schemas.NetworkMode
	// PrivateNetworks may be reached by boxes though they are not public, where the network restricted lists them too.
	PrivateNetworks []netip.Prefix
	// Resolver looks up the names that boxes connect to, Dial connects to an address that was checked. Nil: this host does.
	Resolver egress.Resolver
	Dial     func(context.Context, netip.AddrPort) (net.Conn, error)
	// Roots are who may sign the certificates of hosts that secrets are bound to. Nil: those that this host trusts.
	Roots *x509.CertPool
	// MaxMemory is the most bytes of memory of a box, also of one that asks for none. 0: no limit.
	MaxMemory int64
	// MaxCPUs is how many processors a box has at a time, also one that asks for none, where this host can limit
	// them. 0: a half of the host's, at least one; below 0: no limit.
	MaxCPUs float64
	// Boxes is how many boxes are kept between calls in all, AccountBoxes for one account. Beyond that idle ones make
	// room. 0: DefaultBoxes, DefaultAccountBoxes; below 0: no limit.
	Boxes, AccountBoxes int
	// LeftoverCPU is the processor time that what calls have left behind in a kept box may use while nothing else
	// runs in it, beyond a twentieth of a processor. Then the box is ended. 0: DefaultLeftoverCPU; below 0: no limit.
	LeftoverCPU time.Duration
	// WorkspaceQuota and WorkspaceFiles are the most bytes and files (inodes) of one workspace, AccountQuota the most
	// bytes of all workspaces of an account, and in the same proportion files. 0: DefaultWorkspaceQuota,
	// DefaultWorkspaceFiles, DefaultAccountQuota; below 0: no limit.
	WorkspaceQuota, WorkspaceFiles, AccountQuota int64
	// HomeQuota is the most bytes of the home folder of one box, which counts for the account as a workspace does and
	// may have as many files. 0: DefaultHomeQuota, below 0: no limit.
	HomeQuota int64
	// Tmp is the most bytes of a box's /tmp, which is memory; FileSize is the most bytes of one file, OpenFiles how many
	// files a process may have open. 0: DefaultTmp, DefaultFileSize, DefaultOpenFiles. Limits of the worker itself that are
	// lower hold.
	Tmp, FileSize int64
	OpenFiles     int
	// Processes is how many processes and threads a box has that asks for no number; fewer if the host could not run as many in each of Boxes.
	// 0: DefaultPids.
	Processes int
	// MinFree is what must stay free of the file systems that hold StateDir and Workspaces: with less, nothing is
	// written to workspaces.
	MinFree Reserve
	// Log gets what an operator should know. Nil: no log.
	Log *slog.Logger
}

// Provider runs commands in boxes on this host. Its methods are safe for concurrent use.
type Provider struct {
	*boxes
	*keptBoxes
	*jobRunner
}

// host is the isolation that this host offers, and the settings.
type host struct {
	opt       Options
	log       *slog.Logger
	program   string
	rung      string
	unused    string     // why the box binary beside this program is not used; empty: there is none, or it is
	modes     []box.Mode // to be tried
	mode      box.Mode
	landlock  int
	mostABI   int // of Landlock, for tests; 0: that of the kernel
	watches   bool
	shell     string
	isolation schemas.Isolation
	relays    bool   // boxes can have a relay
	redirects bool   // and connections to all ports arrive there
	noRelay   string // why not
	cgroups   confine.CgroupSupport
	ids       idRange
	null      *os.File
	pids      int // processes of a box that asks for no number
}

// boxes makes boxes, some of them in advance.
type boxes struct {
	*host
	*workspaces

	buffers sync.Pool
	done    chan struct{} // closed when the provider is

	mu      sync.Mutex // of keptBoxes and jobRunner too
	closed  bool
	spawner *box.Spawner
	pool    pool
	ending  sync.WaitGroup // boxes on their way out and in

	launching sync.Mutex // held while a spawner is launched
}

// workspaces manages the directories of workspaces on this host.
type workspaces struct {
	*host

	quotas *quotas
	making turns // of namespaces whose directories are made
	files  *accountfiles.Folder
	store  string // identity of the workspaces
}

// keptBoxes manages the boxes that persist between runs.
type keptBoxes struct {
	*boxes

	running    *jobs // those of jobRunner
	kept       map[string]*kept
	meterEvery time.Duration
}

// jobRunner runs background jobs, which outlive their call.
type jobRunner struct {
	*boxes

	instances *keptBoxes
	jobs      jobs
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Filer    = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// New finds out by trial what isolation this host offers, and returns a provider for it. If it cannot make namespaces and less is not
// allowed, the error says so and names a remedy. The caller closes the provider. Code: unsupported.
func New(o Options) (*Provider, error) {
	p, err := prepare(o)
	if err != nil {
		return nil, err
	}
	return p.start()
}

// start chooses the isolation level and starts the background work.
func (p *Provider) start() (*Provider, error) {
	reasons, err := p.choose(context.Background())
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for _, r := range reasons {
		p.log.Info("stronger isolation not available", "level", r.Level, "reason", r.Reason, "remedy", r.Remedy)
	}
	if p.unused != "" {
		p.log.Warn("sandjet-box not used, sandboxes start more slowly", "reason", p.unused, "remedy", "name it with --box")
	}
	p.log.Info("local sandboxes are ready", "level", p.isolation.Level, "box", p.rung, "cgroups", p.cgroups.String(),
		"missing", p.isolation.Missing)
	p.mu.Lock()
	p.pool.size = poolSize(p.opt.Pool)
	p.mu.Unlock()
	p.ending.Go(p.meter)
	p.ending.Go(func() { p.quotas.run(p.done) })
	if os.Geteuid() != 0 {
		p.warm(p.shape(providers.Spec{}))
	}
	return p, nil
}

func poolSize(n int) int {
	switch {
	case n < 0:
		return 0
	case n == 0:
		return DefaultPool
	default:
		return min(n, mostPool)
	}
}

// processes returns the limit on processes of a box whose spec sets none: at most most, and less if that many boxes could use up the
// host's process ids.
func processes(boxes, most int) int {
	const others = 32 // boxes that are not kept
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && boxes > 0 {
			most = min(most, n*3/4/(boxes+others)-box.OwnThreads)
		}
	}
	return max(most, LeastProcesses)
}

// prepare makes a provider without choosing its isolation level.
func prepare(o Options) (*Provider, error) {
	if o.StateDir == "" || o.Workspaces == "" {
		return nil, schemas.OpErrorf(schemas.Invalid, "local", "a state directory and a directory for workspaces are needed")
	}
	h := &host{opt: o, log: o.Log, ids: hostIDs(), modes: []box.Mode{box.Isolated, box.Landlocked}}
	b := &boxes{host: h, workspaces: &workspaces{host: h}}
	k := &keptBoxes{boxes: b, kept: map[string]*kept{}}
	j := &jobRunner{boxes: b, instances: k}
	k.running = &j.jobs
	p := &Provider{b, k, j}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if len(p.opt.Networks) == 0 {
		p.opt.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	if p.opt.MaxCPUs == 0 {
		p.opt.MaxCPUs = max(1, float64(runtime.NumCPU())/2)
	}
	p.buffers.New = func() any { return new([schemas.MaxChunk]byte) }
	p.pool.idle = map[shape][]*sandbox{}
	p.done, p.meterEvery = make(chan struct{}), meterEvery
	p.opt.Boxes, p.opt.AccountBoxes = cmp.Or(p.opt.Boxes, DefaultBoxes), cmp.Or(p.opt.AccountBoxes, DefaultAccountBoxes)
	p.opt.LeftoverCPU = cmp.Or(p.opt.LeftoverCPU, DefaultLeftoverCPU)
	p.pids = processes(p.opt.Boxes, cmp.Or(p.opt.Processes, DefaultPids))
	var err error
	if p.program, p.rung, p.unused, err = findProgram(o.Box); err != nil {
		return nil, err
	}
	for _, dir := range []*string{&p.opt.StateDir, &p.opt.Workspaces} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
		if err := makeDir(*dir); err != nil {
			return nil, schemas.Wrap(schemas.Unavailable, "local", "a directory of the local provider cannot be made", err)
		}
	}
	p.jobs.live = map[string]*job{}
	if p.jobs.dirs, err = openJobs(p.opt.StateDir); err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "local", "the directory for jobs cannot be used", err)
	}
	p.jobs.outputs = newOutputs(p.jobs.dirs, func() (Room, error) { return roomOf(p.opt.StateDir, p.opt.MinFree) })
	p.jobs.outputs.prune()
	p.jobs.outputs.giveWay()
	if p.store, err = folderid.Of(p.opt.Workspaces); err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "local", "the directory for workspaces cannot be written", err)
	}
	p.quotas = newQuotas(p.host, p.jobs.outputs)
	p.files = p.newFiles()
	if p.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	if n, err := p.sweepHomes(); err != nil {
		p.log.Warn("home folders of dead workers not removed", "error", err)
	} else if n > 0 {
		p.log.Info("home folders of dead workers removed", "count", n)
	}
	p.cgroups = confine.ProbeCgroups()
	if n, err := p.cgroups.Sweep(); err != nil {
		p.log.Warn("cgroups of dead workers not removed", "error", err)
	} else if n > 0 {
		p.log.Info("cgroups of dead workers removed", "count", n)
	}
	return p, nil
}

// makeDir makes a directory that a tenant's user can traverse but not list.
func makeDir(dir string) error {
	if os.Geteuid() != 0 {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // passing through is meant
		return err
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // as above
}

// findProgram returns the path of the box binary and how it was found. Unused is why a binary beside this program is not used; empty if
// there is none or it is used.
func findProgram(explicit string) (path, rung, unused string, err error) {
	if explicit != "" {
		if err := unix.Access(explicit, unix.X_OK); err != nil {
			return "", "", "", schemas.OpErrorf(schemas.Invalid, "local", "the box binary %s cannot be executed: %w", explicit, err)
		}
		path, err = filepath.Abs(explicit)
		if err != nil {
			return "", "", "", fmt.Errorf("local: %w", err)
		}
		return path, path, "", nil
	}
	own, err := os.Executable()
	if err == nil {
		path, unused = besideProgram(own)
	}
	if path != "" {
		return path, path, "", nil
	}
	return "/proc/self/exe", "this program itself", unused, nil
}

// besideProgram returns the box binary beside the program own, or why the binary found there is not used.
func besideProgram(own string) (path, unused string) {
	beside := filepath.Join(filepath.Dir(own), box.Name)
	var st unix.Stat_t
	switch {
	case unix.Stat(beside, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", ""
	case st.Mode&0o022 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return "", beside + " may be written by others"
	case st.Mode&0o111 == 0:
		return "", beside + " is not executable"
	case !sameBuild(beside):
		return "", beside + " does not say that it is of the same build"
	}
	return beside, ""
}

// sameBuild reports whether the program at path was certainly built from the same source as this one: an older one would apply older
// rules. Builds of a modified tree have no exact version and never count.
func sameBuild(path string) bool {
	own, ok := debug.ReadBuildInfo()
	if !ok || !strings.HasPrefix(own.Main.Version, "v") || strings.HasSuffix(own.Main.Version, "+dirty") {
		return false
	}
	theirs, err := buildinfo.ReadFile(path)
	return err == nil && theirs.Main.Path == own.Main.Path && theirs.Main.Version == own.Main.Version
}

// Close ends every box and waits for their ends, then up to 10 s until the ends of their jobs are reported.
func (p *Provider) Close() error {
	p.mu.Lock()
	if !p.closed {
		close(p.done)
	}
	p.closed = true
	idle := p.pool.drain()
	keeps := make([]*kept, 0, len(p.kept))
	for _, k := range p.kept {
		keeps = append(keeps, k)
	}
	clear(p.kept)
	spawner := p.spawner
	p.mu.Unlock()
	for _, s := range idle {
		s.end()
	}
	for _, k := range keeps {
		k.end(lostWorker)
	}
	p.ending.Wait()
	err := p.closeJobs()
	if spawner != nil {
		err = errors.Join(err, spawner.Close())
	}
	return errors.Join(err, p.null.Close())
}

// idRange is the range of host user ids for the boxes of a worker that runs as root.
type idRange struct{ first, count uint32 }

// hostIDs returns ids that belong to no other user: far above those of people and services or, in a user namespace with few ids, the upper
// part of those.
func hostIDs() idRange {
	const lowest = 165536 // below are the ranges that hosts give to their users
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return idRange{lowest, 1 << 30}
	}
	var inside, outside, length uint64
	var top uint64
	for line := range lines(data) {
		if n, err := fmt.Sscan(line, &inside, &outside, &length); n == 3 && err == nil {
			top = max(top, inside+length)
		}
	}
	if top > lowest+1<<16 {
		return idRange{lowest, uint32(min(top-lowest, 1<<30))}
	}
	return idRange{uint32(top / 2), uint32(max(1, top/2-1))}
}

// hostID returns the host user id of an account's boxes, always the same for the same account. It is 0, for the worker's own user, unless
// the worker is root.
func (p *host) hostID(a schemas.AccountID) int {
	if os.Geteuid() != 0 {
		return 0
	}
	sum := sha256.Sum256([]byte("sandjet-account\x00" + a))
	return int(p.ids.first) + int(binary.BigEndian.Uint32(sum[:])%p.ids.count)
}

// idleTime is how long boxes stay ready while none is taken.
const idleTime = 5 * time.Minute
