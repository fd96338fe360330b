package main

import (
	"maps"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/providers/daytona/daytonatest"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
	"github.com/sandjet/sandjet/providers/modal/modaltest"
	"github.com/sandjet/sandjet/providers/vercel/verceltest"
)

// runScripts runs the scripts of a folder, and what they start, with settings as variables of the environment.
func runScripts(t *testing.T, dir string, settings map[string]string) {
	t.Helper()
	for name, value := range settings {
		t.Setenv(name, value) // what scripts start has the environment of this process
	}
	scripts := &processes{}
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true,
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
}

func settingsOfE2B(url string) map[string]string {
	return map[string]string{"E2B_API_KEY": e2btest.Key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
}

// TestTwoProviders runs scripts of command lines with one process that has workers of two providers: local, and e2b with a double of its
// service.
func TestTwoProviders(t *testing.T) {
	service, url := e2btest.Start(t, e2btest.Options{})
	t.Run("scripts", func(t *testing.T) { runScripts(t, "testdata/clouds", settingsOfE2B(url)) })
	if left := service.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// TestDoctorOfClouds runs `sandjet doctor` with doubles of the cloud services, which accept some of the credentials and refuse others.
func TestDoctorOfClouds(t *testing.T) {
	_, e2b := e2btest.Start(t, e2btest.Options{})
	_, daytona := daytonatest.Start(t, daytonatest.Options{})
	_, vercel := verceltest.Start(t, verceltest.Options{})
	_, modal := modaltest.Start(t, modaltest.Options{})
	_, deno := denotest.Start(t, denotest.Options{})
	settings := settingsOfE2B(e2b)
	maps.Copy(settings, map[string]string{
		"DAYTONA_API_KEY": daytonatest.Key, "DAYTONA_API_URL": daytona,
		"VERCEL_TOKEN": verceltest.Token, "VERCEL_TEAM_ID": verceltest.Team, "VERCEL_PROJECT_ID": verceltest.Project,
		"SANDJET_VERCEL_API_URL": vercel,
		"MODAL_TOKEN_ID":         modaltest.TokenID, "MODAL_TOKEN_SECRET": modaltest.TokenSecret, "MODAL_SERVER_URL": modal,
		"DENO_DEPLOY_TOKEN": denotest.Token, "DENO_DEPLOY_ENDPOINT": deno, "DENO_SANDBOX_ENDPOINT": deno,
	})
	runScripts(t, "testdata/doctorclouds", settings)
}
