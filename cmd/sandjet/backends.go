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

// backends returns the providers of this program: their profiles, their flags and how they are opened. Everything else about providers is
// derived from this table; no other code names one. The first is the default of sandboxes that name none.
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

// backend is a provider of this program. Its name, the value of --provider, is that of its profile.
type backend struct {
	profile schemas.Profile     // what it can do at most, on any host
	flags   func() backendFlags // returns a new set of its flags, for one command
}

// backendFlags are the flags of one backend: a pointer to a struct whose fields have kong's tags. The flags of all backends share one
// command line, so their names begin with the backend's: acme-region.
type backendFlags interface {
	// check reports the first flag that is out of range.
	check() error
	// open opens the provider as the flags say, and registers its closing with node.onClose.
	open(n *node, operator operatorFlags) (providers.Provider, error)
}

// diagnosing is implemented by the flags of backends that "sandjet doctor" can check on this host.
type diagnosing interface {
	backendFlags
	// diagnose tries what the provider needs, in a folder that it may write to.
	diagnose(ctx context.Context, folder string) []finding
}

// catalog returns the profiles of all backends, in the order of the table.
func catalog() schemas.Catalog {
	var c schemas.Catalog
	for _, b := range backends() {
		c = append(c, b.profile)
	}
	return c
}

// catalogOf returns the catalog with the named provider first, which makes it the default of sandboxes that name none.
func catalogOf(first string) schemas.Catalog {
	c := catalog()
	if i := slices.Index(c.Names(), first); i > 0 {
		p := c[i]
		c = slices.Insert(slices.Delete(c, i, i+1), 0, p)
	}
	return c
}

// pluginsOf returns a new set of flags of each backend.
func pluginsOf(all []backend) kong.Plugins {
	var sets kong.Plugins
	for _, b := range all {
		sets = append(sets, b.flags())
	}
	return sets
}

// backendChoice is the providers for which a process has workers, and the flags of all backends.
type backendChoice struct {
	Providers []string     `name:"provider" placeholder:"NAME" default:"${provider}" enum:"${providers}" group:"Worker" help:"Provider of sandboxes: ${providers}, or several, separated by commas. The first is the default of sandboxes that name none."`
	Backends  kong.Plugins `embed:""`
}

// fill sets the flags of the backends.
func (c *backendChoice) fill(sets kong.Plugins) { c.Backends = sets }

// first returns the provider of sandboxes that name none.
func (c backendChoice) first() string {
	if len(c.Providers) == 0 {
		return ""
	}
	return c.Providers[0]
}

// chosen returns the flags of the backends that Providers names, by name. Code invalid: Providers is empty, or has an unknown name or one
// twice.
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
