package docker

import (
	"context"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// FolderProvider is a Provider whose workspaces are folders of this host, which the file tools reach directly.
type FolderProvider struct {
	*Provider

	store string // identity of the folder of all workspaces
}

// OpenWorkspace opens the root of a workspace's files on this host. Files created through it belong to the user of commands, as those that
// commands create.
func (p *FolderProvider) OpenWorkspace(ctx context.Context, account schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkMounts([]providers.Mount{m}); err != nil {
		return nil, err
	}
	if err := p.workspaces.make(ctx, account, m.Namespace); err != nil {
		return nil, err
	}
	root, err := safefs.Open(p.workspaces.folder(m.Namespace), safefs.Options{UID: p.workspaces.owner.uid, GID: p.workspaces.owner.gid, ReadOnly: m.ReadOnly})
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "open workspace", "the workspace cannot be opened", err)
	}
	return root, nil
}

// WorkspaceStore returns the identity of the folder of workspaces: the same for all workers that see the same files.
func (p *FolderProvider) WorkspaceStore() string { return p.store }

// SweepWorkspaces implements [providers.WorkspaceRemover].
func (p *FolderProvider) SweepWorkspaces(ctx context.Context, s providers.WorkspaceSweep) (removed int, err error) {
	return p.workspaces.files.Sweep(ctx, s)
}
