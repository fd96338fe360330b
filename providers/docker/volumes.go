package docker

import (
	"archive/tar"
	"context"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
)

// maxKnownVolumes bounds what is remembered of volumes; beyond it all is forgotten, and found out once more.
const maxKnownVolumes = 10_000

// volumes are the volumes of workspaces that this process knows to belong to the user of commands.
type volumes struct {
	mu    sync.Mutex
	known map[string]string // when each was made, as the engine says it, by its name
}

func (p *Provider) volumeName(namespace string) string { return p.opt.Installation + "-" + namespace }

// make makes the volume of a workspace where it is absent, and gives it to the user of commands. A volume that is there is given away once
// by each process, for its maker may have died in between; one that was removed and recreated, again.
//
// The engine makes volumes that belong to root, and has no way to say whose they are. But what it copies into a container gets
// the owner that the archive names, folders that are there included: so the volume is copied into, as a folder, in a container
// that is never started.
func (v *volumes) make(ctx context.Context, p *Provider, namespace string) error {
	name := p.volumeName(namespace)
	made, err := p.volumeMade(ctx, name)
	if err != nil {
		return err
	}
	v.mu.Lock()
	known := made != "" && v.known[name] == made
	v.mu.Unlock()
	if known {
		return nil
	}
	m := providers.Mount{Namespace: namespace}
	c, err := p.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{
			Image: p.opt.Image, Entrypoint: []string{"true"}, Cmd: []string{},
			Labels: map[string]string{
				labelInstallation: p.opt.Installation, labelKind: kindCall, labelUntil: until(time.Now().Add(aloneFor)), // where it is left
			},
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", CapDrop: []string{"ALL"}, Mounts: []mount.Mount{p.mountOf(m, m.Path())}},
	})
	if err != nil {
		return err
	}
	defer p.remove(c.ID)
	parent, folder := path.Split(m.Path())
	if err := p.put(ctx, c.ID, parent, tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o700}); err != nil {
		return err
	}
	if made, err = p.volumeMade(ctx, name); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxKnownVolumes {
		v.known = map[string]string{}
	}
	v.known[name] = made
	return nil
}

// volumeMade is when a volume was made; empty: there is none.
func (p *Provider) volumeMade(ctx context.Context, name string) (string, error) {
	found, err := p.engine.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	return found.Volume.CreatedAt, err
}
