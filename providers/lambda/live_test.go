//go:build linux

package lambda_test

import (
	"flag"
	"os"
	"testing"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
)

// live asks for the tests that use the service itself, and cost money.
var live = flag.Bool("live", false, "run the suite in the functions of SANDBOX_FN_…, with the credentials that AWS's own programs find")

// TestLive asks the doctor, and runs the suite in the functions of a stack. Files of workspaces stay in its bucket.
func TestLive(t *testing.T) {
	if !*live {
		t.Skip("it costs money: AWS_REGION=… SANDBOX_FN_MOUNT_NET=… go test ./providers/lambda -run TestLive -live")
	}
	o := lambda.Options{
		Functions: lambda.Functions{
			MountNet: os.Getenv("SANDBOX_FN_MOUNT_NET"), MountNoNet: os.Getenv("SANDBOX_FN_MOUNT_NONET"),
			NoMountNet: os.Getenv("SANDBOX_FN_NOMOUNT_NET"), NoMountNoNet: os.Getenv("SANDBOX_FN_NOMOUNT_NONET"),
		},
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll},
	}
	for _, d := range lambda.Diagnose(t.Context(), o) {
		if t.Logf("%s: %s", d.About, d.Says); !d.Good {
			t.Errorf("%s: %s", d.About, d.Remedy)
		}
	}
	p, err := lambda.Open(t.Context(), o)
	testwait.OK(t, err)
	providertest.Test(t, func(testing.TB) providers.Provider { return p }, providertest.Declares(lambda.Declared()))
	testwait.OK(t, p.Close())
}
