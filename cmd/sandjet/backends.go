package main

import (
	"context"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// backends are the providers of sandboxes that this program has: their names, what they can do, their flags and
// how they are opened. All else that is said of them is derived from this table, and nothing else names one. The
// first is that of sandboxes which name none.
func backends() []backend {
	return []backend{
		{profile: local.Declared(), flags: func() backendFlags { return &localFlags{} }},
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
	diagnose(ctx context.Context, c *doctorCommand, folder string) []finding
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

// backendChoice says which backend a worker has, and how it is opened.
type backendChoice struct {
	Provider string       `placeholder:"NAME" default:"${provider}" enum:"${providers}" group:"Worker" help:"What gives sandboxes: ${providers}."`
	Backends kong.Plugins `embed:""`
}

// chosen are the flags of the backend that Provider names.
func (c backendChoice) chosen() (backendFlags, error) {
	i := slices.Index(catalog().Names(), c.Provider)
	if i < 0 || i >= len(c.Backends) {
		return nil, schemas.Invalidf("provider", "%q is no provider of this build: it has %v", schemas.Quotable(c.Provider), catalog().Names())
	}
	f, ok := c.Backends[i].(backendFlags)
	if !ok {
		return nil, schemas.Errorf(schemas.Internal, "provider", "the flags of %s are of another kind", c.Provider)
	}
	return f, nil
}

// check reports the first flag of the chosen backend that is out of range.
func (c backendChoice) check() error {
	f, err := c.chosen()
	if err != nil {
		return err
	}
	return f.check()
}
