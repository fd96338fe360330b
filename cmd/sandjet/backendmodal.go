package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/accountkeys"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/schemas"
)

// modalFlags are the flags of the provider modal, which runs sandboxes at Modal's service or a compatible one.
type modalFlags struct {
	ModalTokenID      string        `name:"modal-token-id" placeholder:"ID" group:"Modal" secret:"" help:"ID of the token. Prefer the environment: other users can see command lines. Default: MODAL_TOKEN_ID."`
	ModalTokenSecret  string        `name:"modal-token-secret" placeholder:"SECRET" group:"Modal" secret:"" help:"Secret of the token. Prefer the environment, as for --modal-token-id. Default: MODAL_TOKEN_SECRET."`
	ModalServerURL    string        `name:"modal-server-url" placeholder:"URL" group:"Modal" help:"Address of the service. Default: MODAL_SERVER_URL, or https://api.modal.com:443."`
	ModalEnvironment  string        `name:"modal-environment" placeholder:"NAME" group:"Modal" help:"Environment of the workspace at Modal. Default: MODAL_ENVIRONMENT, or that of the workspace."`
	ModalApp          string        `name:"modal-app" placeholder:"NAME" default:"sandjet" group:"Modal" help:"Name of the app that has the sandboxes: the same for all workers that share sandboxes, another one for other installations of the same environment."`
	ModalImage        string        `name:"modal-image" placeholder:"IMAGE" default:"debian:12" group:"Modal" help:"Image of sandboxes: a name in a public registry, from which the service builds one for the first sandbox, or the ID of an existing one (im-…). It needs bash, coreutils and grep."`
	ModalRuntime      string        `name:"modal-runtime" placeholder:"NAME" group:"Modal" help:"Runtime of sandboxes: gvisor or vm. Default: the service's choice; vm for persistent sandboxes, which need it."`
	ModalRegions      []string      `name:"modal-regions" placeholder:"REGION" group:"Modal" help:"Regions in which sandboxes run. Default: the service's choice."`
	ModalCPUs         float64       `name:"modal-cpus" placeholder:"N" default:"0" group:"Modal" help:"Processors of each sandbox, 0.125 to 64; 0: the default of the service."`
	ModalMemory       int           `name:"modal-memory" placeholder:"MIB" default:"0" group:"Modal" help:"Memory of each sandbox in MiB, at least 128; 0: the default of the service."`
	ModalNetworks     []string      `name:"modal-networks" placeholder:"MODE" default:"deny-all,restricted" group:"Modal" help:"Network modes that sandboxes may have: deny-all, restricted (to ranges of addresses and names), allow-all."`
	ModalSandboxes    int           `name:"modal-sandboxes" placeholder:"N" default:"20" group:"Modal" help:"Sandboxes that run at a time, all workers' together; beyond that calls wait. The workspace at Modal has a share of its own."`
	ModalIdle         time.Duration `name:"modal-idle" placeholder:"DURATION" default:"15m" group:"Modal" help:"Idle time after which the service ends a persistent sandbox, even if no worker is running: 1m to 24h."`
	ModalStart        time.Duration `name:"modal-start" placeholder:"DURATION" default:"2m" group:"Modal" help:"How long a sandbox may take to be created: up to 1h."`
	ModalBuild        time.Duration `name:"modal-build" placeholder:"DURATION" default:"15m" group:"Modal" help:"How long the image may take to be built, once: up to 1h."`
	ModalNoWorkspaces bool          `name:"modal-no-workspaces" group:"Modal" help:"Run without volumes: calls with a workspace are refused."`
}

var _ diagnosing = (*modalFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *modalFlags) check() error {
	for _, n := range f.ModalNetworks {
		if !slices.Contains(modal.Declared().Networks, schemas.NetworkMode(n)) {
			return schemas.Invalidf("modal-networks", "%q is unknown: use deny-all, restricted, allow-all", schemas.Quotable(n))
		}
	}
	switch {
	case f.ModalSandboxes < 1:
		return schemas.Invalidf("modal-sandboxes", "%d is out of range: at least 1", f.ModalSandboxes)
	case f.ModalIdle < time.Minute || f.ModalIdle > 24*time.Hour:
		return schemas.Invalidf("modal-idle", "%s is out of range: 1m to 24h", f.ModalIdle)
	case f.ModalStart < time.Second || f.ModalStart > time.Hour:
		return schemas.Invalidf("modal-start", "%s is out of range: 1s to 1h", f.ModalStart)
	case f.ModalBuild < time.Second || f.ModalBuild > time.Hour:
		return schemas.Invalidf("modal-build", "%s is out of range: 1s to 1h", f.ModalBuild)
	case f.ModalApp == "" || f.ModalImage == "":
		return schemas.Invalidf("modal-app", "must not be empty, and neither must modal-image")
	}
	return nil
}

// options returns the provider's options. Where a flag is not set, the environment variables of the vendor's own tools apply.
func (f *modalFlags) options() modal.Options {
	o := modal.Options{
		TokenID:     cmp.Or(f.ModalTokenID, os.Getenv("MODAL_TOKEN_ID")),
		TokenSecret: cmp.Or(f.ModalTokenSecret, os.Getenv("MODAL_TOKEN_SECRET")),
		ServerURL:   cmp.Or(f.ModalServerURL, os.Getenv("MODAL_SERVER_URL")),
		Environment: cmp.Or(f.ModalEnvironment, os.Getenv("MODAL_ENVIRONMENT")),
		App:         f.ModalApp, Image: f.ModalImage, Runtime: f.ModalRuntime, Regions: f.ModalRegions, CPUs: f.ModalCPUs, Memory: f.ModalMemory,
		Sandboxes: f.ModalSandboxes, Idle: f.ModalIdle, Start: f.ModalStart, Build: f.ModalBuild, NoWorkspaces: f.ModalNoWorkspaces,
	}
	for _, n := range f.ModalNetworks {
		o.Networks = append(o.Networks, schemas.NetworkMode(n))
	}
	return o
}

// open creates the provider. It checks the settings only: the service gets no request before the first call.
func (f *modalFlags) open(n *node, _ operatorFlags) (providers.Provider, error) {
	o := f.options()
	o.Log = n.log.With("part", "modal")
	return n.openKeyed(keyedBackend{name: "modal", installation: f.ModalApp, flag: "modal-app", longest: modal.MaxApp,
		variables: []string{"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"}, open: func(key []string) (accountkeys.Leaf, error) {
			own := o
			if key != nil {
				own.TokenID, own.TokenSecret, own.Environment, own.App = key[0], key[1], "", own.App+ownInstallation
			}
			p, err := modal.Open(own)
			if err != nil {
				return nil, err
			}
			return p, nil
		}})
}

// diagnose checks the service if a token is set. Problems of the service are only notes and do not keep "up" from working: modal is one of
// several providers.
func (f *modalFlags) diagnose(ctx context.Context, _ string) []finding {
	const about = "modal"
	o := f.options()
	if o.TokenID == "" && o.TokenSecret == "" {
		return []finding{{about, worth, "no token is set: not checked", "for --provider modal only: MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"}}
	}
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	return findings(modal.Diagnose(ctx, o))
}
