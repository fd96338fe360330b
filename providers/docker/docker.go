// Package docker is the provider that runs commands in containers of a Docker engine, on this host or another one.
//
// A call of a sandbox that is not persistent gets a container of its own, whose root is read-only and which is removed when the call has
// ended. A persistent sandbox has a container that stays: its home folder and what was installed in it are there for the next call, and
// background jobs continue in it. Containers are found again by their names and labels, so that they outlive the worker that made them, and
// any worker of the same installation continues with them.
//
// Containers have no network unless they ask for one, an ordinary user, no capabilities, no way to new privileges, the engine's seccomp
// profile, and limits of memory, processors and processes. Access to the engine's socket is root on its host: the worker is, and no
// container ever sees the socket.
//
// What runs inside of a container is watched over by a small program (package boxrun): it ends a command whose worker has died, so that
// nothing runs whose result will not be read. Jobs are not commands: see package supervisor.
//
// # Ends of commands and jobs
//
// A command is run by a small shell program in the container (providers/internal/boxrun), which reads the command from its standard input
// and keeps listening there: "term" and "kill" end all that the command has started, and so does the end of the input, which is the death
// of the worker as the engine sees it. Where the network to the engine is cut and no end is seen, the command ends a minute after its
// worker would have stopped waiting. Nothing is started before the worker has received "ready" and sent "go": until then a failure is
// unavailable and the call may be tried again; after that it is interrupted.
//
// Jobs are what they are on every provider without jobs of its own: a supervisor in the container (package supervisor) that no worker
// holds. Their files and the container's labels say all that another worker needs. So the profile of docker does not say
// jobs_end_with_worker: kept containers have their rows on the log, and any worker of the installation continues with them, manages their
// jobs and ends them.
//
// A command's processes are known by a limit of their own for file locks, which kernels have ignored since 2.4, which children inherit
// through every session, group and environment, and which /proc shows. Where it does not, as in some other runtimes, cancelling a
// command in a kept container ends the container.
package docker

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/folderid"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// What [Options] stand for that say nothing.
const (
	DefaultImage              = "sandjet-sandbox"
	DefaultInstallation       = "sandjet"
	DefaultMemory       int64 = 512 << 20 // bytes
	DefaultPids               = 512       // processes and threads
	DefaultBoxes              = 50
	defaultID                 = 1000 // of the user in containers, where the worker is root
)

const (
	openTimeout  = 15 * time.Second // of the questions that are asked at the start
	probeTimeout = time.Minute
	pullTimeout  = 30 * time.Minute
	endTimeout   = 30 * time.Second // of the end of a container
	sweepEvery   = time.Minute
)

// Options configures the provider. The zero value uses the engine that the environment names and the sandbox image that is built from
// deploy/sandbox.
type Options struct {
	// Host is the address of the engine, such as unix:///run/docker.sock. Empty: that of DOCKER_HOST, with
	// DOCKER_CERT_PATH and DOCKER_TLS_VERIFY, else the engine's usual socket.
	Host string
	// Image is what containers are made of. It needs bash or sh, env, head, tail, mkdir, rm and sleep; for jobs what
	// package supervisor needs. Empty: DefaultImage, which is never pulled.
	Image string
	// Pull says when the image is pulled: see PullMissing. Empty is that.
	Pull PullPolicy
	// Workspaces is a folder of this host that holds the files of workspaces, one folder each. The engine has to see it
	// under the same path. Empty: each workspace is a named volume of the engine, and only commands reach its files.
	Workspaces string
	// Installation is the same for all workers that share containers, and another for others on the same engine:
	// letters, digits, dots and dashes. Empty: DefaultInstallation.
	Installation string
	// UID and GID are the user of commands, at least 1. 0: this process's user, or 1000 where that is root.
	UID, GID int
	// Networks are the network modes that a spec may ask for. Empty: deny-all alone.
	Networks []schemas.NetworkMode
	// PrivateNetworks may be reached by containers though they are not public, where the network restricted lists them too.
	PrivateNetworks []netip.Prefix
	// Resolver looks up the names that containers connect to, Dial connects to an address that was checked. Nil: this host does.
	Resolver egress.Resolver                                         `json:"-"`
	Dial     func(context.Context, netip.AddrPort) (net.Conn, error) `json:"-"`
	// Keys derive what stands for secrets that are bound to hosts, the same at all workers of the installation. Nil: no container can have
	// such secrets.
	Keys Keys `json:"-"`
	// Values finds the variables that a sandbox of an account has now: for kept containers whose commands are other workers'. Nil: the
	// relay of this worker has the values of commands that this worker has run.
	Values func(context.Context, schemas.AccountID, schemas.SandboxID) (map[string]string, error) `json:"-"`
	// Roots are who may sign the certificates of hosts that secrets are bound to. Nil: those of this host.
	Roots *x509.CertPool `json:"-"`
	// Memory is that of a container whose spec does not say, in bytes, without swap. 0: DefaultMemory. MaxMemory is the
	// most that a spec may ask for; 0: no limit.
	Memory, MaxMemory int64
	// MaxCPUs is how many processors a container has at a time, also one that asks for none. 0: a half of the engine's,
	// at least one; below 0: no limit.
	MaxCPUs float64
	// Pids is how many processes a container has that asks for no number. 0: DefaultPids.
	Pids int
	// Boxes is how many containers the installation keeps between calls. 0: DefaultBoxes; below 0: no limit.
	Boxes int
	// Runtime is the engine's runtime for containers, such as runsc. Empty: the engine's default.
	Runtime string
	// GPUs is how many GPUs a container sees; below 0: all. Containers with GPUs have no network unless GPUNetwork.
	GPUs       int
	GPUNetwork bool
	// WritableRoot lets containers of single calls write to their root, in a layer that is removed with them.
	WritableRoot bool
	// Warm is how many containers of single calls are ready before their calls, in all: one for the next call of a sandbox like
	// the last. 0: none.
	Warm int
	// Log gets what an operator should know. Nil: no log.
	Log *slog.Logger

	noRelay string // of tests: why containers are to have no relay
}

