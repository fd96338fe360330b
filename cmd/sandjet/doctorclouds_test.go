package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/providers/daytona/daytonatest"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
	"github.com/sandjet/sandjet/providers/modal/modaltest"
	"github.com/sandjet/sandjet/providers/vercel/verceltest"
)

// TestDoctorOfClouds: the doctor by the command line, with services that take the credentials and such that refuse them.
func TestDoctorOfClouds(t *testing.T) {
	_, e2b := e2btest.Start(t, e2btest.Options{})
	_, daytona := daytonatest.Start(t, daytonatest.Options{})
	_, vercel := verceltest.Start(t, verceltest.Options{})
	_, modal := modaltest.Start(t, modaltest.Options{})
	_, deno := denotest.Start(t, denotest.Options{})
	settings := map[string]string{
		"E2B_API_KEY": e2btest.Key, "E2B_API_URL": e2b, "E2B_SANDBOX_URL": e2b,
		"DAYTONA_API_KEY": daytonatest.Key, "DAYTONA_API_URL": daytona,
		"VERCEL_TOKEN": verceltest.Token, "VERCEL_TEAM_ID": verceltest.Team, "VERCEL_PROJECT_ID": verceltest.Project,
		"SANDJET_VERCEL_API_URL": vercel,
		"MODAL_TOKEN_ID":         modaltest.TokenID, "MODAL_TOKEN_SECRET": modaltest.TokenSecret, "MODAL_SERVER_URL": modal,
		"DENO_DEPLOY_TOKEN": denotest.Token, "DENO_DEPLOY_ENDPOINT": deno, "DENO_SANDBOX_ENDPOINT": deno,
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/doctorclouds", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			err := setup(e)
			for name, value := range settings {
				e.Setenv(name, value)
			}
			return err
		},
		Condition: condition,
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}
