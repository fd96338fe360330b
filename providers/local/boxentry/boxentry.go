//go:build linux

// Package boxentry turns a program that imports it into sandjet-box when it is started under that
// name: so one binary is enough, and a test binary is one too. It is the only package with an init
// function: packages are initialised in the order of their import paths as far as their own
// imports are ready, so this one, which imports little, comes before the large clients of the worker.
package boxentry

import (
	"os"

	"github.com/sandjet/sandjet/providers/local/box"
)

func init() { //nolint:gochecknoinits // the one exception: see the package's comment
	if len(os.Args) > 0 && os.Args[0] == box.Name {
		box.Main() // never returns
	}
}
