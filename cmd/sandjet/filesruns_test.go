package main

import (
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
)

// TestFilesOfVolumesWithDocker: files of workspaces that are volumes of a real engine, the whole way by the command line.
func TestFilesOfVolumesWithDocker(t *testing.T) {
	longtest.Only(t, "files by runs, the whole way, in containers of a real engine")
	engine := dockertest.Get(t)
	image := engine.Image(t, dockertest.Tools)
	runScripts(t, "testdata/filesdocker", map[string]string{"ENGINE": engine.Host, "IMAGE": image})
}
