package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/netns"
	"github.com/sandjet/sandjet/schemas"
)

// Labels of the containers and volumes of an installation, by which all of them are found again.
const (
	labelInstallation = "sandjet.installation"
	labelKind         = "sandjet.kind" // kindCall, kindKept
	labelKey          = "sandjet.key"  // of a kept container
	labelAccount      = "sandjet.account"
	labelRules        = "sandjet.rules"       // of a kept container: what it was made with
	labelDeployment   = "sandjet.deployment"  // of a kept container: the log whose records speak of it
	labelNetwork      = "sandjet.network"     // of a kept container with a relay: its rules
	labelSandbox      = "sandjet.sandbox"     // of a kept container: the record that it is of
	labelCredentials  = "sandjet.credentials" //nolint:gosec // a label: what any worker continues with where secrets are bound to hosts
	labelUntil        = "sandjet.until"       // of a call's: Unix time after which no worker waits for it
	labelRun          = "sandjet.run"         // of a call's: which run it is for, as a hash
	labelWorkspace    = "sandjet.workspace"   // of a volume
)

const (
	kindCall = "call"
	kindKept = "kept"
)

const (
	home = "/home/sandbox"
	temp = "/tmp"
	// ownProcesses are those of a container that are not its commands': process 1, the one that keeps it, and the programs
	// that watch over commands.
	ownProcesses = 16
	stopTimeout  = 2 // seconds
)

// rules are what a container is made by. They are data only, so that they can be compared.
type rules struct {
	Account schemas.AccountID   `json:"account"`
	Network schemas.NetworkMode `json:"network"`
	Mounts  []providers.Mount   `json:"mounts"`
	Memory  int64               `json:"memory"`
	Pids    int                 `json:"pids"`
	CPUs    float64             `json:"cpus"`
	Image   string              `json:"image"`
	Runtime string              `json:"runtime"`
	User    string              `json:"user"`
	GPUs    int                 `json:"gpus"`
	// Relay is the whole network of a container whose way out is a relay.
	Relay *schemas.Network `json:"relay,omitempty"`
}

// rulesOf fills in what the spec leaves open.
func (p *Provider) rulesOf(spec providers.Spec, network schemas.Network, mounts []providers.Mount) rules {
	r := rules{
		Account: spec.Account, Network: network.Mode, Mounts: mounts, Memory: spec.MemoryLimit, Pids: spec.Pids, CPUs: spec.CPUs,
		Image: p.opt.Image, Runtime: p.opt.Runtime, User: fmt.Sprintf("%d:%d", p.opt.UID, p.opt.GID), GPUs: p.opt.GPUs,
	}
	if r.Network == "" {
		r.Network = schemas.DenyAll
	}
	if p.relayed(r.Network) {
		r.Relay = &network
	}
	if r.Memory <= 0 {
		r.Memory = p.opt.Memory
	}
	if r.Pids <= 0 {
		r.Pids = p.opt.Pids
	}
	if r.CPUs <= 0 && p.opt.MaxCPUs > 0 {
		r.CPUs = p.opt.MaxCPUs
	}
	return r
}

