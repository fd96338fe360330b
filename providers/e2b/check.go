package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Diagnose checks what the provider needs of the service: whether it answers, the key, the template, volumes for workspaces, and how many
// sandboxes run. It creates nothing and blocks for a few seconds, or a minute if the service does not answer.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	p, err := Open(o)
	if err != nil {
		return []providers.Diagnosis{{About: "e2b", Says: err.Error(),
			Remedy: "for --provider e2b only: make a key in the dashboard of E2B, and set E2B_API_KEY"}}
	}
	defer p.Close() //nolint:errcheck // nothing was begun
	all, err := p.list(ctx, map[string]string{metaInstallation: p.opt.Installation})
	if err != nil {
		d := providers.Diagnosis{About: "e2b", Says: explain("ask", err).Error(),
			Remedy: "see whether " + p.control.Base.String() + " can be reached from here"}
		if schemas.CodeOf(explain("ask", err)) == schemas.Denied {
			d.Says, d.Remedy = p.control.Base.String()+" refuses the key", "make another in the dashboard of E2B, and set E2B_API_KEY"
		}
		return []providers.Diagnosis{d}
	}
	running := 0
	for _, s := range all {
		if s.State == stateRunning {
			running++
		}
	}
	out := []providers.Diagnosis{{
		About: "e2b", Good: running < p.opt.Sandboxes,
		Says: fmt.Sprintf("%s takes the key; of this installation %d sandboxes run and %d are paused, %d may run",
			p.control.Base, running, len(all)-running, p.opt.Sandboxes),
		Remedy: "end some, or allow more with --e2b-sandboxes, up to what the team's plan allows",
	}}
	return append(out, p.diagnoseTemplate(ctx), p.workspaces.diagnoseVolumes(ctx))
}

// diagnoseTemplate checks that the template exists, by its name. A template that has only an id is not found this way.
func (p *api) diagnoseTemplate(ctx context.Context) providers.Diagnosis {
	d := providers.Diagnosis{About: "e2b template", Good: true, Says: p.opt.Template + " is there"}
	_, err := p.control.Do(ctx, cloud.Call{
		Method: http.MethodGet, Path: "/templates/aliases/" + url.PathEscape(p.opt.Template), Route: "/templates/aliases/{alias}",
	})
	switch cloud.StatusOf(err) {
	case http.StatusNotFound:
		d = providers.Diagnosis{About: "e2b template", Says: "no template has the name " + p.opt.Template,
			Remedy: "build it with E2B's tools, or name another with --e2b-template; an id is not looked up"}
	case http.StatusForbidden: // it is there, and another team's
		d = providers.Diagnosis{About: "e2b template", Says: p.opt.Template + " belongs to another team", Remedy: "name another with --e2b-template"}
	default:
		if err != nil {
			d = providers.Diagnosis{About: "e2b template", Says: explain("ask", err).Error(), Remedy: "try again later"}
		}
	}
	return d
}

func (p *workspaces) diagnoseVolumes(ctx context.Context) providers.Diagnosis {
	if p.opt.NoWorkspaces {
		return providers.Diagnosis{About: "e2b workspaces", Good: true, Says: "none: --e2b-no-workspaces"}
	}
	_, err := p.hasVolume(ctx, "")
	var failed *cloud.Error
	switch {
	case err == nil:
		return providers.Diagnosis{About: "e2b workspaces", Good: true, Says: "they are volumes of the team"}
	case errors.As(err, &failed) && (failed.Status == http.StatusForbidden || failed.Status == http.StatusNotFound):
		return providers.Diagnosis{About: "e2b workspaces", Says: "the team has no volumes, which workspaces need: " + failed.Message,
			Remedy: "ask E2B for volumes, or say --e2b-no-workspaces: calls with a workspace are refused then"}
	default:
		return providers.Diagnosis{About: "e2b workspaces", Says: explain("ask", err).Error(), Remedy: "try again later"}
	}
}
