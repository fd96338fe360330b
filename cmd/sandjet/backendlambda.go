package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/schemas"
)

// lambdaFlags are the flags of the provider lambda, which runs commands in AWS Lambda functions.
type lambdaFlags struct {
	LambdaFnMountNet         string   `name:"lambda-fn-mount-net" placeholder:"NAME" group:"Lambda" help:"Function, by name or ARN, of calls with a workspace and the internet. Default: SANDBOX_FN_MOUNT_NET; without either such calls are refused."`
	LambdaFnMountNoNet       string   `name:"lambda-fn-mount-nonet" placeholder:"NAME" group:"Lambda" help:"Function of calls with a workspace and no network. Default: SANDBOX_FN_MOUNT_NONET."`
	LambdaFnNoMountNet       string   `name:"lambda-fn-nomount-net" placeholder:"NAME" group:"Lambda" help:"Function of calls with the internet and no workspace. Default: SANDBOX_FN_NOMOUNT_NET."`
	LambdaFnNoMountNoNet     string   `name:"lambda-fn-nomount-nonet" placeholder:"NAME" group:"Lambda" help:"Function for calls without a workspace and without a network. Default: SANDBOX_FN_NOMOUNT_NONET."`
	LambdaRegion             string   `name:"lambda-region" placeholder:"NAME" group:"Lambda" help:"Region of the functions. Default: as AWS's own programs find it, such as AWS_REGION."`
	LambdaEndpoint           string   `name:"lambda-endpoint" placeholder:"URL" group:"Lambda" help:"Another address of Lambda, such as that of a VPC endpoint. Default: the region's."`
	LambdaNetworks           []string `name:"lambda-networks" placeholder:"MODE" default:"deny-all" group:"Lambda" help:"Network modes that sandboxes may have: deny-all, allow-all, restricted. Under restricted nothing can be reached, whatever the lists say."`
	LambdaSharedEnvironments bool     `name:"lambda-shared-environments" group:"Lambda" help:"Allow functions without tenant isolation (TenancyConfig): the same environments then serve several accounts. For accounts that trust one another."`
}

var _ diagnosing = (*lambdaFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *lambdaFlags) check() error {
	for _, n := range f.LambdaNetworks {
		if !slices.Contains(lambda.Declared().Networks, schemas.NetworkMode(n)) {
			return schemas.Invalidf("lambda-networks", "%q is unknown: use deny-all, allow-all, restricted", schemas.Quotable(n))
		}
	}
	return nil
}

// options returns the provider's options. Where a flag is not set, the variable of the environment for that function applies.
func (f *lambdaFlags) options() lambda.Options {
	o := lambda.Options{
		Functions: lambda.Functions{
			MountNet:     cmp.Or(f.LambdaFnMountNet, os.Getenv("SANDBOX_FN_MOUNT_NET")),
			MountNoNet:   cmp.Or(f.LambdaFnMountNoNet, os.Getenv("SANDBOX_FN_MOUNT_NONET")),
			NoMountNet:   cmp.Or(f.LambdaFnNoMountNet, os.Getenv("SANDBOX_FN_NOMOUNT_NET")),
			NoMountNoNet: cmp.Or(f.LambdaFnNoMountNoNet, os.Getenv("SANDBOX_FN_NOMOUNT_NONET")),
		},
		Region: f.LambdaRegion, Endpoint: f.LambdaEndpoint, SharedEnvironments: f.LambdaSharedEnvironments,
	}
	for _, n := range f.LambdaNetworks {
		o.Networks = append(o.Networks, schemas.NetworkMode(n))
	}
	return o
}

// open creates the provider. It checks the settings only: Lambda gets no request before the first call.
func (f *lambdaFlags) open(n *node, _ operatorFlags) (providers.Provider, error) {
	o := f.options()
	o.Log = n.log.With("part", "lambda")
	p, err := lambda.Open(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("provider lambda: %w (\"sandjet doctor\" explains)", err)
	}
	n.onClose(func() { _ = p.Close() })
	return p, nil
}

// diagnose checks Lambda if a function is named. Problems there are only notes and do not keep "up" from working: lambda is one of several
// providers.
func (f *lambdaFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "lambda"
	o := f.options()
	if o.Functions == (lambda.Functions{}) {
		return []finding{{about, worth, "no function is named: not checked", "for --provider lambda only: docs/providers/lambda.md"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	return findings(lambda.Diagnose(ctx, o))
}