// digest identifies rules.
func (r rules) digest() string {
	b, err := json.Marshal(r) //nolint:musttag // mounts are compared, and never read
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// containerOf is what the engine is asked for. Kept containers write to their root; others as the operator says.
func (p *Provider) containerOf(r rules, kind string, labels map[string]string) client.ContainerCreateOptions {
	writable := kind == kindKept || p.opt.WritableRoot
	pids, yes, stop := int64(r.Pids+ownProcesses), true, stopTimeout
	host := &container.HostConfig{
		NetworkMode:    "none",
		LogConfig:      container.LogConfig{Type: "none"}, // outputs are the calls': the engine must not keep them
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		IpcMode:        "private",
		ReadonlyRootfs: !writable,
		Runtime:        r.Runtime,
		Init:           &yes,
		Resources:      container.Resources{PidsLimit: &pids, Memory: r.Memory, MemorySwap: r.Memory, NanoCPUs: int64(r.CPUs * 1e9)},
	}
	if !p.facts.cpus {
		host.NanoCPUs = 0
	}
	switch {
	case r.Relay != nil: // ports below 1024 are the relay's
		host.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "1024"}
		host.DNS = []netip.Addr{netip.MustParseAddr(netns.Resolver)}
	case r.Network == schemas.AllowAll:
		host.NetworkMode = container.NetworkMode(p.networkName())
	}
	if r.GPUs != 0 {
		host.DeviceRequests = []container.DeviceRequest{{Count: max(r.GPUs, -1), Capabilities: [][]string{{"gpu"}}}}
	}
	for i, m := range r.Mounts {
		host.Mounts = append(host.Mounts, p.mountOf(m, m.Path()))
		if i == 0 && !writable { // where there can be no symbolic link
			host.Mounts = append(host.Mounts, p.mountOf(m, providers.WorkspacePath))
		}
	}
	if !writable {
		host.Tmpfs = map[string]string{
			temp: "rw,exec,nosuid,nodev,mode=1777",
			home: fmt.Sprintf("rw,exec,nosuid,nodev,mode=0700,uid=%d,gid=%d", p.opt.UID, p.opt.GID),
		}
	}
	if !writable && r.bindsSecrets() { // a volume of its own, removed with it: what root may write to where the root is read-only
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Target: trustDir,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelInstallation: p.opt.Installation}}})
	}
	labels[labelInstallation], labels[labelKind], labels[labelAccount] = p.opt.Installation, kind, string(r.Account)
	config := &container.Config{
		Hostname: "sandbox", User: r.User, Image: r.Image, WorkingDir: "/", Labels: labels, StopTimeout: &stop,
		Entrypoint: []string{"sleep", "2147483647"}, Cmd: []string{},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	return client.ContainerCreateOptions{Config: config, HostConfig: host}
}

// mountOf shows a workspace's files at a path.
func (p *Provider) mountOf(m providers.Mount, at string) mount.Mount {
	if p.opt.Workspaces != "" {
		return mount.Mount{Type: mount.TypeBind, Source: p.workspace(m.Namespace), Target: at, ReadOnly: m.ReadOnly}
	}
	return mount.Mount{
		Type: mount.TypeVolume, Source: p.volumeName(m.Namespace), Target: at, ReadOnly: m.ReadOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true,
			Labels: map[string]string{labelInstallation: p.opt.Installation, labelWorkspace: m.Namespace}},
	}
}

// furnish puts the home folder, the short name of the workspace and a certificate that programs are to trust (nil: none) into a container
// that has not been started. It may be done twice, and by two at a time.
func (p *Provider) furnish(ctx context.Context, id string, r rules, writable bool, certificate []byte) error {
	if certificate != nil {
		if err := p.putTrust(ctx, id, certificate, writable); err != nil {
			return err
		}
	}
	if !writable {
		return nil
	}
	entries := []tar.Header{{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(home, "/") + "/", Mode: 0o700}}
	if len(r.Mounts) > 0 {
		entries = append(entries, tar.Header{
			Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(providers.WorkspacePath, "/"), Linkname: r.Mounts[0].Path(), Mode: 0o777,
		})
	}
	return p.put(ctx, id, "/", entries...)
}

// put makes folders and links in a container.
func (p *Provider) put(ctx context.Context, id, dir string, entries ...tar.Header) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range entries {
		h.Uid, h.Gid, h.ModTime = p.opt.UID, p.opt.GID, time.Now()
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("docker: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	_, err := p.engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{
		DestinationPath: dir, Content: &archive, AllowOverwriteDirWithFile: true,
	})
	return err
}

// make makes a container and does not start it.
func (p *Provider) make(ctx context.Context, name string, r rules, kind string, labels map[string]string) (id string, err error) {
	done, err := p.openMounts(ctx, r.Account, r.Mounts)
	if err != nil {
		return "", err
	}
	defer done()
	if r.Network == schemas.AllowAll && r.Relay == nil {
		if err := p.makeNetwork(ctx); err != nil {
			return "", err
		}
	}
	o := p.containerOf(r, kind, labels)
	o.Name = name
	made, err := p.engine.ContainerCreate(ctx, o)
	if err != nil {
		return "", err
	}
	for _, warning := range made.Warnings {
		p.log.Debug("Docker engine warning", "container", name, "warning", warning)
	}
	return made.ID, nil
}

// until is the label of a container for which no worker waits after a time.
func until(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
