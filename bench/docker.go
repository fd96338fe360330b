package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// Docker measures what the provider docker adds to its engine: a command in a persistent container, a container for one call, and how long
// a persistent container takes to be created and to be resumed. In each round each step is compared with the same by the engine's API
// alone, and with a command in a persistent box of the provider local. The engine is that of d; its image must exist. Code unsupported:
// the engine has no socket on this host.
func Docker(ctx context.Context, rounds int, d docker.Options, l local.Options) (Report, error) {
	dir, remove, err := tempDir("sandjet-bench-docker-")
	if err != nil {
		return Report{}, err
	}
	defer remove()
	e, err := openEngine(d)
	if err != nil {
		return Report{}, err
	}
	defer e.close()
	// Use volumes: the engine may not see a temporary folder. No workspace is used.
	d.Installation, d.Workspaces, d.Boxes = "bench-"+strings.ToLower(schemas.NewID("")), "", -1
	c := containers{engine: e}
	if c.provider, err = docker.Open(ctx, d); err != nil {
		return Report{}, err
	}
	defer c.provider.Close() //nolint:errcheck // what it has kept was released
	l.StateDir, l.Workspaces, l.Pool = filepath.Join(dir, "state"), filepath.Join(dir, "workspaces"), -1
	if c.local, err = local.New(l); err != nil {
		return Report{}, err
	}
	defer c.local.Close() //nolint:errcheck // as above
	defer c.end()
	if err := c.begin(ctx); err != nil {
		return Report{}, err
	}
	return c.measure(ctx, rounds)
}

// step is a timed function, between others that are not timed.
type step struct {
	name                string
	before, timed, then func(context.Context) error
	took                []float64 // ms
}

func (s *step) run(ctx context.Context) error {
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return fmt.Errorf("before %s: %w", s.name, err)
		}
	}
	start := time.Now()
	if err := s.timed(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.took = append(s.took, float64(time.Since(start))/float64(time.Millisecond))
	if s.then != nil {
		if err := s.then(ctx); err != nil {
			return fmt.Errorf("after %s: %w", s.name, err)
		}
	}
	return nil
}

// containers is the state of the benchmark: the engine and the two providers with their containers.
type containers struct {
	engine   *engine
	provider docker.Backend
	local    *local.Provider

	bare, made string      // containers of the engine
	kept       schemas.Ref // persistent container of the provider, for commands
	sleeper    schemas.Ref // another one, which is stopped and paused
	box        schemas.Ref // persistent box of the provider local
	fresh      schemas.Ref
	keys       int
}

func (c *containers) begin(ctx context.Context) (err error) {
	if c.bare, err = c.engine.start(ctx); err != nil {
		return err
	}
	if c.kept, err = c.reserve(ctx, "kept"); err != nil {
		return err
	}
	if c.sleeper, err = c.reserve(ctx, "sleeper"); err != nil {
		return err
	}
	c.box, err = c.local.Reserve(ctx, "bench", providers.Spec{Account: benchAccount})
	return err
}

func (c *containers) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, id := range []string{c.bare, c.made} {
		if id != "" {
			_ = c.engine.remove(ctx, id)
		}
	}
	for _, ref := range []schemas.Ref{c.kept, c.sleeper, c.fresh} {
		if !ref.IsZero() {
			_ = c.provider.Release(ctx, ref)
		}
	}
	if !c.box.IsZero() {
		_ = c.local.Release(ctx, c.box)
	}
}

func (c *containers) reserve(ctx context.Context, key string) (schemas.Ref, error) {
	return c.provider.Reserve(ctx, key, providers.Spec{Account: benchAccount})
}

// commandIn runs `true` with a provider, in a persistent instance or in one for this command.
func commandIn(p providers.Provider, ref *schemas.Ref) func(context.Context) error {
	return func(ctx context.Context) error {
		res, err := p.Run(ctx, providers.Command{
			Script: "true", Sandbox: *ref, Timeout: time.Minute, Spec: providers.Spec{Account: benchAccount},
		})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("true exits with %d: %.200s", res.ExitCode, res.Stderr)
		}
		return err
	}
}

// back reserves the container that was stopped or paused, which resumes it.
func (c *containers) back(ctx context.Context) (err error) {
	c.sleeper, err = c.reserve(ctx, "sleeper")
	return err
}

// steps returns the steps in pairs: the engine alone, and Sandjet. The last one is that of the provider local, for comparison with the
// first pair.
func (c *containers) steps() []*step {
	e := c.engine
	forget := func(ctx context.Context) error {
		id := c.made
		c.made = ""
		return e.remove(ctx, id)
	}
	release := func(ctx context.Context) error {
		ref := c.fresh
		c.fresh = schemas.Ref{}
		return c.provider.Release(ctx, ref)
	}
	post := func(id *string, verb string) func(context.Context) error {
		return func(ctx context.Context) error { return e.post(ctx, *id, verb) }
	}
	return []*step{
		{name: "bare: exec of `true` in a container that runs", timed: func(ctx context.Context) error { return e.exec(ctx, c.bare) }},
		{name: "Sandjet, `true` in a kept container", timed: commandIn(c.provider, &c.kept)},
		{name: "bare: container for one `true`, to its end", then: forget,
			timed: func(ctx context.Context) (err error) { c.made, err = e.once(ctx); return err }},
		{name: "Sandjet, container for one call", timed: commandIn(c.provider, &schemas.Ref{})},
		{name: "bare: container made and started", then: forget,
			timed: func(ctx context.Context) (err error) { c.made, err = e.start(ctx); return err }},
		{name: "Sandjet, kept container made", then: release,
			timed: func(ctx context.Context) (err error) {
				c.keys++
				c.fresh, err = c.reserve(ctx, "made-"+strconv.Itoa(c.keys))
				return err
			}},
		{name: "bare: stopped container started", before: post(&c.bare, "stop"), timed: post(&c.bare, "start")},
		{name: "Sandjet, kept container that was stopped", before: post(&c.sleeper.ID, "stop"), timed: c.back},
		{name: "bare: paused container resumed", before: post(&c.bare, "pause"), timed: post(&c.bare, "unpause")},
		{name: "Sandjet, kept container that was paused", before: post(&c.sleeper.ID, "pause"), timed: c.back},
		{name: "Sandjet, `true` in a kept box of the provider local", timed: commandIn(c.local, &c.box)},
	}
}

func (c *containers) measure(ctx context.Context, rounds int) (Report, error) {
	steps := c.steps()
	const warm = 2
	for i := range rounds + warm {
		for _, s := range steps {
			if err := s.run(ctx); err != nil {
				return Report{}, err
			}
			if i < warm {
				s.took = nil
			}
		}
	}
	r := Report{Title: "Containers of the provider docker", Machine: machine()}
	for i := 0; i+1 < len(steps); i += 2 {
		r.Ratios = append(r.Ratios, ratio(steps[i+1].name+" / bare", "", steps[i+1].took, steps[i].took))
	}
	last := steps[len(steps)-1]
	r.Ratios = append(r.Ratios, ratio(steps[1].name+" / the same in the provider local", "", steps[1].took, last.took))
	for _, s := range steps {
		r.Rows = append(r.Rows, row(s.name, "ms", s.took)) // sorts them, so it comes after the ratios
	}
	r.Notes = append(r.Notes, "Bare is the engine's API alone, by a connection that is kept, with the same limits. "+
		"What is made is removed untimed.")
	return r, nil
}
