package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/schemas"
)

// kubernetesFlags are the flags of the provider kubernetes, whose sandboxes are pods of a cluster.
type kubernetesFlags struct {
	KubernetesConfig         string        `placeholder:"FILE" group:"Kubernetes" help:"File that says how to reach the cluster. Default: what KUBECONFIG names, ~/.kube/config, or what a pod is given."`
	KubernetesContext        string        `placeholder:"NAME" group:"Kubernetes" help:"Context of that file. Default: its current one."`
	KubernetesNamespace      string        `placeholder:"NAME" default:"sandboxes" group:"Kubernetes" help:"Namespace in which all sandboxes are created; it should hold nothing else."`
	KubernetesImage          string        `placeholder:"IMAGE" group:"Kubernetes" help:"Image of sandboxes, with bash 4.4 or newer, coreutils, grep and util-linux. Required."`
	KubernetesPullSecrets    []string      `placeholder:"NAME" group:"Kubernetes" help:"Secrets of the namespace with which the image is pulled."`
	KubernetesMode           string        `placeholder:"MODE" enum:"auto,sandbox,pod" default:"auto" group:"Kubernetes" help:"Kubernetes objects of sandboxes: sandbox (Sandbox of agent-sandbox), pod, or auto (Sandbox if the cluster serves it)."`
	KubernetesRuntimeClass   string        `placeholder:"NAME" group:"Kubernetes" help:"Runtime class of sandboxes, such as gvisor. Default: the cluster's."`
	KubernetesUserNamespaces bool          `group:"Kubernetes" help:"Ask for pods with user namespaces (hostUsers: false), where the cluster serves them."`
	KubernetesWarmPool       string        `placeholder:"NAME" group:"Kubernetes" help:"SandboxWarmPool of the namespace: runs without a workspace take their sandboxes from it if its template matches these flags (deploy/kubernetes/warm-pool.yaml)."`
	KubernetesNodeSelector   []string      `placeholder:"KEY=VALUE" group:"Kubernetes" help:"Labels of the nodes on which sandboxes may be. Default: any node."`
	KubernetesTolerations    []string      `placeholder:"KEY=VALUE:EFFECT" group:"Kubernetes" help:"Taints of nodes that sandboxes tolerate, written as kubectl does; without =VALUE any value, without :EFFECT every effect."`
	KubernetesGPUs           int           `name:"kubernetes-gpus" placeholder:"N" default:"0" group:"Kubernetes" help:"GPUs that each sandbox gets."`
	KubernetesGPUResource    string        `name:"kubernetes-gpu-resource" placeholder:"NAME" default:"nvidia.com/gpu" group:"Kubernetes" help:"What nodes call a GPU, such as amd.com/gpu."`
	KubernetesStorageClass   string        `placeholder:"NAME" group:"Kubernetes" help:"Storage class of workspaces and homes. Default: the cluster's."`
	KubernetesAccessMode     string        `placeholder:"MODE" enum:"ReadWriteOnce,ReadWriteMany" default:"ReadWriteOnce" group:"Kubernetes" help:"How a workspace is claimed: ReadWriteMany lets pods on several nodes use it, where the storage class can."`
	KubernetesWorkspaceClaim string        `placeholder:"NAME" group:"Kubernetes" help:"One claim that holds all workspaces, each in a folder of it. Default: a claim for each workspace."`
	KubernetesS3Bucket       string        `name:"kubernetes-s3-bucket" placeholder:"NAME" group:"Kubernetes" help:"Bucket that holds workspaces on S3; the cluster's driver s3.csi.aws.com mounts it. Default: workspaces on S3 are refused."`
	KubernetesS3Region       string        `name:"kubernetes-s3-region" placeholder:"NAME" group:"Kubernetes" help:"Region of that bucket. Default: the driver finds it."`
	KubernetesS3Options      []string      `name:"kubernetes-s3-mount-options" placeholder:"OPTION" group:"Kubernetes" help:"Further mount options of that bucket, as Mountpoint has them, such as \"endpoint-url https://s3.example.com\"."`
	KubernetesDisk           int           `placeholder:"GB" default:"10" group:"Kubernetes" help:"GiB of a workspace, and of a sandbox's home whose diskGb says nothing else."`
	KubernetesCPUs           float64       `name:"kubernetes-cpus" placeholder:"N" default:"1" group:"Kubernetes" help:"Processors that one sandbox may use at a time."`
	KubernetesMemory         byteSize      `placeholder:"SIZE" default:"1GiB" group:"Kubernetes" help:"Memory of a sandbox whose memoryLimit says nothing else."`
	KubernetesNetworks       []string      `placeholder:"MODE" default:"deny-all,restricted" group:"Kubernetes" help:"Network modes that sandboxes may have: deny-all, restricted (to ranges of addresses), allow-all (everything but link-local addresses). The cluster's network must enforce policies."`
	KubernetesEgress         string        `placeholder:"NAMESPACE/SERVICE" group:"Kubernetes" help:"Service of the egress proxy (deploy/kubernetes/egress.yaml), through which sandboxes with restricted networks reach the names that they list. Default: none; then such sandboxes are refused."`
	KubernetesStart          time.Duration `placeholder:"DURATION" default:"2m" group:"Kubernetes" help:"How long a sandbox may take to be ready, the pull of its image included."`
	KubernetesLifetime       time.Duration `placeholder:"DURATION" default:"168h" group:"Kubernetes" help:"Idle time after which the cluster ends a persistent sandbox, even if no worker is running."`
}

