package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/accountkeys"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/schemas"
)

// e2bFlags are the flags of the provider e2b, which runs sandboxes at E2B's service or a compatible one.
type e2bFlags struct {
	E2BAPIKey       string        `name:"e2b-api-key" placeholder:"KEY" group:"E2B" secret:"" help:"API key. Prefer the environment: other users can see command lines. Default: E2B_API_KEY."`
	E2BDomain       string        `name:"e2b-domain" placeholder:"DOMAIN" group:"E2B" help:"Domain of the service. Default: E2B_DOMAIN, or e2b.app."`
	E2BAPIURL       string        `name:"e2b-api-url" placeholder:"URL" group:"E2B" help:"Address of the control plane. Default: E2B_API_URL, or that of the domain."`
	E2BSandboxURL   string        `name:"e2b-sandbox-url" placeholder:"URL" group:"E2B" help:"One address of all sandboxes, for a service with a router of its own. Default: E2B_SANDBOX_URL, or as the service says."`
	E2BTemplate     string        `name:"e2b-template" placeholder:"NAME" default:"base" group:"E2B" help:"Template of sandboxes, which sets their memory, processors and disk. It needs bash and coreutils. At its default: E2B_TEMPLATE, where that is set."`
	E2BInstallation string        `name:"e2b-installation" placeholder:"NAME" default:"sandjet" group:"E2B" help:"Name of the installation: the same for all workers that share sandboxes, another one for other installations of the same team."`
	E2BNetworks     []string      `name:"e2b-networks" placeholder:"MODE" default:"deny-all,restricted" group:"E2B" help:"Network modes that sandboxes may have: deny-all, restricted, allow-all."`
	E2BSandboxes    int           `name:"e2b-sandboxes" placeholder:"N" default:"20" group:"E2B" help:"Sandboxes that run at a time, all workers' together; beyond that calls wait. A plan has its own limit."`
	E2BIdle         time.Duration `name:"e2b-idle" placeholder:"DURATION" default:"15m" group:"E2B" help:"Idle time after which the service pauses a persistent sandbox, even if no worker is running: 1m to 24h, and at most what the plan allows."`
	E2BNoWorkspaces bool          `name:"e2b-no-workspaces" group:"E2B" help:"Run without volumes, for a team that has none: calls with a workspace are refused."`
}

var _ diagnosing = (*e2bFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *e2bFlags) check() error {
	for _, n := range f.E2BNetworks {
		if !slices.Contains(e2b.Declared().Networks, schemas.NetworkMode(n)) {
			return schemas.Invalidf("e2b-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(n))
		}
	}
	switch {
	case f.E2BSandboxes < 1:
		return schemas.Invalidf("e2b-sandboxes", "%d is out of range: at least 1", f.E2BSandboxes)
	case f.E2BIdle < time.Minute || f.E2BIdle > 24*time.Hour:
		return schemas.Invalidf("e2b-idle", "%s is out of range: 1m to 24h", f.E2BIdle)
	case f.E2BTemplate == "" || f.E2BInstallation == "":
		return schemas.Invalidf("e2b-template", "must not be empty, and neither must e2b-installation")
	}
	return nil
}

// template returns the template of the flag. If that is the default, E2B_TEMPLATE takes precedence.
func (f *e2bFlags) template() string {
	if f.E2BTemplate == e2bTemplate {
		return cmp.Or(os.Getenv("E2B_TEMPLATE"), e2bTemplate)
	}
	return f.E2BTemplate
}

const e2bTemplate = "base"

// options returns the provider's options. Where a flag is not set, the environment variables of the vendor's own tools apply.
func (f *e2bFlags) options() e2b.Options {
	o := e2b.Options{
		Key: cmp.Or(f.E2BAPIKey, os.Getenv("E2B_API_KEY")), Domain: cmp.Or(f.E2BDomain, os.Getenv("E2B_DOMAIN")),
		APIURL:     cmp.Or(f.E2BAPIURL, os.Getenv("E2B_API_URL")),
		SandboxURL: cmp.Or(f.E2BSandboxURL, os.Getenv("E2B_SANDBOX_URL")),
		Template:   f.template(), Installation: f.E2BInstallation, Sandboxes: f.E2BSandboxes, Idle: f.E2BIdle, NoWorkspaces: f.E2BNoWorkspaces,
	}
	for _, n := range f.E2BNetworks {
		o.Networks = append(o.Networks, schemas.NetworkMode(n))
	}
	return o
}

// open creates the provider. It checks the settings only: the service gets no request before the first call.
func (f *e2bFlags) open(n *node, _ operatorFlags) (providers.Provider, error) {
	o := f.options()
	o.Log = n.log.With("part", "e2b")
	return n.openKeyed(keyedBackend{name: "e2b", installation: f.E2BInstallation, flag: "e2b-installation", longest: e2b.MaxInstallation,
		variables: []string{"E2B_API_KEY"}, open: func(key []string) (accountkeys.Leaf, error) {
			own := o
			if key != nil {
				own.Key, own.Installation = key[0], own.Installation+ownInstallation
			}
			p, err := e2b.Open(own)
			if err != nil {
				return nil, err
			}
			return p, nil
		}})
}

// diagnose checks the service if a key is set. Problems of the service are only notes and do not keep "up" from working: e2b is one of
// several providers.
func (f *e2bFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "e2b"
	o := f.options()
	if o.Key == "" {
		return []finding{{about, worth, "no key is set: not checked", "for --provider e2b only: E2B_API_KEY"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	return findings(e2b.Diagnose(ctx, o))
}
