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

// volumes makes the volumes of workspaces and remembers those that belong to the user of commands.
type volumes struct {
	containers *containers
	image      string // of the containers that they are given away in
	owner      user

	mu    sync.Mutex
	known map[string]string // when each was made, as the engine says it, by its name
}

// name is the name of the volume of a workspace.
func (v *volumes) name(namespace string) string { return v.containers.installation + "-" + namespace }

// mount shows the volume of a workspace at a path of a container.
func (v *volumes) mount(m providers.Mount, at string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: v.name(m.Namespace), Target: at, ReadOnly: m.ReadOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true,
			Labels: map[string]string{labelInstallation: v.containers.installation, labelWorkspace: m.Namespace}},
	}
}

// make makes the volume of a workspace where it is absent, and gives it to the user of commands. A volume that is there is given away once
// by each process, for its maker may have died in between; one that was removed and recreated, again.
//
// The engine makes volumes that belong to root, and has no way to say whose they are. But what it copies into a container gets
// the owner that the archive names, folders that are there included: so the volume is copied into, as a folder, in a container
// that is never started.
func (v *volumes) make(ctx context.Context, namespace string) error {
	name := v.name(namespace)
	made, err := v.madeAt(ctx, name)
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
	c, err := v.containers.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{
			Image: v.image, Entrypoint: []string{"true"}, Cmd: []string{},
			Labels: map[string]string{
				labelInstallation: v.containers.installation, labelKind: kindCall, labelUntil: until(time.Now().Add(aloneFor)), // where it is left
			},
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", CapDrop: []string{"ALL"}, Mounts: []mount.Mount{v.mount(m, m.Path())}},
	})
	if err != nil {
		return err
	}
	defer v.containers.remove(c.ID)
	parent, folder := path.Split(m.Path())
	if err := putEntries(ctx, v.containers.engine, c.ID, parent, v.owner, tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o700}); err != nil {
		return err
	}
	if made, err = v.madeAt(ctx, name); err != nil {
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

// madeAt is when a volume was made; empty: there is none.
func (v *volumes) madeAt(ctx context.Context, name string) (string, error) {
	found, err := v.containers.engine.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	return found.Volume.CreatedAt, err
}
