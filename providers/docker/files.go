package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// OpenWorkspace returns the root of a workspace's files on this host. What is made through it belongs to the user of
// commands, as what these make does.
func (p *FolderProvider) OpenWorkspace(ctx context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkMounts([]providers.Mount{m}); err != nil {
		return nil, err
	}
	if err := p.makeWorkspace(ctx, m.Namespace); err != nil {
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

// makeWorkspace makes a workspace's folder or volume where it is absent, for the user of commands. Whoever finds one that was
// made and not given away, for its maker died or is about to, gives it away.
func (p *Provider) makeWorkspace(ctx context.Context, namespace string) error {
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
	return nil
}

// ownerOfFiles is who owns what this process writes into a workspace; 0: this process's user.
func (p *Provider) ownerOfFiles() int {
	if os.Geteuid() != 0 {
		return 0
	}
	return p.opt.UID
}
