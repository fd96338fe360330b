package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/daytona"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/providers/vercel"
	"github.com/sandjet/sandjet/schemas"
)

// TestNamesOfInstallationsLeaveRoomForThatOfOwnKeys: with --account-keys, the sandboxes of an account that brings its own key of a service
// get an installation name made from the operator's. An operator's name that is too long for that is refused at the start, with the flag's
// name; without --account-keys it is allowed. The longest name that is accepted also works with an account's key.
func TestNamesOfInstallationsLeaveRoomForThatOfOwnKeys(t *testing.T) {
	t.Parallel()
	none := operatorFlags{}
	for flag, b := range map[string]struct {
		longest int
		open    func(n *node, name string) (providers.Provider, error)
	}{
		"e2b-installation": {e2b.MaxInstallation, func(n *node, name string) (providers.Provider, error) {
			return (&e2bFlags{E2BAPIKey: "e2b_0123", E2BInstallation: name}).open(n, none)
		}},
		"daytona-installation": {daytona.MaxInstallation, func(n *node, name string) (providers.Provider, error) {
			return (&daytonaFlags{DaytonaAPIKey: "dtn_0123", DaytonaInstallation: name}).open(n, none)
		}},
		"vercel-installation": {vercel.MaxInstallation, func(n *node, name string) (providers.Provider, error) {
			return (&vercelFlags{VercelToken: "vcp_0123", VercelTeam: "team_1", VercelProject: "prj_1", VercelInstallation: name}).open(n, none)
		}},
		"deno-installation": {deno.MaxInstallation, func(n *node, name string) (providers.Provider, error) {
			return (&denoFlags{DenoToken: "ddo_01234567", DenoInstallation: name}).open(n, none)
		}},
		"modal-app": {modal.MaxApp, func(n *node, name string) (providers.Provider, error) {
			return (&modalFlags{ModalTokenID: "ak-1", ModalTokenSecret: "as-1", ModalApp: name}).open(n, none)
		}},
	} {
		for keys, longest := range map[string]int{
			keysOff: b.longest, keysPrefer: b.longest - len(ownInstallation), keysRequire: b.longest - len(ownInstallation),
		} {
			n := &node{log: slog.New(slog.DiscardHandler), accountKeys: keys}
			t.Cleanup(n.close)
			if _, err := b.open(n, strings.Repeat("n", longest)); err != nil {
				t.Errorf("%s of %d characters with --account-keys %s: %v", flag, longest, keys, err)
			}
			_, err := b.open(n, strings.Repeat("n", longest+1))
			if schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), flag) {
				t.Errorf("%s of %d characters with --account-keys %s: %v", flag, longest+1, keys, err)
			}
		}
	}
}
