package kubernetes

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
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

// Mode says which objects boxes are.
type Mode string

// The modes.
const (
	ModeAuto    Mode = "auto"    // Sandbox objects where the cluster serves them, else pods
	ModeSandbox Mode = "sandbox" // Sandbox objects of agent-sandbox
	ModePod     Mode = "pod"     // pods and claims of our own
)

// Options are the settings of [New]. Config, Namespace and Image must be set.
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

// Provider runs boxes in one namespace of a cluster. Its methods may be called from many goroutines.
type Provider struct {
	opt     Options
	config  *rest.Config
	client  dynamic.Interface
	sandbox string // served version of the Sandbox resource; empty: boxes are pods
	claims  string // served version of claims on the warm pool; empty: it is not used
	coldFor atomic.Pointer[string]
	cleanup chan struct{} // a slot for each removal that continues behind a run
	behind  sync.WaitGroup
	service service // of the proxy
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
)

// quiet keeps the client library from writing to stderr what it also returns as errors.
var quiet sync.Once //nolint:gochecknoglobals // the library's logger is one for the process

// removals is how many boxes of ended runs are removed at a time beside further runs.
const removals = 64

// New connects to the cluster and finds out which objects it serves. It blocks for one request, 30 seconds at most.
// Codes: invalid (a setting), denied, unavailable, unsupported (Mode is ModeSandbox and the cluster serves none).
// The caller closes it.
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
	p := &Provider{opt: o, config: config, client: client, cleanup: make(chan struct{}, removals)}
	if o.Mode == ModePod {
		return p, nil
	}
	p.sandbox, err = servedVersion(ctx, config, sandboxGroup)
	switch {
	case err != nil:
		return nil, err
	case p.sandbox == "" && o.Mode == ModeSandbox:
		return nil, schemas.Errorf(schemas.Unsupported, "connect",
			"the cluster serves no Sandbox objects: install agent-sandbox, or choose the mode pod")
	}
	if err := p.findPool(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Close waits until the boxes of runs that have ended are removed. Kept boxes stay: they belong to the cluster, and
// are found again by their names.
func (p *Provider) Close() error {
	p.behind.Wait()
	return nil
}

// check reports the first setting that cannot be used.
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

// random is a name's part that is never made twice.
func random() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return hexOf(b[:])
}
