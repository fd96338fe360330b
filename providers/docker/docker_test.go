//go:build linux

package docker_test

import (
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/tools/boxtest"
)

const patience = 90 * time.Second

// TestConformance is the whole suite in the long form. A container for each of its cases takes minutes, so the short form has
// the group about kept containers and some runs; files are local's, and jobs those of package supervisor.
func TestConformance(t *testing.T) {
	t.Parallel()
	with := []providertest.Option{providertest.Declares(docker.Declared())}
	switch {
	case longtest.Asked():
	default:
		with = append(with, providertest.Groups("Reserver", "Pauser", "Lister", "Run/an exit code is a result", "Run/what must not begin is not started",
			"Run/standard input arrives whole", "Run/the environment is cleared", "Run/files of a workspace stay", "Run/many runs do not mix"))
	}
	providertest.Test(t, func(tb testing.TB) providers.Provider { return supervisor.Wrap(open(tb, nil), supervisor.Options{}) }, with...)
}

// TestConformanceVolumes: workspaces that are volumes, and a root that can be written.
func TestConformanceVolumes(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "runs and kept containers once more, with volumes and a root that can be written")
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		return supervisor.Wrap(open(tb, func(o *docker.Options) { o.Workspaces, o.WritableRoot = "", true }), supervisor.Options{})
	}, providertest.Declares(docker.Declared()), providertest.Groups("Run", "Reserver"))
}

// TestConformanceBusybox: bash and busybox's tools are enough.
func TestConformanceBusybox(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "jobs once more, with busybox's tools; TestTools has its runs")
	image := dockertest.Get(t).Image(t, dockertest.Busybox)
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		return supervisor.Wrap(open(tb, func(o *docker.Options) { o.Image = image }), supervisor.Options{})
	}, providertest.Declares(docker.Declared()), providertest.Groups("Jobs"))
}

// TestTools runs the suite of compiled tools in kept containers: with the programs of an ordinary system, and with
// nothing but busybox's.
func TestTools(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of compiled tools once more, in containers")
	for image, accept := range map[string]map[string]string{
		dockertest.Tools: nil,
		dockertest.Shell: {"grep/nul-behind-the-peek": "busybox's grep ends a line at NUL"},
	} {
		t.Run(path.Base(image), func(t *testing.T) {
			t.Parallel()
			var workspaces string
			p := open(t, func(o *docker.Options) { o.Image, workspaces = dockertest.Get(t).Image(t, image), o.Workspaces })
			boxtest.Run(t, p, func(m providers.Mount) string { return filepath.Join(workspaces, m.Namespace) }, accept)
		})
	}
}
