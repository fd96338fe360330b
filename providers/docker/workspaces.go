package docker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/accountfiles"
	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// workspaces makes the files of workspaces, as folders of this host or volumes of the engine, and mounts them in containers.
type workspaces struct {
	dir     string // of all folders
	owner   user
	files   *accountfiles.Folder // all folders; nil: they are volumes
	volumes *volumes             // nil: they are folders
}

// newFolders returns workspaces in a folder of this host, from which files of removed accounts are removed.
func newFolders(dir string, owner user, engine *client.Client, log *slog.Logger, locks *inflight.Locks) *workspaces {
	return &workspaces{dir: dir, owner: owner, files: &accountfiles.Folder{
		Dir: dir, Log: log,
		Lock: func(namespace string) func() {
			lock := locks.Of(namespace)
			lock.Lock()
			return lock.Unlock
		},
		Mine: func(info fs.FileInfo, _ schemas.AccountID) bool {
			is := ownerOf(info)
			return os.Geteuid() != 0 || is == 0 || is == owner.uid
		},
		Holders: func(ctx context.Context) (map[string]bool, error) { return holders(ctx, engine) },
	}}
}

// folder returns the folder of a workspace on this host.
func (w *workspaces) folder(namespace string) string {
	return filepath.Join(w.dir, namespace)
}

// makeFolder creates the folder of all workspaces, which users can traverse but not list.
func makeFolder(dir string) error {
	if os.Geteuid() != 0 {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // passing through is meant
		return err
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // as above
}

// make creates a workspace's folder or volume if it is absent, owned by the user of commands. If its maker has not set the owner yet, or
// died before that, the next call sets it.
func (w *workspaces) make(ctx context.Context, account schemas.AccountID, namespace string) error {
	if w.volumes != nil {
		return w.volumes.make(ctx, namespace)
	}
	dir := w.folder(namespace)
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's folder cannot be made", err)
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace is not a folder", err)
	}
	if os.Geteuid() == 0 && ownerOf(info) != w.owner.uid {
		if err := os.Lchown(dir, w.owner.uid, w.owner.gid); err != nil {
			return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's folder cannot be given to the user of commands", err)
		}
	}
	if account != "" {
		w.files.Attribute(account, namespace)
	}
	return nil
}

// open makes the folders or volumes of workspaces. Until done is called no folder is removed with its account; by then the container that
// uses it exists and the engine lists it.
func (w *workspaces) open(ctx context.Context, account schemas.AccountID, mounts []providers.Mount) (done func(), err error) {
	open := func(namespace string) error { return w.make(ctx, account, namespace) }
	if w.files != nil {
		occupied, err := w.files.Open(mounts, open)
		return func() { accountfiles.CloseAll(occupied) }, err
	}
	for _, m := range mounts {
		if err := open(m.Namespace); err != nil {
			return func() {}, err
		}
	}
	return func() {}, nil
}

// mount returns the mount of a workspace's files at a path of a container.
func (w *workspaces) mount(m providers.Mount, at string) mount.Mount {
	if w.volumes != nil {
		return w.volumes.mount(m, at)
	}
	return mount.Mount{Type: mount.TypeBind, Source: w.folder(m.Namespace), Target: at, ReadOnly: m.ReadOnly}
}

// spill returns the file for output of a command that is too long to keep; nil if there can be none.
func (w *workspaces) spill(mounts []providers.Mount) *capture.Spill {
	if len(mounts) == 0 || mounts[0].ReadOnly || w.volumes != nil {
		return nil
	}
	s := &capture.Spill{Dir: w.folder(mounts[0].Namespace)}
	if os.Geteuid() == 0 { // else it belongs to this process's user
		s.Owner = w.owner.uid
	}
	return s
}

// folders makes the workspaces of the rules and returns their folders on this host, so that a folder that was removed and recreated can be
// recognised.
func (w *workspaces) folders(ctx context.Context, r rules) ([]os.FileInfo, error) {
	var out []os.FileInfo
	for _, m := range r.Mounts {
		if err := w.make(ctx, r.Account, m.Namespace); err != nil {
			return nil, err
		}
		info, err := os.Lstat(w.folder(m.Namespace))
		if err != nil {
			return nil, schemas.Wrap(schemas.Unavailable, "run", "the workspace's folder cannot be read", err)
		}
		out = append(out, info)
	}
	return out, nil
}

// holders returns the namespaces of the workspaces that containers on the engine use, of all installations and in any state: a stopped
// container can be started again. It recognises them by the path in the container, because the engine may name a host folder differently.
func holders(ctx context.Context, engine *client.Client) (map[string]bool, error) {
	found, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	held := map[string]bool{}
	for _, c := range found.Items {
		for _, m := range c.Mounts {
			if namespace := path.Base(m.Destination); m.Destination == (providers.Mount{Namespace: namespace}).Path() {
				held[namespace] = true
			}
		}
	}
	return held, nil
}
