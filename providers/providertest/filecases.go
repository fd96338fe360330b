package providertest

import (
	"testing"

	"github.com/sandjet/sandjet/providers"
)

type fileCase struct {
	name string
	run  func(t *testing.T, s subject, f providers.Filer)
}

func fileCases() []fileCase { return nil }