// Provider runs commands in containers. Its methods are safe for concurrent use.
type Provider struct {
	terms      *terms
	image      *image
	containers *containers
	workspaces *workspaces
	secrets    *secrets
	relays     *relays
	builder    *builder
	kept       *keptContainers
	processes  *processes
	warm       *warmer
	work       *inflight.Work // containers on their way out, and the removal of leftovers
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Filer    = (*FolderProvider)(nil)

	_ providers.WorkspaceRemover = (*FolderProvider)(nil)
)

// Backend is what [Open] returns: a *Provider, or a *FolderProvider.
type Backend interface {
	providers.Provider
	providers.Reserver
	providers.Lister
	providers.Profiler
	// Leftovers lists the containers of this installation for which no worker can be waiting any more; remove them with RemoveLeftovers.
	Leftovers(ctx context.Context) ([]Leftover, error)
	// RemoveLeftovers removes what Leftovers lists and returns it.
	RemoveLeftovers(ctx context.Context) ([]Leftover, error)
	// Close waits until the containers of single calls are removed. Kept ones stay.
	Close() error
}

// Open connects to the engine, gets the image and runs one container to find out its isolation. It blocks until then; pulling an image may
// take up to half an hour. The caller closes the backend. Codes: unavailable (the engine does not answer), not_found (there is no such
// image), unsupported (containers of this image or engine cannot run commands); the message names a remedy.
func Open(ctx context.Context, o Options) (Backend, error) {
	o, engine, err := prepare(o)
	if err != nil {
		return nil, err
	}
	p, err := connect(ctx, o, engine)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	var backend Backend = p
	if o.Workspaces != "" {
		store, err := folderid.Of(o.Workspaces)
		if err != nil {
			return nil, errors.Join(schemas.Wrap(schemas.Unavailable, "docker", "the folder of the workspaces cannot be written", err), p.Close())
		}
		backend = &FolderProvider{Provider: p, store: store}
	}
	p.work.Go(p.maintain)
	p.warm.pool.most = o.Warm // from here on: what has looked at the image is no call
	p.work.Go(p.warm.keep)
	return backend, nil
}

// connect finds out what the engine and the image offer, and makes the provider.
func connect(ctx context.Context, o Options, engine *client.Client) (*Provider, error) {
	f, err := inspectEngine(ctx, engine, o.Runtime)
	if err != nil {
		return nil, err
	}
	if o.MaxCPUs == 0 {
		o.MaxCPUs = max(1, float64(f.processors)/2)
	}
	path, err := imageSource{engine: engine, log: o.Log, name: o.Image, policy: o.Pull}.get(ctx)
	if err != nil {
		return nil, err
	}
	p := assemble(o, engine, f, &image{name: o.Image, path: path})
	if err := p.probe(ctx); err != nil {
		p.work.Close()
		return nil, err
	}
	p.terms.noRelay = findRelayProblem(ctx, p.terms, p.builder)
	o.Log.Info("containers are ready", "image", o.Image, "shell", p.image.shell, "missing", p.terms.isolation(schemas.DenyAll).Missing, "runtime", o.Runtime)
	return p, nil
}

