package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/netns"
	"github.com/sandjet/sandjet/schemas"
)

// user is the user that runs commands in containers and owns the files of workspaces.
type user struct{ uid, gid int }

// String returns the user in the engine's notation, uid:gid.
func (u user) String() string { return fmt.Sprintf("%d:%d", u.uid, u.gid) }

// builder creates containers and prepares them for their first start.
type builder struct {
	containers   *containers
	workspaces   *workspaces
	image        *image
	owner        user
	writableRoot bool // also of containers of single calls
	limitsCPUs   bool // the engine can limit processors
}

// describe returns the engine's options for a container. Kept containers have a writable root; others as the operator configured.
func (b *builder) describe(r rules, kind string, labels map[string]string) client.ContainerCreateOptions {
	writable := kind == kindKept || b.writableRoot
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
	if !b.limitsCPUs {
		host.NanoCPUs = 0
	}
	switch {
	case r.Relay != nil: // ports below 1024 are the relay's
		host.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "1024"}
		host.DNS = []netip.Addr{netip.MustParseAddr(netns.Resolver)}
	case r.Network == schemas.AllowAll:
		host.NetworkMode = container.NetworkMode(networkName(b.containers.installation))
	}
	if r.GPUs != 0 {
		host.DeviceRequests = []container.DeviceRequest{{Count: max(r.GPUs, -1), Capabilities: [][]string{{"gpu"}}}}
	}
	for i, m := range r.Mounts {
		host.Mounts = append(host.Mounts, b.workspaces.mount(m, m.Path()))
		if i == 0 && !writable { // where there can be no symbolic link
			host.Mounts = append(host.Mounts, b.workspaces.mount(m, providers.WorkspacePath))
		}
	}
	if !writable {
		host.Tmpfs = map[string]string{
			temp: "rw,exec,nosuid,nodev,mode=1777",
			home: fmt.Sprintf("rw,exec,nosuid,nodev,mode=0700,uid=%d,gid=%d", b.owner.uid, b.owner.gid),
		}
	}
	if !writable && r.bindsSecrets() { // a volume of its own, removed with it: what root may write to where the root is read-only
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Target: trustDir,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelInstallation: b.containers.installation}}})
	}
	labels[labelInstallation], labels[labelKind], labels[labelAccount] = b.containers.installation, kind, string(r.Account)
	config := &container.Config{
		Hostname: "sandbox", User: r.User, Image: r.Image, WorkingDir: "/", Labels: labels, StopTimeout: &stop,
		Entrypoint: []string{"sleep", "2147483647"}, Cmd: []string{},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	return client.ContainerCreateOptions{Config: config, HostConfig: host}
}

// furnish puts the home folder, the short path of the workspace and a certificate to trust (nil: none) into a container that has not been
// started. It may be repeated, also concurrently.
func (b *builder) furnish(ctx context.Context, id string, r rules, writable bool, certificate []byte) error {
	if certificate != nil {
		if err := putTrust(ctx, b.containers.engine, id, certificate, writable); err != nil {
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
	return putEntries(ctx, b.containers.engine, id, "/", b.owner, entries...)
}

// putEntries creates directories and links in a container, owned by a user.
func putEntries(ctx context.Context, engine *client.Client, id, dir string, owner user, entries ...tar.Header) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range entries {
		h.Uid, h.Gid, h.ModTime = owner.uid, owner.gid, time.Now()
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("docker: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	_, err := engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{
		DestinationPath: dir, Content: &archive, AllowOverwriteDirWithFile: true,
	})
	return err
}

// create creates a container without starting it, and before it its missing workspaces and network.
func (b *builder) create(ctx context.Context, r rules, o client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	var none client.ContainerCreateResult
	done, err := b.workspaces.open(ctx, r.Account, r.Mounts)
	if err != nil {
		return none, err
	}
	defer done()
	if r.Network == schemas.AllowAll && r.Relay == nil {
		if err := b.containers.makeNetwork(ctx); err != nil {
			return none, err
		}
	}
	return b.containers.engine.ContainerCreate(ctx, o)
}

// createKept creates a container that persists between calls. The caller furnishes and starts it.
func (b *builder) createKept(ctx context.Context, name string, r rules, labels map[string]string) (id string, err error) {
	o := b.describe(r, kindKept, labels)
	o.Name = name
	made, err := b.create(ctx, r, o)
	for _, warning := range made.Warnings {
		b.containers.log.Debug("Docker engine warning", "container", name, "warning", warning)
	}
	return made.ID, err
}

// createForCall creates the container of one call, whose main process is the program that runs the call. Its programs trust the
// certificate; nil: none.
func (b *builder) createForCall(ctx context.Context, r rules, program boxrun.Command, certificate []byte) (id string, err error) {
	labels := map[string]string{labelUntil: until(time.Now().Add(program.Limit + aloneFor))}
	if program.ID != "" {
		labels[labelRun] = runLabel(program.ID)
	}
	o := b.describe(r, kindCall, labels)
	o.Name = callName(b.containers.installation)
	o.Config.Entrypoint = boxrun.Arguments(program.Shell, b.image.path)
	o.Config.OpenStdin, o.Config.StdinOnce = true, true // it ends with this process's connection
	o.Config.AttachStdin, o.Config.AttachStdout, o.Config.AttachStderr = true, true, true
	made, err := b.create(ctx, r, o)
	if err != nil {
		return "", err
	}
	if err := b.furnish(ctx, made.ID, r, b.writableRoot, certificate); err != nil {
		b.containers.work.Go(func() { b.containers.remove(made.ID) })
		return "", err
	}
	return made.ID, nil
}

// callName returns a new name for the container of a call.
func callName(installation string) string {
	return installation + "-call-" + strings.ToLower(schemas.NewID(""))
}
