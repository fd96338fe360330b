package vercel

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// drive returns the name of the drive with a workspace's files, making it if there is none.
func (p *workspaces) drive(ctx context.Context, namespace string) (string, error) {
	name := p.opt.Installation + "-ws-" + cloud.Digest(namespace)
	if p.drives.Has(name) {
		return name, nil
	}
	body := map[string]string{"projectId": p.opt.Project}
	if p.opt.Region != "" {
		body["region"] = p.opt.Region
	}
	_, err := p.client.Do(ctx, cloud.Call{
		Method: http.MethodPost, Path: "/v2/sandboxes/drives/" + url.PathEscape(name), Route: "/v2/sandboxes/drives/{name}",
		Query: p.query(), Body: body,
	})
	switch code := cloud.StatusOf(err); {
	case code == http.StatusForbidden || code == http.StatusNotFound || code == http.StatusPaymentRequired:
		return "", schemas.Wrap(schemas.Unsupported, "create", "the token of this worker has no drives in its project, which workspaces on "+
			"Vercel need: \"sandjet doctor\" explains", err)
	case err != nil:
		return "", explain("create", err)
	}
	p.drives.Add(name)
	return name, nil
}

func modeOf(m providers.Mount) string {
	if m.ReadOnly {
		return mountSnapshot
	}
	return mountWrites
}

// saysDrive reports whether an error's message is about a drive and contains one of the words, if there are any.
func saysDrive(err error, words ...string) bool {
	e := cloud.KindOf(err) + " "
	if err != nil {
		e += err.Error()
	}
	e = strings.ToLower(e)
	code := cloud.StatusOf(err)
	if code < 400 || code > 499 || code == http.StatusTooManyRequests || !strings.Contains(e, "drive") {
		return false
	}
	for _, w := range words {
		if strings.Contains(e, w) {
			return true
		}
	}
	return len(words) == 0
}

// inUse reports whether a create was refused for a drive that another sandbox writes to.
func inUse(err error) bool {
	return saysDrive(err, "in use", "in_use", "attached", "mounted", "busy")
}

// refusedMount reports whether a create was refused for a drive in another way.
func refusedMount(err error) bool { return saysDrive(err) && !inUse(err) }

// writable asks for mounts that may be written where only reading was asked for, and reports whether there were some.
func writable(mounts map[string]mount) bool {
	some := false
	for at, m := range mounts {
		if m.Mode == mountSnapshot {
			mounts[at], some = mount{m.Drive, mountWrites}, true
		}
	}
	return some
}

// furniture makes a workspace the user's, shows it under its short name, and where it is to be read only, says so to the kernel. It
// becomes root for that.
const furniture = `as="sudo -n"
if [ "$2" = rw ]; then
  [ -w "$1" ] || $as chown "$(id -u)" "$1" || exit
fi
[ "$(readlink ` + providers.WorkspacePath + `)" = "$1" ] || $as ln -sfn "$1" ` + providers.WorkspacePath + ` || exit
if [ "$2" = ro ]; then
  ! $as test -w "$1" || $as mount -o remount,bind,ro "$1" || exit
  ! $as test -w "$1"
fi`

// furnish prepares the workspace of a session.
func (p *workspaces) furnish(ctx context.Context, id string, mounts []providers.Mount) error {
	for _, m := range mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		said, err := session{p.api, id}.execute(ctx, "look", endTimeout, furniture, m.Path(), mode)
		switch {
		case stopped(err):
			return gone(err)
		case err != nil:
			return schemas.Wrap(schemas.Unavailable, "create", "the workspace of the sandbox cannot be prepared", err)
		case said.Exit != 0:
			return schemas.OpErrorf(schemas.Unsupported, "create",
				"the workspace of a sandbox cannot be prepared: its user %s must become root by sudo: %s", p.opt.User, excerpt(said.Output))
		}
	}
	return nil
}

// furnishOnce prepares the workspace of a persistent sandbox in each session, unless this worker has done so already. Any worker may have
// begun the session and died before preparing it.
func (p *workspaces) furnishOnce(ctx context.Context, id string, mounts []providers.Mount) error {
	if p.furnished.Has(id) {
		return nil
	}
	if err := p.furnish(ctx, id, mounts); err != nil {
		return err
	}
	p.furnished.Add(id)
	return nil
}