var _ diagnosing = (*kubernetesFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *kubernetesFlags) check() error {
	if f.KubernetesImage == "" {
		return schemas.Invalidf("kubernetes-image", "is missing: name an image with bash, coreutils, grep and util-linux")
	}
	for _, n := range f.KubernetesNetworks {
		if m := schemas.NetworkMode(n); m != schemas.DenyAll && m != schemas.Restricted && m != schemas.AllowAll {
			return schemas.Invalidf("kubernetes-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(n))
		}
	}
	if f.KubernetesEgress != "" {
		if _, _, err := splitService(f.KubernetesEgress); err != nil {
			return err
		}
	}
	switch {
	case f.KubernetesDisk < 1:
		return schemas.Invalidf("kubernetes-disk", "%d is out of range: at least 1", f.KubernetesDisk)
	case f.KubernetesCPUs <= 0:
		return schemas.Invalidf("kubernetes-cpus", "%g is out of range: above 0", f.KubernetesCPUs)
	case f.KubernetesMemory < 16<<20:
		return schemas.Invalidf("kubernetes-memory", "%s is out of range: at least 16MiB", f.KubernetesMemory)
	case f.KubernetesStart < time.Second:
		return schemas.Invalidf("kubernetes-start", "%s is out of range: at least 1s", f.KubernetesStart)
	case f.KubernetesLifetime < time.Hour:
		return schemas.Invalidf("kubernetes-lifetime", "%s is out of range: at least 1h", f.KubernetesLifetime)
	}
	return nil
}

// splitService splits NAMESPACE/SERVICE. Code: invalid.
func splitService(text string) (namespace, service string, err error) {
	namespace, service, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || service == "" || strings.Contains(service, "/") {
		return "", "", schemas.Invalidf("kubernetes-egress",
			"%q names no service: use NAMESPACE/SERVICE, such as sandjet-egress/sandjet-egress", schemas.Quotable(text))
	}
	return namespace, service, nil
}

// options returns the provider's options, for the cluster that the flags name.
func (f *kubernetesFlags) options() (kubernetes.Options, error) {
	config, err := kubernetes.LoadConfig(f.KubernetesConfig, f.KubernetesContext)
	if err != nil {
		return kubernetes.Options{}, err
	}
	o := kubernetes.Options{
		Config: config, Namespace: f.KubernetesNamespace, Image: f.KubernetesImage, PullSecrets: f.KubernetesPullSecrets,
		Mode: kubernetes.Mode(f.KubernetesMode), RuntimeClass: f.KubernetesRuntimeClass,
		UserNamespaces: f.KubernetesUserNamespaces, WarmPool: f.KubernetesWarmPool, StorageClass: f.KubernetesStorageClass,
		AccessMode: f.KubernetesAccessMode, WorkspaceClaim: f.KubernetesWorkspaceClaim, DiskGb: f.KubernetesDisk,
		CPUs: f.KubernetesCPUs, Memory: int64(f.KubernetesMemory), StartTimeout: f.KubernetesStart, Lifetime: f.KubernetesLifetime,
		Networks: []schemas.NetworkMode{schemas.DenyAll},
		S3:       kubernetes.S3{Bucket: f.KubernetesS3Bucket, Region: f.KubernetesS3Region, MountOptions: f.KubernetesS3Options},
	}
	for _, n := range f.KubernetesNetworks {
		if m := schemas.NetworkMode(n); m != schemas.DenyAll {
			o.Networks = append(o.Networks, m)
		}
	}
	return o, f.nodes(&o)
}

// nodes sets the options about nodes: GPUs, tolerations and the selector.
func (f *kubernetesFlags) nodes(o *kubernetes.Options) (err error) {
	o.GPUs, o.GPUResource = f.KubernetesGPUs, f.KubernetesGPUResource
	for _, s := range f.KubernetesTolerations {
		t, err := kubernetes.ParseToleration(s)
		if err != nil {
			return err
		}
		o.Tolerations = append(o.Tolerations, t)
	}
	o.NodeSelector, err = kubernetes.ParseSelector(f.KubernetesNodeSelector)
	return err
}

// open connects to the cluster. As long as the process runs, a housekeeper removes the objects that crashed processes left there.
func (f *kubernetesFlags) open(n *node, operator operatorFlags) (providers.Provider, error) {
	o, err := f.options()
	if err != nil {
		return nil, fmt.Errorf("provider kubernetes: %w", err)
	}
	o.MaxMemory, o.Log = int64(operator.MaxMemory), n.log.With("part", "kubernetes")
	if f.KubernetesEgress != "" {
		if o.Egress, err = egressOf(f.KubernetesEgress, n.ring, operator.PrivateNetworks); err != nil {
			return nil, fmt.Errorf("provider kubernetes: %w", err)
		}
	}
	p, err := kubernetes.New(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("provider kubernetes: %w (\"sandjet doctor\" explains)", err)
	}
	n.onClose(func() { _ = p.Close() })
	n.housekeep("kubernetes orphans", p.Clean)
	return p, nil
}

// diagnose checks the cluster if --kubernetes-image is set.
func (f *kubernetesFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "kubernetes"
	if f.KubernetesImage == "" {
		return []finding{{about, worth, "no image is named: not checked", "for --provider kubernetes only: --kubernetes-image"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	o, err := f.options()
	if err != nil {
		return []finding{{about, failing, err.Error(),
			"name a file with --kubernetes-config or KUBECONFIG, and one of its contexts with --kubernetes-context"}}
	}
	if f.KubernetesEgress != "" {
		namespace, service, _ := splitService(f.KubernetesEgress) // check has validated it
		o.Egress = &kubernetes.Egress{Namespace: namespace, Service: service}
	}
	var out []finding
	for _, x := range kubernetes.Check(ctx, o) {
		level := worth
		switch {
		case x.OK:
			level = good
		case x.Fatal:
			level = failing
		}
		out = append(out, finding{about, level, x.Says, x.Remedy})
	}
	return append(out, finding{
		about, worth, "whether the cluster's network enforces policies cannot be seen from here",
		"docs/guides/kubernetes.md says how to try it",
	})
}