// prepare sets defaults, checks the options and makes a client, which does not connect yet.
func prepare(o Options) (Options, *client.Client, error) {
	o.Installation = cmp.Or(o.Installation, DefaultInstallation)
	if !isInstallation(o.Installation) {
		return o, nil, schemas.Invalidf("installation", "%q: use up to 40 letters, digits, dots and dashes", schemas.Quotable(o.Installation))
	}
	if o.Image == "" {
		o.Image, o.Pull = DefaultImage, PullNever
	}
	o.Pull = cmp.Or(o.Pull, PullMissing)
	if !slices.Contains(PullPolicies(), o.Pull) {
		return o, nil, schemas.Invalidf("pull", "%q is unknown: use one of %v", schemas.Quotable(string(o.Pull)), PullPolicies())
	}
	if o.Warm < 0 {
		return o, nil, schemas.Invalidf("docker-warm", "%d is out of range: 0 for none, or more", o.Warm)
	}
	if o.UID < 0 || o.GID < 0 {
		return o, nil, schemas.Invalidf("uid", "%d:%d is not a user: at least 1", o.UID, o.GID)
	}
	if o.UID == 0 {
		o.UID, o.GID = os.Geteuid(), os.Getegid()
	}
	if o.UID == 0 {
		o.UID, o.GID = defaultID, defaultID
	}
	o.GID = cmp.Or(o.GID, o.UID)
	if len(o.Networks) == 0 {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	o.Memory, o.Pids, o.Boxes = cmp.Or(o.Memory, DefaultMemory), cmp.Or(o.Pids, DefaultPids), cmp.Or(o.Boxes, DefaultBoxes)
	if o.MaxMemory > 0 {
		o.Memory = min(o.Memory, o.MaxMemory)
	}
	if o.Workspaces != "" {
		dir, err := filepath.Abs(o.Workspaces)
		if err != nil {
			return o, nil, fmt.Errorf("docker: %w", err)
		}
		if err := makeFolder(dir); err != nil {
			return o, nil, schemas.Wrap(schemas.Unavailable, "docker", "the folder of the workspaces cannot be made", err)
		}
		o.Workspaces = dir
	}
	options := []client.Opt{client.FromEnv}
	if o.Host != "" {
		options = append(options, client.WithHost(o.Host))
	}
	engine, err := client.New(options...)
	if err != nil {
		return o, nil, schemas.Invalidf("docker-host", "%v: such as unix:///run/docker.sock", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, engine, nil
}

// assemble makes a provider from complete options, an engine that answers and an image that the engine has.
func assemble(o Options, engine *client.Client, f facts, im *image) *Provider {
	work, locks, owner := &inflight.Work{}, &inflight.Locks{}, user{o.UID, o.GID}
	p := &Provider{
		terms: &terms{opt: o, facts: f}, image: im, work: work,
		containers: &containers{engine: engine, log: o.Log, installation: o.Installation, work: work},
		secrets:    &secrets{installation: o.Installation, keys: o.Keys, private: o.PrivateNetworks, values: o.Values},
	}
	if o.Workspaces != "" {
		p.workspaces = newFolders(o.Workspaces, owner, engine, o.Log, locks)
	} else {
		p.workspaces = &workspaces{owner: owner, volumes: &volumes{containers: p.containers, image: im.name, owner: owner}}
	}
	p.builder = &builder{
		containers: p.containers, workspaces: p.workspaces, image: im, owner: owner, writableRoot: o.WritableRoot, limitsCPUs: f.cpus,
	}
	p.relays = &relays{
		containers: p.containers, secrets: p.secrets, terms: p.terms, locks: locks, work: work, open: map[string]*containerRelay{},
	}
	p.kept = &keptContainers{
		containers: p.containers, builder: p.builder, relays: p.relays, secrets: p.secrets, terms: p.terms, locks: locks,
	}
	p.processes = &processes{containers: p.containers, image: im, owner: owner}
	p.warm = &warmer{containers: p.containers, builder: p.builder, image: im, work: work}
	return p
}

// isInstallation reports whether s may be a part of containers' names.
func isInstallation(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 40
}
