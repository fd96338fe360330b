package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/accountfiles"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// OpenWorkspace returns the root of a workspace's files on this host. What is made through it belongs to the user of
// commands, as what these make does.
func (p *FolderProvider) OpenWorkspace(ctx context.Context, account schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkMounts([]providers.Mount{m}); err != nil {
		return nil, err
	}
	if err := p.makeWorkspace(ctx, account, m.Namespace); err != nil {
		return nil, err
	}
	root, err := safefs.Open(p.workspace(m.Namespace), safefs.Options{UID: p.opt.UID, GID: p.opt.GID, ReadOnly: m.ReadOnly})
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace cannot be opened", err)
	}
	return root, nil
}

// workspace is where a workspace's files are on this host.
func (p *Provider) workspace(namespace string) string {
	return filepath.Join(p.opt.Workspaces, namespace)
}

// makeFolder makes the folder of all workspaces, which users can pass through but not list.
func makeFolder(dir string) error {
	if os.Geteuid() != 0 {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // passing through is meant
		return err
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // as above
}

// makeWorkspace makes a workspace's folder or volume where it is absent, for the user of commands. One that was made and
// not given away, for its maker died or is about to, is given away by the next call that finds it.
func (p *Provider) makeWorkspace(ctx context.Context, account schemas.AccountID, namespace string) error {
	if p.opt.Workspaces == "" {
		return p.volumes.make(ctx, p, namespace)
	}
	dir := p.workspace(namespace)
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's folder cannot be made", err)
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace is not a folder", err)
	}
	if os.Geteuid() == 0 && ownerOf(info) != p.opt.UID {
		if err := os.Lchown(dir, p.opt.UID, p.opt.GID); err != nil {
			return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's folder cannot be given to the user of commands", err)
		}
	}
	if p.files != nil && account != "" {
		p.files.Attribute(account, namespace)
	}
	return nil
}

// openMounts makes the folders or volumes of workspaces. Until done is called no folder is removed with its account: by then a container that
// has it is made, which the engine lists.
func (p *Provider) openMounts(ctx context.Context, account schemas.AccountID, mounts []providers.Mount) (done func(), err error) {
	open := func(namespace string) error { return p.makeWorkspace(ctx, account, namespace) }
	if p.files != nil {
		occupied, err := p.files.Open(mounts, open)
		return func() { accountfiles.CloseAll(occupied) }, err
	}
	for _, m := range mounts {
		if err := open(m.Namespace); err != nil {
			return func() {}, err
		}
	}
	return func() {}, nil
}

// WorkspaceStore identifies the folder of the workspaces: workers that see the same files get the same.
func (p *FolderProvider) WorkspaceStore() string { return p.store }

// SweepWorkspaces implements [providers.WorkspaceRemover].
func (p *FolderProvider) SweepWorkspaces(ctx context.Context, s providers.WorkspaceSweep) (removed int, err error) {
	return p.files.Sweep(ctx, s)
}

// newFiles is the folder of the workspaces as that from which files of removed accounts are removed.
func (p *Provider) newFiles() *accountfiles.Folder {
	return &accountfiles.Folder{
		Dir: p.opt.Workspaces, Log: p.log,
		Lock: func(namespace string) func() {
			lock := p.lockOf(namespace)
			lock.Lock()
			return lock.Unlock
		},
		Mine: func(info fs.FileInfo, _ schemas.AccountID) bool {
			owner := ownerOf(info)
			return os.Geteuid() != 0 || owner == 0 || owner == p.opt.UID
		},
		Holders: p.holders,
	}
}

// holders are the namespaces of the workspaces that containers on the engine have, of all installations, running or not: a stopped one
// is started again with what it had. They are known by the place in the container, for an engine may call a folder of the host otherwise.
func (p *Provider) holders(ctx context.Context) (map[string]bool, error) {
	found, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true})
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

// ownerOfFiles is who owns what this process writes into a workspace; 0: this process's user.
func (p *Provider) ownerOfFiles() int {
	if os.Geteuid() != 0 {
		return 0
	}
	return p.opt.UID
}
