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

// TestNamesOfInstallationsLeaveRoomForThatOfOwnKeys: a name that is too long for the installation of accounts' keys is refused at the
// start, by its flag, and only with --account-keys; the longest that passes can be opened with an account's key.
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
