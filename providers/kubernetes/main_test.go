package kubernetes_test

import (
	"os"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(egresstest.ProbeVariable) != "" {
		egresstest.BeProbe(os.Args[1:])
		return
	}
	longtest.SideBySide()
	os.Exit(m.Run())
}
