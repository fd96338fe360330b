package kubernetes

import (
	"context"

	"github.com/sandjet/sandjet/providers"
)

// workspaces makes the claims of workspaces, and the volumes of those on S3.
type workspaces struct {
	api       *api
	manifests manifests
}

// make creates the missing claims of workspaces.
func (w *workspaces) make(ctx context.Context, mounts []providers.Mount) error {
	for _, m := range mounts {
		if m.Storage == storageS3 {
			if err := w.makeS3(ctx, m.Namespace); err != nil {
				return err
			}
			continue
		}
		if w.manifests.opt.WorkspaceClaim != "" {
			continue
		}
		name := workspaceName(m.Namespace)
		if there, err := w.api.get(ctx, claimResource, name); err != nil {
			return err
		} else if there != nil {
			continue
		}
		claim := w.manifests.claim(name, kindWorkspace, "", w.manifests.opt.AccessMode, int64(w.manifests.opt.DiskGb)*gibi)
		if _, _, err := w.api.create(ctx, claimResource, workspaceLabels(claim, m.Namespace)); err != nil {
			return err
		}
	}
	return nil
}

// makeS3 creates the missing volume and claim of a workspace on S3.
func (w *workspaces) makeS3(ctx context.Context, namespace string) error {
	if there, err := w.api.get(ctx, claimResource, w.manifests.bucketClaim(namespace)); err != nil || there != nil {
		return err
	}
	volume, claim := w.manifests.bucketObjects(namespace)
	if _, _, err := w.api.create(ctx, volumeResource, volume); err != nil {
		return err
	}
	_, _, err := w.api.create(ctx, claimResource, claim)
	return err
}

// workspaceLabels labels a claim with its workspace.
func workspaceLabels(claim object, namespace string) object {
	if meta, ok := claim["metadata"].(object); ok {
		meta["labels"] = object{labelKind: kindWorkspace, labelWorkspace: namespace}
	}
	return claim
}
