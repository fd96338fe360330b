package supervisor_test

import (
	"os"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

func TestMain(m *testing.M) {
	longtest.SideBySide()
	os.Exit(m.Run())
}
