//go:build linux

package docker_test

import (
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
)

// TestFoldersOfWorkspacesHaveOneIdentity: by it a worker finds out that another sees other files, and does not start beside it.
func TestFoldersOfWorkspacesHaveOneIdentity(t *testing.T) {
	storeOf := func(p docker.Backend) string {
		s, ok := providers.As[interface{ WorkspaceStore() string }](p)
		if !ok {
			t.Fatal("its workspaces have no identity")
		}
		return s.WorkspaceStore()
	}
	var dir string
	one := open(t, func(o *docker.Options) { dir = o.Workspaces })
	same := open(t, func(o *docker.Options) { o.Workspaces = dir })
	other := open(t, nil)
	if id := storeOf(one); id == "" || storeOf(same) != id || storeOf(other) == id {
		t.Errorf("the same folder is %q and %q, another %q", id, storeOf(same), storeOf(other))
	}
}
