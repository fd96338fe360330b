package main

import (
	"context"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/daytona"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/lambda"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/providers/vercel"
	"github.com/sandjet/sandjet/schemas"
)

// backends are the providers of sandboxes that this program has: their names, what they can do, their flags and
// how they are opened. All else that is said of them is derived from this table, and nothing else names one. The
// first is that of sandboxes which name none.
func backends() []backend {
	return []backend{
		{profile: local.Declared(), flags: func() backendFlags { return &localFlags{} }},
		{profile: docker.Declared(), flags: func() backendFlags { return &dockerFlags{} }},
		{profile: kubernetes.Declared(), flags: func() backendFlags { return &kubernetesFlags{} }},
		{profile: e2b.Declared(), flags: func() backendFlags { return &e2bFlags{} }},
		{profile: daytona.Declared(), flags: func() backendFlags { return &daytonaFlags{} }},
		{profile: deno.Declared(), flags: func() backendFlags { return &denoFlags{} }},
		{profile: modal.Declared(), flags: func() backendFlags { return &modalFlags{} }},
		{profile: vercel.Declared(), flags: func() backendFlags { return &vercelFlags{} }},
		{profile: lambda.Declared(), flags: func() backendFlags { return &lambdaFlags{} }},
	}
}

// backend is a provider of this program. Its name, that of --provider, is its profile's.
type backend struct {
	profile schemas.Profile     // the most that it can do on any host
	flags   func() backendFlags // a new set, for one command
}

// backendFlags are the flags of one backend: a pointer to a struct, whose fields have kong's tags. All backends'
// flags are there together, so their names begin with the backend's: acme-region.
type backendFlags interface {
	// check reports the first flag that is out of range.
	check() error
	// open opens the provider as the flags say. What it opens it closes by node.onClose.
	open(n *node, operator operatorFlags) (providers.Provider, error)
}

// diagnosing are flags of a backend that can say what of it works on this host, for the doctor.
type diagnosing interface {
	backendFlags
	// diagnose tries out what the provider needs, in a folder that it may fill.
	diagnose(ctx context.Context, folder string) []finding
}

// catalog is the profiles of all backends, in the order of the table.
func catalog() schemas.Catalog {
	var c schemas.Catalog
	for _, b := range backends() {
		c = append(c, b.profile)
	}
	return c
}

// catalogOf is the same with the provider first that a process of one worker has: it is then that of sandboxes
// which name none.
func catalogOf(first string) schemas.Catalog {
	c := catalog()
	if i := slices.Index(c.Names(), first); i > 0 {
		p := c[i]
		c = slices.Insert(slices.Delete(c, i, i+1), 0, p)
	}
	return c
}

// pluginsOf makes a set of flags of each backend.
func pluginsOf(all []backend) kong.Plugins {
	var sets kong.Plugins
	for _, b := range all {
		sets = append(sets, b.flags())
	}
	return sets
}

// backendChoice says which backends a process has workers for, and how they are opened.
type backendChoice struct {
	Providers []string     `name:"provider" placeholder:"NAME" default:"${provider}" enum:"${providers}" group:"Worker" help:"Provider of sandboxes: ${providers}, or several, separated by commas. The first is the default of sandboxes that name none."`
	Backends  kong.Plugins `embed:""`
}

// fill gives it the flags of the backends.
func (c *backendChoice) fill(sets kong.Plugins) { c.Backends = sets }

// first is the provider of sandboxes which name none.
func (c backendChoice) first() string {
	if len(c.Providers) == 0 {
		return ""
	}
	return c.Providers[0]
}

// chosen are the flags of the backends that Providers names, by their names.
func (c backendChoice) chosen() (map[string]backendFlags, error) {
	all := map[string]backendFlags{}
	for _, name := range c.Providers {
		i := slices.Index(catalog().Names(), name)
		if i < 0 || i >= len(c.Backends) {
			return nil, schemas.Invalidf("provider", "%q is not a provider of this build: it has %v", schemas.Quotable(name), catalog().Names())
		}
		if all[name] != nil {
			return nil, schemas.Invalidf("provider", "%s is named twice", name)
		}
		f, ok := c.Backends[i].(backendFlags)
		if !ok {
			return nil, schemas.OpErrorf(schemas.Internal, "provider", "the flags of %s are of another kind", name)
		}
		all[name] = f
	}
	if len(all) == 0 {
		return nil, schemas.Invalidf("provider", "is empty: name one of %v", catalog().Names())
	}
	return all, nil
}

// check reports the first flag of the chosen backends that is out of range.
func (c backendChoice) check() error {
	all, err := c.chosen()
	if err != nil {
		return err
	}
	for _, name := range c.Providers {
		if err := all[name].check(); err != nil {
			return err
		}
	}
	return nil
}
