package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/providers/e2b/e2btest"
)

// TestTwoProviders goes the whole way by the command line, with workers of this host and of a service in one process.
func TestTwoProviders(t *testing.T) {
	service, url := e2btest.Start(t, e2btest.Options{})
	settings := map[string]string{"E2B_API_KEY": e2btest.Key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
	for name, value := range settings {
		t.Setenv(name, value)
	}
	scripts := &processes{}
	t.Run("scripts", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir: "testdata/clouds", RequireExplicitExec: true, RequireUniqueNames: true,
			Setup: func(e *testscript.Env) error {
				err := setup(e)
				for name, value := range settings {
					e.Setenv(name, value)
				}
				return err
			},
			Condition: condition,
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"start": scripts.start, "await": await, "halt": scripts.halt, "ends": scripts.ends, "signal": scripts.signal, "exits": exits,
			},
		})
	})
	if left := service.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
