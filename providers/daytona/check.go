package daytona

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Diagnose checks what the provider needs of the service: whether it answers, the key, the snapshot, volumes for workspaces, and how many
// sandboxes run. It creates nothing and blocks for a few seconds, or a minute if the service does not answer.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	p, err := Open(o)
	if err != nil {
		return []providers.Diagnosis{{About: "daytona", Says: err.Error(),
			Remedy: "for --provider daytona only: make a key in the dashboard of Daytona, and set DAYTONA_API_KEY"}}
	}
	defer p.Close() //nolint:errcheck // nothing was begun
	all, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation})
	if err != nil {
		d := providers.Diagnosis{About: "daytona", Says: explain("ask", err).Error(),
			Remedy: "see whether " + p.control.Base.String() + " can be reached from here"}
		if schemas.CodeOf(explain("ask", err)) == schemas.Denied {
			d.Says = p.control.Base.String() + " refuses the key"
			d.Remedy = "make another in the dashboard of Daytona that may write and delete sandboxes, and set DAYTONA_API_KEY"
		}
		return []providers.Diagnosis{d}
	}
	running, resting := count(all)
	out := []providers.Diagnosis{{
		About: "daytona", Good: running < p.opt.Sandboxes,
		Says: fmt.Sprintf("%s takes the key; of this installation %d sandboxes run and %d are stopped, %d may run",
			p.control.Base, running, resting, p.opt.Sandboxes),
		Remedy: "end some, or allow more with --daytona-sandboxes, up to what the organization may have",
	}}
	return append(out, p.diagnoseSnapshot(ctx), p.workspaces.diagnoseVolume(ctx))
}

// diagnoseSnapshot checks that the named snapshot exists, if any is named.
func (p *api) diagnoseSnapshot(ctx context.Context) providers.Diagnosis {
	const about = "daytona snapshot"
	switch {
	case p.opt.Image != "":
		return providers.Diagnosis{About: about, Good: true, Says: "the service builds one of the image " + p.opt.Image + " with the first sandbox"}
	case p.opt.Snapshot == "":
		return providers.Diagnosis{About: about, Good: true, Says: "the service's own"}
	}
	var s struct {
		State string `json:"state"`
	}
	_, err := p.control.Do(ctx, cloud.Call{
		Method: http.MethodGet, Path: "/snapshots/" + url.PathEscape(p.opt.Snapshot), Route: "/snapshots/{id}", Into: &s,
	})
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound:
		return providers.Diagnosis{About: about, Says: "there is no snapshot " + p.opt.Snapshot,
			Remedy: "make it in the dashboard of Daytona, or name another with --daytona-snapshot"}
	case err != nil:
		return providers.Diagnosis{About: about, Says: explain("ask", err).Error(), Remedy: "try again later"}
	case s.State != "active":
		return providers.Diagnosis{About: about, Says: fmt.Sprintf("%s is %q", p.opt.Snapshot, schemas.Quotable(s.State)),
			Remedy: "activate it in the dashboard of Daytona, or name another with --daytona-snapshot"}
	}
	return providers.Diagnosis{About: about, Good: true, Says: p.opt.Snapshot + " is there"}
}

// diagnoseVolume checks access to the volume of workspaces, which need not exist yet.
func (p *workspaces) diagnoseVolume(ctx context.Context) providers.Diagnosis {
	const about = "daytona workspaces"
	if p.opt.NoWorkspaces {
		return providers.Diagnosis{About: about, Good: true, Says: "none: --daytona-no-workspaces"}
	}
	v, err := p.findVolume(ctx)
	switch code := cloud.StatusOf(err); {
	case err == nil && v.State == stateError:
		return providers.Diagnosis{About: about, Says: "the volume " + p.volumeName() + " has failed: " + p.control.Clean(v.Reason),
			Remedy: "delete it in the dashboard of Daytona where its files are not needed, or choose another --daytona-installation"}
	case err == nil:
		return providers.Diagnosis{About: about, Good: true, Says: "they are folders of the volume " + p.volumeName()}
	case code == http.StatusNotFound:
		return providers.Diagnosis{About: about, Good: true, Says: "the volume " + p.volumeName() + " is made with the first workspace"}
	case code == http.StatusForbidden:
		return providers.Diagnosis{About: about, Says: "the key may not see volumes, which workspaces need",
			Remedy: "make a key that may read and write volumes, or say --daytona-no-workspaces: calls with a workspace are refused then"}
	default:
		return providers.Diagnosis{About: about, Says: explain("ask", err).Error(), Remedy: "try again later"}
	}
}
