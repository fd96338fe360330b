package vercel

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Diagnose checks what the provider needs of the service: whether it answers, the token, team and project, drives for workspaces, and how
// many sandboxes run. It creates nothing and blocks for a few seconds, or a minute if the service does not answer.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	p, err := Open(o)
	if err != nil {
		return []providers.Diagnosis{{About: "vercel", Says: err.Error(),
			Remedy: "for --provider vercel only: make a token in the settings of your account at Vercel, and set VERCEL_TOKEN, " +
				"VERCEL_TEAM_ID and VERCEL_PROJECT_ID"}}
	}
	defer p.Close() //nolint:errcheck // nothing was begun
	runs, resting, err := p.count(ctx, false)
	switch {
	case err == nil:
	case schemas.CodeOf(explain("ask", err)) == schemas.Denied:
		return []providers.Diagnosis{{About: "vercel", Says: p.client.Base.String() + " refuses the token for the team " + p.opt.Team,
			Remedy: "make another in the settings of your account at Vercel, with the team as its scope, and set VERCEL_TOKEN"}}
	case cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusBadRequest:
		return []providers.Diagnosis{{About: "vercel", Says: "the team " + p.opt.Team + " has no project " + p.opt.Project,
			Remedy: "set VERCEL_PROJECT_ID to the id that the settings of a project of the team show"}}
	default:
		return []providers.Diagnosis{{About: "vercel", Says: explain("ask", err).Error(),
			Remedy: "see whether " + p.client.Base.String() + " can be reached from here"}}
	}
	return []providers.Diagnosis{{
		About: "vercel", Good: len(runs) < p.opt.Sandboxes,
		Says: fmt.Sprintf("%s takes the token; of this installation %d sandboxes run and %d rest, %d may run",
			p.client.Base, len(runs), resting, p.opt.Sandboxes),
		Remedy: "end some, or allow more with --vercel-sandboxes, up to what the team's plan allows",
	}, p.diagnoseDrives(ctx)}
}

// diagnoseDrives checks access to the drives of workspaces.
func (p *api) diagnoseDrives(ctx context.Context) providers.Diagnosis {
	const about = "vercel workspaces"
	if p.opt.NoWorkspaces {
		return providers.Diagnosis{About: about, Good: true, Says: "none: --vercel-no-workspaces"}
	}
	_, err := p.client.Do(ctx, cloud.Call{
		Method: http.MethodGet, Path: "/v2/sandboxes/drives", Query: p.query("projectId", p.opt.Project, "limit", "1"),
	})
	switch code := cloud.StatusOf(err); {
	case err == nil:
		return providers.Diagnosis{About: about, Good: true, Says: "they are drives of the project"}
	case code == http.StatusForbidden || code == http.StatusNotFound || code == http.StatusPaymentRequired:
		return providers.Diagnosis{About: about, Says: "the project has no drives, which workspaces need",
			Remedy: "say --vercel-no-workspaces: calls with a workspace are refused then"}
	default:
		return providers.Diagnosis{About: about, Says: explain("ask", err).Error(), Remedy: "try again later"}
	}
}
