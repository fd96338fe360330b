//go:build linux

package bench

import (
	"errors"
	"os"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) { os.Exit(dockertest.Main(m)) }

func TestDockerIsMeasured(t *testing.T) {
	longtest.Only(t, "it starts an engine of its own")
	e := dockertest.Get(t)
	o := docker.Options{Host: e.Host, Image: e.Image(t, dockertest.Tools), Pull: docker.PullNever}
	r, err := Docker(t.Context(), 1, o, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	printed(t, r)
	if left := e.Run(t, "ps", "-aq"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}

func TestKeptBoxesAreMeasured(t *testing.T) {
	r, err := KeptBoxes(t.Context(), 3, local.Options{})
	if errors.Is(err, schemas.ErrUnsupported) {
		longtest.Missing(t, "this host cannot isolate: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	printed(t, r)
}
