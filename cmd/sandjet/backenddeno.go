package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/accountkeys"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/schemas"
)

// denoFlags are the flags of the provider deno, which runs sandboxes at Deno Deploy or a compatible one.
type denoFlags struct {
	DenoToken        string        `name:"deno-token" placeholder:"TOKEN" group:"Deno" secret:"" help:"Access token. Prefer the environment: other users can see command lines. Default: DENO_DEPLOY_TOKEN."`
	DenoOrganization string        `name:"deno-organization" placeholder:"SLUG" group:"Deno" help:"Organization, which a personal token needs. Default: DENO_DEPLOY_ORG."`
	DenoAPIURL       string        `name:"deno-api-url" placeholder:"URL" group:"Deno" help:"Address of the console. Default: DENO_DEPLOY_ENDPOINT, or https://console.deno.com."`
	DenoSandboxURL   string        `name:"deno-sandbox-url" placeholder:"URL" group:"Deno" help:"Address of all sandboxes. Default: DENO_SANDBOX_ENDPOINT, or the region's below what DENO_SANDBOX_BASE_DOMAIN says, or below sandbox-api.deno.net."`
	DenoRegion       string        `name:"deno-region" placeholder:"REGION" default:"ord" group:"Deno" help:"Where sandboxes and volumes are made: ord or ams."`
	DenoRoot         string        `name:"deno-root" placeholder:"SNAPSHOT" group:"Deno" help:"Bootable snapshot that is the root of sandboxes. It has bash, coreutils and util-linux, and a user who is root or may become it by sudo. Default: the image of the service."`
	DenoMemory       int           `name:"deno-memory" placeholder:"MIB" default:"1280" group:"Deno" help:"Memory of a sandbox: 768 to 4096 MiB."`
	DenoInstallation string        `name:"deno-installation" placeholder:"NAME" default:"sandjet" group:"Deno" help:"The same for all workers that share sandboxes, and another for others of the same organization."`
	DenoNetworks     []string      `name:"deno-networks" placeholder:"MODE" default:"deny-all,restricted" group:"Deno" help:"Network modes that sandboxes may have: deny-all, restricted, allow-all."`
	DenoSandboxes    int           `name:"deno-sandboxes" placeholder:"N" default:"20" group:"Deno" help:"Sandboxes that run at a time, all workers' together; beyond that calls wait. The organization has a share of its own."`
	DenoStart        time.Duration `name:"deno-start" placeholder:"DURATION" default:"1m" group:"Deno" help:"That a sandbox may take to be made: 1s to 10m."`
	DenoVolumeSize   int           `name:"deno-volume-size" placeholder:"MIB" default:"1024" group:"Deno" help:"Of the volume of a new workspace: 287 MiB to 20480 MiB."`
	DenoNoWorkspaces bool          `name:"deno-no-workspaces" group:"Deno" help:"Volumes are not used: calls with a workspace are refused."`
}

var _ diagnosing = (*denoFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *denoFlags) check() error {
	for _, n := range f.DenoNetworks {
		if !slices.Contains(deno.Declared().Networks, schemas.NetworkMode(n)) {
			return schemas.Invalidf("deno-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(n))
		}
	}
	const leastMemory, mostMemory, leastVolume, mostVolume = 768, 4096, 287, 20480
	switch {
	case f.DenoSandboxes < 1:
		return schemas.Invalidf("deno-sandboxes", "%d is out of range: at least 1", f.DenoSandboxes)
	case f.DenoMemory < leastMemory || f.DenoMemory > mostMemory:
		return schemas.Invalidf("deno-memory", "%d is out of range: %d to %d MiB", f.DenoMemory, leastMemory, mostMemory)
	case f.DenoVolumeSize < leastVolume || f.DenoVolumeSize > mostVolume:
		return schemas.Invalidf("deno-volume-size", "%d is out of range: %d to %d MiB", f.DenoVolumeSize, leastVolume, mostVolume)
	case f.DenoStart < time.Second || f.DenoStart > 10*time.Minute:
		return schemas.Invalidf("deno-start", "%s is out of range: 1s to 10m", f.DenoStart)
	case f.DenoRegion == "" || f.DenoInstallation == "":
		return schemas.Invalidf("deno-region", "must not be empty, and neither must deno-installation")
	}
	return nil
}

// options returns the provider's options. Where a flag is not set, the environment variables of the vendor's own tools apply.
func (f *denoFlags) options() deno.Options {
	o := deno.Options{
		Token:        cmp.Or(f.DenoToken, os.Getenv("DENO_DEPLOY_TOKEN")),
		Organization: cmp.Or(f.DenoOrganization, os.Getenv("DENO_DEPLOY_ORG")),
		APIURL:       cmp.Or(f.DenoAPIURL, os.Getenv("DENO_DEPLOY_ENDPOINT")),
		SandboxURL:   cmp.Or(f.DenoSandboxURL, os.Getenv("DENO_SANDBOX_ENDPOINT")),
		Domain:       os.Getenv("DENO_SANDBOX_BASE_DOMAIN"),
		Region:       f.DenoRegion, Root: f.DenoRoot, Memory: f.DenoMemory, Installation: f.DenoInstallation, Sandboxes: f.DenoSandboxes,
		Start: f.DenoStart, Volume: int64(f.DenoVolumeSize) << 20, NoWorkspaces: f.DenoNoWorkspaces,
	}
	for _, n := range f.DenoNetworks {
		o.Networks = append(o.Networks, schemas.NetworkMode(n))
	}
	return o
}

// open creates the provider. It checks the settings only: the service gets no request before the first call.
func (f *denoFlags) open(n *node, _ operatorFlags) (providers.Provider, error) {
	o := f.options()
	o.Log = n.log.With("part", "deno")
	return n.openKeyed(keyedBackend{name: "deno", installation: f.DenoInstallation, flag: "deno-installation", longest: deno.MaxInstallation,
		variables: []string{"DENO_DEPLOY_TOKEN"}, open: func(key []string) (accountkeys.Leaf, error) {
			own := o
			if key != nil {
				own.Token, own.Organization, own.Installation = key[0], "", own.Installation+ownInstallation
			}
			p, err := deno.Open(own)
			if err != nil {
				return nil, err
			}
			return p, nil
		}})
}

// diagnose checks the service if a token is set. Problems of the service are only notes and do not keep "up" from working: deno is one of
// several providers.
func (f *denoFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "deno"
	o := f.options()
	if o.Token == "" {
		return []finding{{about, worth, "no token is set: not checked", "for --provider deno only: DENO_DEPLOY_TOKEN"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	return findings(deno.Diagnose(ctx, o))
}
