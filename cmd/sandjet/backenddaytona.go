package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/accountkeys"
	"github.com/sandjet/sandjet/providers/daytona"
	"github.com/sandjet/sandjet/schemas"
)

// daytonaFlags are the flags of the provider daytona, which runs sandboxes at Daytona's service or a compatible one.
type daytonaFlags struct {
	DaytonaAPIKey       string        `name:"daytona-api-key" placeholder:"KEY" group:"Daytona" secret:"" help:"API key. Prefer the environment: other users can see command lines. Default: DAYTONA_API_KEY, or DAYTONA_JWT_TOKEN."`
	DaytonaAPIURL       string        `name:"daytona-api-url" placeholder:"URL" group:"Daytona" help:"Address of the service. Default: DAYTONA_API_URL, or https://app.daytona.io/api."`
	DaytonaOrganization string        `name:"daytona-organization" placeholder:"ID" group:"Daytona" help:"Organization, for a JWT. Default: DAYTONA_ORGANIZATION_ID, or that of the key."`
	DaytonaTarget       string        `name:"daytona-target" placeholder:"REGION" group:"Daytona" help:"Region of sandboxes. Default: DAYTONA_TARGET, or that of the organization."`
	DaytonaSnapshot     string        `name:"daytona-snapshot" placeholder:"NAME" group:"Daytona" help:"Snapshot of sandboxes, which sets their memory, processors and disk. It needs bash, coreutils, and a user who is root or may become root by sudo. Default: that of the service."`
	DaytonaImage        string        `name:"daytona-image" placeholder:"IMAGE" group:"Daytona" help:"Image of sandboxes in place of a snapshot. The service builds it for the first one, which takes minutes: see --daytona-start."`
	DaytonaUser         string        `name:"daytona-user" placeholder:"NAME" default:"daytona" group:"Daytona" help:"User of commands in sandboxes: root, or one with a home in /home."`
	DaytonaInstallation string        `name:"daytona-installation" placeholder:"NAME" default:"sandjet" group:"Daytona" help:"Name of the installation: the same for all workers that share sandboxes, another one for other installations of the same organization."`
	DaytonaNetworks     []string      `name:"daytona-networks" placeholder:"MODE" default:"deny-all,restricted" group:"Daytona" help:"Network modes that sandboxes may have: deny-all, restricted (to ranges of addresses), allow-all."`
	DaytonaSandboxes    int           `name:"daytona-sandboxes" placeholder:"N" default:"20" group:"Daytona" help:"Sandboxes that run at a time, all workers' together; beyond that calls wait. The organization has a share of its own."`
	DaytonaIdle         time.Duration `name:"daytona-idle" placeholder:"DURATION" default:"15m" group:"Daytona" help:"Idle time after which the service stops a persistent sandbox, even if no worker is running: 5m to 24h."`
	DaytonaStart        time.Duration `name:"daytona-start" placeholder:"DURATION" default:"2m" group:"Daytona" help:"How long a sandbox may take to be created or started: up to 1h."`
	DaytonaDropDomains  bool          `name:"daytona-drop-domains" group:"Daytona" help:"Run sandboxes whose restricted network names domains, which Daytona cannot keep to: what they name cannot be reached, and results say so. Default: they are refused."`
	DaytonaNoWorkspaces bool          `name:"daytona-no-workspaces" group:"Daytona" help:"Run without volumes: calls with a workspace are refused."`
}

var _ diagnosing = (*daytonaFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *daytonaFlags) check() error {
	for _, n := range f.DaytonaNetworks {
		if !slices.Contains(daytona.Declared().Networks, schemas.NetworkMode(n)) {
			return schemas.Invalidf("daytona-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(n))
		}
	}
	switch {
	case f.DaytonaSandboxes < 1:
		return schemas.Invalidf("daytona-sandboxes", "%d is out of range: at least 1", f.DaytonaSandboxes)
	case f.DaytonaIdle < 5*time.Minute || f.DaytonaIdle > 24*time.Hour:
		return schemas.Invalidf("daytona-idle", "%s is out of range: 5m to 24h", f.DaytonaIdle)
	case f.DaytonaStart < time.Second || f.DaytonaStart > time.Hour:
		return schemas.Invalidf("daytona-start", "%s is out of range: 1s to 1h", f.DaytonaStart)
	case f.DaytonaUser == "" || f.DaytonaInstallation == "":
		return schemas.Invalidf("daytona-user", "must not be empty, and neither must daytona-installation")
	}
	return nil
}

// options returns the provider's options. Where a flag is not set, the environment variables of the vendor's own tools apply.
func (f *daytonaFlags) options() daytona.Options {
	o := daytona.Options{
		Key:          cmp.Or(f.DaytonaAPIKey, os.Getenv("DAYTONA_API_KEY"), os.Getenv("DAYTONA_JWT_TOKEN")),
		APIURL:       cmp.Or(f.DaytonaAPIURL, os.Getenv("DAYTONA_API_URL")),
		Organization: cmp.Or(f.DaytonaOrganization, os.Getenv("DAYTONA_ORGANIZATION_ID")),
		Target:       cmp.Or(f.DaytonaTarget, os.Getenv("DAYTONA_TARGET")),
		Snapshot:     f.DaytonaSnapshot, Image: f.DaytonaImage, User: f.DaytonaUser, Installation: f.DaytonaInstallation,
		Sandboxes: f.DaytonaSandboxes, Idle: f.DaytonaIdle, Start: f.DaytonaStart, NoWorkspaces: f.DaytonaNoWorkspaces,
		DropDomains: f.DaytonaDropDomains,
	}
	for _, n := range f.DaytonaNetworks {
		o.Networks = append(o.Networks, schemas.NetworkMode(n))
	}
	return o
}

// open creates the provider. It checks the settings only: the service gets no request before the first call.
func (f *daytonaFlags) open(n *node, _ operatorFlags) (providers.Provider, error) {
	o := f.options()
	o.Log = n.log.With("part", "daytona")
	return n.openKeyed(keyedBackend{name: "daytona", installation: f.DaytonaInstallation, flag: "daytona-installation", longest: daytona.MaxInstallation,
		variables: []string{"DAYTONA_API_KEY"}, open: func(key []string) (accountkeys.Leaf, error) {
			own := o
			if key != nil {
				own.Key, own.Organization, own.Installation = key[0], "", own.Installation+ownInstallation
			}
			p, err := daytona.Open(own)
			if err != nil {
				return nil, err
			}
			return p, nil
		}})
}

// diagnose checks the service if a key is set. Problems of the service are only notes and do not keep "up" from working: daytona is one of
// several providers.
func (f *daytonaFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "daytona"
	o := f.options()
	if o.Key == "" {
		return []finding{{about, worth, "no key is set: not checked", "for --provider daytona only: DAYTONA_API_KEY"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	return findings(daytona.Diagnose(ctx, o))
}
