package records_test

import (
	"fmt"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
)

// A plan says what a manifest would change, and changes nothing.
func ExamplePlan() {
	m, err := schemas.DecodeManifest([]byte(`{"version": 1, "project": "shop", "resources": [
		{"kind": "workspace", "name": "docs", "config": {"sandbox": "box"}},
		{"kind": "sandbox", "name": "box", "config": {"permissionMode": "bypass"}}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := records.Plan(records.Present{Account: "acct_1", Providers: recordstest.Providers()}, m, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range answer.Changes {
		fmt.Println(c.Action, c.Kind, c.Name)
	}
	// Output:
	// create sandbox box
	// create workspace docs
}

// A check of a sandbox's settings names the field and what it may be.
func ExampleCheckSandbox() {
	err := records.CheckSandbox(recordstest.Providers(), schemas.SandboxConfig{
		Provider: "local", PermissionMode: "sometimes", Guard: schemas.GuardStrict,
		Network: schemas.NetworkConfig{Mode: schemas.DenyAll},
	})
	fmt.Println(err)
	// Output: config.permissionMode: "sometimes" is unknown: use ask, edit or bypass
}
