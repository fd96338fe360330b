package kubernetes

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	mebi = int64(1) << 20
	gibi = int64(1) << 30

	// maxDiskGb is the most of the option diskGb.
	maxDiskGb = 10

	defaultStart    = 2 * time.Minute
	defaultLifetime = 7 * 24 * time.Hour
	callTimeout     = 30 * time.Second // of one request to the API server
	endTimeout      = 30 * time.Second // for a cancelled run, and for a deleted pod, to be gone

	queriesPerSecond = 50
	queryBurst       = 100
)

// Mode selects the objects that boxes are made of.
type Mode string

// The modes.
const (
	ModeAuto    Mode = "auto"    // Sandbox objects where the cluster serves them, else pods
	ModeSandbox Mode = "sandbox" // Sandbox objects of agent-sandbox
	ModePod     Mode = "pod"     // pods and claims of our own
)

// Options are the settings of [New]. Config, Namespace and Image are required.
type Options struct {
	Config    *rest.Config // how to reach the API server
	Namespace string       // where all objects are made
	Image     string       // of boxes: it has bash, coreutils and grep
	Mode      Mode         // empty: ModeAuto

	RuntimeClass   string   // such as gvisor or kata; empty: the cluster's default
	StorageClass   string   // of workspaces and homes; empty: the cluster's default
	AccessMode     string   // of workspaces; empty: ReadWriteOnce
	WorkspaceClaim string   // one claim for all workspaces, each in a folder of it; empty: a claim for each
	DiskGb         int      // of homes and workspaces for which nothing else is said; 0: 10
	PullSecrets    []string // names of secrets with which Image is pulled
	UserNamespaces bool     // ask for pods with user namespaces: hostUsers false

	WarmPool string // a SandboxWarmPool whose boxes runs without a workspace take, where it fits; empty: none

	S3 S3 // where workspaces on S3 are; the zero value: they are refused

	NodeSelector map[string]string // labels of the nodes that boxes may be on; empty: any
	Tolerations  []Toleration      // taints of nodes that boxes may be on nevertheless
	GPUs         int               // that each box gets; 0: none
	GPUResource  string            // what nodes call one; empty: nvidia.com/gpu

	Networks  []schemas.NetworkMode // that the operator allows; empty: all that the provider declares
	MaxMemory int64                 // bytes that a sandbox may ask for at most; 0: what the provider declares
	Memory    int64                 // bytes of a box that asks for none; 0: 1 GiB
	CPUs      float64               // of a box that asks for none; 0: 1

	// Egress is the proxy by which boxes reach names. Nil: there is none, and what lists domains is refused.
	Egress *Egress

	StartTimeout time.Duration // for a box to be ready, the pull of its image included; 0: 2 minutes
	Lifetime     time.Duration // after which an unused persistent instance ends by itself; 0: 7 days
	Log          *slog.Logger  // nil: nothing is logged
}

// filled returns the settings with defaults for those that are zero.
func (o Options) filled() Options {
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if o.AccessMode == "" {
		o.AccessMode = "ReadWriteOnce"
	}
	if o.DiskGb == 0 {
		o.DiskGb = maxDiskGb
	}
	if o.Memory == 0 {
		o.Memory = gibi
	}
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.GPUResource == "" {
		o.GPUResource = defaultGPU
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStart
	}
	if o.Lifetime <= 0 {
		o.Lifetime = defaultLifetime
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Networks) == 0 {
		o.Networks = Declared().Networks
	}
	return o
}

// Provider runs boxes in one namespace of a cluster. Its methods are safe for concurrent use.
type Provider struct {
	terms     terms
	boxes     *boxes
	runBoxes  *runBoxes
	processes *processes
	proxies   *proxies
	log       *slog.Logger
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
)

// quiet keeps the client library from writing to stderr what it also returns as errors.
var quiet sync.Once //nolint:gochecknoglobals // the library's logger is one for the process

