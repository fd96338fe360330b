package daytona

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// volumes caches the volume of this installation.
type volumes struct {
	mu sync.Mutex // held while it is looked for: one of a worker's callers is enough
	id string
}

func (p *api) volumeName() string { return p.opt.Installation + "-workspaces" }

// volume returns the id of the volume with the files of all workspaces, making it if there is none. Each workspace is a folder of it, and
// a sandbox sees only its own.
func (p *workspaces) volume(ctx context.Context) (string, error) {
	p.volumes.mu.Lock()
	defer p.volumes.mu.Unlock()
	if p.volumes.id != "" {
		return p.volumes.id, nil
	}
	v, err := p.findVolume(ctx)
	if cloud.StatusOf(err) == http.StatusNotFound {
		_, err = p.control.Do(ctx, cloud.Call{
			Method: http.MethodPost, Path: "/volumes", Body: map[string]string{"name": p.volumeName()}, Into: &v,
		})
		if err != nil {
			if there, again := p.findVolume(ctx); again == nil { // another was faster, or the answer was lost
				v, err = there, nil
			}
		}
	}
	switch code := cloud.StatusOf(err); {
	case code == http.StatusForbidden || code == http.StatusNotFound:
		return "", schemas.Wrap(schemas.Unsupported, "create", "the key of this worker may not make volumes, which workspaces on Daytona need: "+
			"\"sandjet doctor\" explains", err)
	case err != nil:
		return "", explain("create", err)
	}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for n := 1; v.State != "ready"; n++ {
		if v.State == stateError || !again.Sleep(ctx, n) {
			return "", schemas.OpErrorf(schemas.Unavailable, "create", "the volume of workspaces on Daytona is not ready: it is %q, %s",
				schemas.Quotable(v.State), p.control.Clean(v.Reason))
		}
		if v, err = p.findVolume(ctx); err != nil {
			return "", explain("look", err)
		}
	}
	p.volumes.id = v.ID
	return v.ID, nil
}

func (p *workspaces) findVolume(ctx context.Context) (v volume, err error) {
	_, err = p.control.Do(ctx, cloud.Call{
		Method: http.MethodGet, Path: "/volumes/by-name/" + url.PathEscape(p.volumeName()), Route: "/volumes/by-name/{name}", Into: &v,
	})
	return v, err
}

// furniture makes a workspace the user's, shows it under its short name, and where it is to be read only, says so to the kernel. It
// becomes root for that where it is not.
const furniture = `as=
[ "$(id -u)" = 0 ] || as="sudo -n"
[ -w "$1" ] || $as chown "$(id -u)" "$1" || exit
[ "$(readlink ` + providers.WorkspacePath + `)" = "$1" ] || $as ln -sfn "$1" ` + providers.WorkspacePath + ` || exit
[ "$2" != ro ] || $as mount -o remount,bind,ro "$1"`

// furnish prepares the workspace of a sandbox.
func (p *workspaces) furnish(ctx context.Context, box sandbox, mounts []providers.Mount) error {
	for _, m := range mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		t, err := p.toolboxOf(box)
		if err != nil {
			return err
		}
		said, err := t.Execute(ctx, spool.Look, endTimeout, furniture, m.Path(), mode)
		switch {
		case err != nil:
			return schemas.Wrap(schemas.Unavailable, "create", "the workspace of the sandbox cannot be prepared", err)
		case said.Exit != 0:
			return schemas.OpErrorf(schemas.Unsupported, "create",
				"the workspace of a sandbox cannot be prepared: its user %s must be root or become it by sudo: %s", p.opt.User,
				spool.Excerpt(said.Result))
		}
	}
	return nil
}

// furnishOnce prepares the workspace of a persistent sandbox after each start, unless this worker has done so already. Any worker may have
// started the sandbox and died before preparing it.
func (p *workspaces) furnishOnce(ctx context.Context, box sandbox, epoch string, mounts []providers.Mount) error {
	if p.furnished.Has(epoch) {
		return nil
	}
	if err := p.furnish(ctx, box, mounts); err != nil {
		return err
	}
	p.furnished.Add(epoch)
	return nil
}
