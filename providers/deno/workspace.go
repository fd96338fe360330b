package deno

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// slugOf returns the slug of a workspace's volume: 2 to 32 lower-case letters, digits and hyphens, unique in the organization.
func (p *workspaces) slugOf(namespace string) string {
	const letters = 26 // 130 bits
	sum := sha256.Sum256([]byte(p.opt.Installation + "\x00" + namespace))
	return "sj-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:letters])
}

// volume returns the slug of the volume with a workspace's files, making it if there is none.
func (p *workspaces) volume(ctx context.Context, namespace string) (string, error) {
	slug := p.slugOf(namespace)
	if p.volumes.Has(slug) {
		return slug, nil
	}
	v, err := p.findVolume(ctx, slug)
	if cloud.StatusOf(err) == http.StatusNotFound {
		err = p.ask(ctx, p.console, cloud.Call{
			Method: http.MethodPost, Path: "/api/v2/volumes", Body: newVolume{slug, p.opt.Region, p.opt.Volume}, Into: &v,
		})
		if err != nil && cloud.StatusOf(err) != http.StatusForbidden {
			if there, again := p.findVolume(ctx, slug); again == nil { // another was faster, or the answer was lost
				v, err = there, nil
			}
		}
	}
	switch code := cloud.StatusOf(err); {
	case code == http.StatusForbidden || code == http.StatusNotFound:
		return "", schemas.Wrap(schemas.Unsupported, opCreate,
			"the organization of this worker has no volumes on Deno, which workspaces need: leave the workspace out, or use another provider", err)
	case err != nil:
		return "", explain(opCreate, err)
	case v.Region != p.opt.Region:
		return "", schemas.OpErrorf(schemas.Unsupported, opCreate,
			"the workspace is in the region %q of Deno, and this worker makes sandboxes in %s (--deno-region)",
			schemas.Quotable(v.Region), p.opt.Region)
	}
	p.volumes.Add(slug)
	return slug, nil
}

func (p *workspaces) findVolume(ctx context.Context, slug string) (v volume, err error) {
	err = p.ask(ctx, p.console, cloud.Call{
		Method: http.MethodGet, Path: "/api/v2/volumes/" + url.PathEscape(slug), Route: "/api/v2/volumes/{slug}", Into: &v,
	})
	return v, err
}

// place is what a sandbox reports about itself.
type place struct {
	User, Home string
	Puts       map[string]string // what stands for variables that are bound to hosts
}

// places caches the places of persistent sandboxes, by their births. It is emptied when it grows too large. The zero value is empty; it is
// safe for concurrent use.
type places struct {
	mu  sync.Mutex
	all map[string]place
}

const mostPlaces = 10_000

func (s *places) of(birth string) (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.all[birth]
	return at, ok
}

func (s *places) add(birth string, at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= mostPlaces {
		s.all = map[string]place{}
	}
	s.all[birth] = at
}

// furniture makes a workspace the user's, shows it under its short name, and where it is to be read only, says so to the kernel. It
// becomes root for that where it is not. At the end it says who the user is and what stands for variables that are bound to hosts.
const furniture = `as=
[ "$(id -u)" = 0 ] || as="sudo -n"
if [ -n "$1" ]; then
  [ -w "$1" ] || $as chown "$(id -u)" "$1" || exit
  [ "$(readlink ` + providers.WorkspacePath + `)" = "$1" ] || $as ln -sfn "$1" ` + providers.WorkspacePath + ` || exit
  [ "$2" != ro ] || $as mount -o remount,bind,ro "$1" || exit
fi
shift 2
[ -n "$HOME" ] && [ -w "$HOME" ] || HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
printf '%s\n' "$(id -un)" "$HOME"
for name; do printf '%s=%s\n' "$name" "${!name}"; done`

// furnish prepares a new sandbox, and returns what it reports about itself.
func (p *workspaces) furnish(ctx context.Context, d *door, spec providers.Spec) (place, error) {
	args := []string{"", ""}
	if len(spec.Mounts) > 0 {
		args[0] = spec.Mounts[0].Path()
		if spec.Mounts[0].ReadOnly {
			args[1] = "ro"
		}
	}
	for name := range spec.Network.Credentials {
		args = append(args, name)
	}
	said, err := d.Execute(ctx, spool.Look, endTimeout, furniture, args...)
	switch {
	case err != nil:
		return place{}, explain(opCreate, err)
	case said.Exit != 0:
		return place{}, schemas.OpErrorf(schemas.Unsupported, opCreate,
			"the workspace of a sandbox cannot be prepared: its user must become root by sudo: %s", spool.Excerpt(said.Result))
	}
	return readPlace(said.Result, spec.Network.Credentials)
}

// readPlace parses the last output of the furniture script. Code: unavailable.
func readPlace(text string, bound map[string][]string) (place, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	strange := schemas.OpErrorf(schemas.Unavailable, opCreate, "the sandbox does not say who its user is: %s", spool.Excerpt(text))
	if len(lines) != 2+len(bound) || lines[0] == "" || !strings.HasPrefix(lines[1], "/") {
		return place{}, strange
	}
	at := place{User: lines[0], Home: lines[1], Puts: map[string]string{}}
	for _, line := range lines[2:] {
		name, value, _ := strings.Cut(line, "=")
		if _, is := bound[name]; !is || value == "" {
			return place{}, strange
		}
		at.Puts[name] = value
	}
	return at, nil
}

// furnishOnce is furnish for a persistent sandbox, unless this worker has done so already. The worker that made the sandbox may have died
// before preparing it.
func (p *workspaces) furnishOnce(ctx context.Context, d *door, birth string, spec providers.Spec) (place, error) {
	if at, ok := p.places.of(birth); ok {
		return at, nil
	}
	at, err := p.furnish(ctx, d, spec)
	if err == nil {
		p.places.add(birth, at)
	}
	return at, err
}

// secretsOf returns the variables that the service is to insert into requests; nil if there are none.
func secretsOf(spec providers.Spec) map[string]secret {
	if len(spec.Network.Credentials) == 0 {
		return nil
	}
	all := map[string]secret{}
	for name, hosts := range spec.Network.Credentials {
		all[name] = secret{hosts, spec.Env[name]}
	}
	return all
}