// New connects to the cluster and finds out which objects it serves. It blocks for one request, at most 30 seconds. The caller closes the
// provider. Codes: invalid (a setting), denied, unavailable, unsupported (Mode is ModeSandbox and the cluster serves none).
func New(ctx context.Context, o Options) (*Provider, error) {
	o = o.filled()
	if err := o.check(); err != nil {
		return nil, err
	}
	quiet.Do(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = queriesPerSecond, queryBurst
	config.UserAgent = "sandjet"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "connect", "the cluster's configuration cannot be used", err)
	}
	var s served
	if o.Mode != ModePod {
		s.sandbox, err = servedVersion(ctx, config, sandboxGroup)
	}
	switch {
	case err != nil:
		return nil, err
	case s.sandbox == "" && o.Mode == ModeSandbox:
		return nil, schemas.OpErrorf(schemas.Unsupported, "connect",
			"the cluster serves no Sandbox objects: install agent-sandbox, or choose the mode pod")
	}
	if o.WarmPool != "" && s.sandbox != "" {
		if s.claims, err = servedVersion(ctx, config, extensionGroup); err != nil {
			return nil, err
		}
	}
	p := assemble(o, &api{config: config, client: client, namespace: o.Namespace}, s)
	if s.claims != "" {
		if err := p.runBoxes.pool.isolate(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// assemble makes a provider from complete settings and the versions that the cluster serves.
func assemble(o Options, a *api, s served) *Provider {
	m := manifests{opt: o, served: s}
	watched := &pods{api: a, patience: o.StartTimeout, controlled: s.sandbox != ""}
	names := &proxies{api: a, egress: o.Egress}
	closed := &policies{api: a, manifests: m, proxies: names}
	all := &boxes{
		api: a, served: s, manifests: m, pods: watched, policies: closed, workspaces: &workspaces{api: a, manifests: m}, lifetime: o.Lifetime,
	}
	pool := &warmPool{
		api: a, served: s, manifests: m, policies: closed, pods: watched, name: o.WarmPool, patience: o.StartTimeout, log: o.Log,
	}
	return &Provider{
		terms: terms{opt: o}, boxes: all, proxies: names, log: o.Log,
		runBoxes:  &runBoxes{boxes: all, pool: pool, log: o.Log, slots: make(chan struct{}, removals)},
		processes: &processes{api: a, pods: watched},
	}
}

// check returns an error for the first invalid setting.
func (o Options) check() error {
	switch {
	case o.Config == nil:
		return schemas.Invalidf("config", "is missing: name a kubeconfig, or run inside a cluster")
	case !isName(o.Namespace):
		return schemas.Invalidf("namespace", "%q is not the name of a namespace", schemas.Quotable(o.Namespace))
	case o.Image == "":
		return schemas.Invalidf("image", "is missing: name an image with bash, coreutils and grep")
	case o.Mode != ModeAuto && o.Mode != ModeSandbox && o.Mode != ModePod:
		return schemas.Invalidf("mode", "%q is unknown: use auto, sandbox or pod", schemas.Quotable(string(o.Mode)))
	case o.RuntimeClass != "" && !isName(o.RuntimeClass):
		return schemas.Invalidf("runtime-class", "%q is not the name of a runtime class", schemas.Quotable(o.RuntimeClass))
	case o.WorkspaceClaim != "" && !isName(o.WorkspaceClaim):
		return schemas.Invalidf("workspace-claim", "%q is not the name of a claim", schemas.Quotable(o.WorkspaceClaim))
	case o.WarmPool != "" && !isName(o.WarmPool):
		return schemas.Invalidf("warm-pool", "%q is not the name of a pool", schemas.Quotable(o.WarmPool))
	case o.DiskGb < 1:
		return schemas.Invalidf("disk-gb", "%d is out of range: at least 1", o.DiskGb)
	case o.Memory < 16*mebi:
		return schemas.Invalidf("memory", "%d bytes is out of range: at least 16 MiB", o.Memory)
	case o.Egress != nil && (!isName(o.Egress.Namespace) || !isName(o.Egress.Service)):
		return schemas.Invalidf("egress", "%q in the namespace %q is not the name of a service",
			schemas.Quotable(o.Egress.Service), schemas.Quotable(o.Egress.Namespace))
	case o.CPUs < 0:
		return schemas.Invalidf("cpus", "%g is out of range: above 0", o.CPUs)
	}
	if err := o.checkNodes(); err != nil {
		return err
	}
	return o.checkS3()
}

// random returns a unique random part of a name.
func random() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return hexOf(b[:])
}
