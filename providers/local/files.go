//go:build linux

package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/accountfiles"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// OpenWorkspace opens the root of a workspace's files, making the workspace if it is absent. Files created through it belong to the
// account's user on this host, as those that its boxes create.
func (p *workspaces) OpenWorkspace(ctx context.Context, account schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.makeWorkspace(account, m.Namespace); err != nil {
		return nil, err
	}
	id := p.hostID(account)
	root, err := safefs.Open(p.workspace(m.Namespace),
		safefs.Options{UID: id, GID: id, ReadOnly: m.ReadOnly, Admit: p.quotas.admit(account, m.Namespace)})
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace cannot be opened", err)
	}
	return root, nil
}

// WorkspaceStore returns the identity of the directory of workspaces: the same for all workers that see the same files.
func (p *workspaces) WorkspaceStore() string { return p.store }

// workspace returns the directory of a workspace on the host.
func (p *workspaces) workspace(namespace string) string {
	return filepath.Join(p.opt.Workspaces, namespace)
}

// makeWorkspace makes a workspace's directory if it is absent, accessible to the account's user only. Concurrent calls wait for each other
// only for the same workspace. Code: invalid, the name is not one path component.
func (p *workspaces) makeWorkspace(account schemas.AccountID, namespace string) error {
	if err := box.CheckName(namespace); err != nil || namespace[0] == '.' {
		return schemas.Invalidf("mount", "a namespace is one path component, not %q", schemas.Quotable(namespace))
	}
	// One at a time: a directory that is made and not given away yet is not another account's.
	defer p.making.take(namespace)()
	dir, id := p.workspace(namespace), p.hostID(account)
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	if errors.Is(err, unix.ENOENT) {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's directory cannot be made", err)
		}
		err = unix.Lstat(dir, &st)
	}
	switch {
	case err != nil:
		return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's directory cannot be looked at", err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return schemas.OpErrorf(schemas.Unavailable, "open workspace", "the workspace is not a directory")
	case id == 0 || int(st.Uid) == id:
		p.files.Attribute(account, namespace)
		return nil
	case st.Uid == 0: // just made, or its maker died before it could give it away
		if err := os.Lchown(dir, id, id); err != nil {
			return schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace's directory cannot be given to its account", err)
		}
		p.files.Attribute(account, namespace)
		return nil
	default:
		return schemas.OpErrorf(schemas.Unavailable, "open workspace",
			"the workspace's files belong to another user of the host (%d, not %d): they were made by a worker under another user; give them "+
				"away with chown -R", st.Uid, id)
	}
}

var _ providers.WorkspaceRemover = (*Provider)(nil)

// SweepWorkspaces implements [providers.WorkspaceRemover].
func (p *workspaces) SweepWorkspaces(ctx context.Context, s providers.WorkspaceSweep) (removed int, err error) {
	return p.files.Sweep(ctx, s)
}

// newFiles returns the directory of workspaces as the folder from which files of removed accounts are removed.
func (p *workspaces) newFiles() *accountfiles.Folder {
	return &accountfiles.Folder{
		Dir: p.opt.Workspaces, Log: p.log, Lock: p.making.take, Gone: p.quotas.gone,
		Mine: func(info fs.FileInfo, a schemas.AccountID) bool {
			st, ok := info.Sys().(*syscall.Stat_t)
			id := p.hostID(a)
			return ok && (id == 0 || st.Uid == 0 || int(st.Uid) == id)
		},
	}
}
