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

// volumes makes the volumes of workspaces, and remembers those that belong to the user of commands already.
type volumes struct {
	containers *containers
	image      string // of the containers that they are given away in
	owner      user

	mu    sync.Mutex
	known map[string]string // when each was made, as the engine says it, by its name
}

// name returns the name of a workspace's volume.
func (v *volumes) name(namespace string) string { return v.containers.installation + "-" + namespace }

// mount returns the mount of a workspace's volume at a path of a container.
func (v *volumes) mount(m providers.Mount, at string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: v.name(m.Namespace), Target: at, ReadOnly: m.ReadOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true,
			Labels: map[string]string{labelInstallation: v.containers.installation, labelWorkspace: m.Namespace}},
	}
}

// make creates the volume of a workspace if it is absent, and makes it belong to the user of commands. Each process sets the owner of an
// existing volume once, because its maker may have died before doing so, and again if the volume was removed and recreated.
//
// The engine creates volumes that belong to root, with no option for another owner. But an archive that is copied into a container sets
// owners, also of existing directories: so make copies the volume's directory, as an archive entry, into a container that is never
// started.
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

// madeAt returns the creation time of a volume; empty if there is none.
func (v *volumes) madeAt(ctx context.Context, name string) (string, error) {
	found, err := v.containers.engine.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	return found.Volume.CreatedAt, err
}
