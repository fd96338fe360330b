package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/accountkeys"
	"github.com/sandjet/sandjet/providers/vercel"
	"github.com/sandjet/sandjet/schemas"
)

// vercelFlags are the flags of the provider vercel, which runs sandboxes at Vercel's service or a compatible one.
type vercelFlags struct {
	VercelToken        string        `name:"vercel-token" placeholder:"TOKEN" group:"Vercel" secret:"" help:"Access token with the team as its scope. Prefer the environment: other users can see command lines. Default: VERCEL_TOKEN."`
	VercelTeam         string        `name:"vercel-team" placeholder:"ID" group:"Vercel" help:"Team. Default: VERCEL_TEAM_ID."`
	VercelProject      string        `name:"vercel-project" placeholder:"ID" group:"Vercel" help:"Project of the team, whose sandboxes and drives are used. Default: VERCEL_PROJECT_ID."`
	VercelAPIURL       string        `name:"vercel-api-url" placeholder:"URL" group:"Vercel" help:"Address of the service. Default: https://vercel.com/api."`
	VercelImage        string        `name:"vercel-image" placeholder:"IMAGE" group:"Vercel" help:"Image of sandboxes, in Vercel's registry. It needs bash, coreutils, tar, and a user who may become root by sudo. Default: that of the service."`
	VercelUser         string        `name:"vercel-user" placeholder:"NAME" default:"ubuntu" group:"Vercel" help:"User of commands in sandboxes, with a home in /home."`
	VercelRegion       string        `name:"vercel-region" placeholder:"REGION" group:"Vercel" help:"Region of sandboxes and drives. Default: that of the service."`
	VercelVCPUs        int           `name:"vercel-vcpus" placeholder:"N" group:"Vercel" help:"Processors of a sandbox, each with 2 GiB of memory: up to 32, and what the plan allows. Default: those of the service."`
	VercelInstallation string        `name:"vercel-installation" placeholder:"NAME" default:"sandjet" group:"Vercel" help:"Name of the installation: the same for all workers that share sandboxes, another one for other installations of the same project. Up to 24 letters, digits and dashes."`
	VercelNetworks     []string      `name:"vercel-networks" placeholder:"MODE" default:"deny-all,restricted" group:"Vercel" help:"Network modes that sandboxes may have: deny-all, restricted, allow-all."`
	VercelSandboxes    int           `name:"vercel-sandboxes" placeholder:"N" default:"10" group:"Vercel" help:"Sandboxes that run at a time, all workers' together; beyond that calls wait. A plan has its own limit."`
	VercelIdle         time.Duration `name:"vercel-idle" placeholder:"DURATION" default:"15m" group:"Vercel" help:"Idle time after which the service stops a persistent sandbox, even if no worker is running: 1m to 12h, and at most what the plan allows."`
	VercelStart        time.Duration `name:"vercel-start" placeholder:"DURATION" default:"2m" group:"Vercel" help:"How long a sandbox may take to be created or resumed, or wait for its workspace: up to 1h."`
	VercelNoWorkspaces bool          `name:"vercel-no-workspaces" group:"Vercel" help:"Run without drives: calls with a workspace are refused."`
}

var _ diagnosing = (*vercelFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *vercelFlags) check() error {
	for _, n := range f.VercelNetworks {
		if !slices.Contains(vercel.Declared().Networks, schemas.NetworkMode(n)) {
			return schemas.Invalidf("vercel-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(n))
		}
	}
	switch {
	case f.VercelSandboxes < 1:
		return schemas.Invalidf("vercel-sandboxes", "%d is out of range: at least 1", f.VercelSandboxes)
	case f.VercelIdle < time.Minute || f.VercelIdle > 12*time.Hour:
		return schemas.Invalidf("vercel-idle", "%s is out of range: 1m to 12h", f.VercelIdle)
	case f.VercelStart < time.Second || f.VercelStart > time.Hour:
		return schemas.Invalidf("vercel-start", "%s is out of range: 1s to 1h", f.VercelStart)
	case f.VercelUser == "" || f.VercelInstallation == "":
		return schemas.Invalidf("vercel-user", "must not be empty, and neither must vercel-installation")
	}
	return nil
}

// options returns the provider's options. Where a flag is not set, the environment variables of the vendor's own tools apply.
func (f *vercelFlags) options() vercel.Options {
	o := vercel.Options{
		Token:   cmp.Or(f.VercelToken, os.Getenv("VERCEL_TOKEN")),
		Team:    cmp.Or(f.VercelTeam, os.Getenv("VERCEL_TEAM_ID")),
		Project: cmp.Or(f.VercelProject, os.Getenv("VERCEL_PROJECT_ID")),
		APIURL:  f.VercelAPIURL, Image: f.VercelImage, User: f.VercelUser, Region: f.VercelRegion, VCPUs: f.VercelVCPUs,
		Installation: f.VercelInstallation, Sandboxes: f.VercelSandboxes, Idle: f.VercelIdle, Start: f.VercelStart,
		NoWorkspaces: f.VercelNoWorkspaces,
	}
	for _, n := range f.VercelNetworks {
		o.Networks = append(o.Networks, schemas.NetworkMode(n))
	}
	return o
}

// open creates the provider. It checks the settings only: the service gets no request before the first call.
func (f *vercelFlags) open(n *node, _ operatorFlags) (providers.Provider, error) {
	o := f.options()
	o.Log = n.log.With("part", "vercel")
	return n.openKeyed(keyedBackend{name: "vercel", installation: f.VercelInstallation, flag: "vercel-installation", longest: vercel.MaxInstallation,
		variables: []string{"VERCEL_TOKEN", "VERCEL_TEAM_ID", "VERCEL_PROJECT_ID"}, open: func(key []string) (accountkeys.Leaf, error) {
			own := o
			if key != nil {
				own.Token, own.Team, own.Project, own.Installation = key[0], key[1], key[2], own.Installation+ownInstallation
			}
			p, err := vercel.Open(own)
			if err != nil {
				return nil, err
			}
			return p, nil
		}})
}

// diagnose checks the service if a token is set. Problems of the service are only notes and do not keep "up" from working: vercel is one
// of several providers.
func (f *vercelFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "vercel"
	o := f.options()
	if o.Token == "" {
		return []finding{{about, worth, "no token is set: not checked", "for --provider vercel only: VERCEL_TOKEN"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	return findings(vercel.Diagnose(ctx, o))
}
