package deno

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Diagnose checks what the provider needs of the service: whether both of its APIs answer and accept the token, how many sandboxes run,
// the root of sandboxes, and volumes for workspaces. It creates nothing and blocks for a few seconds, or a minute if the service does not
// answer.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	p, err := Open(o)
	if err != nil {
		return []providers.Diagnosis{{About: "deno", Says: err.Error(),
			Remedy: "for --provider deno only: make an organization token in the settings of console.deno.com, and set DENO_DEPLOY_TOKEN"}}
	}
	defer p.Close() //nolint:errcheck // nothing was begun
	all, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation})
	if err != nil {
		return []providers.Diagnosis{p.away("deno", p.console.Base, err)}
	}
	says := fmt.Sprintf("%s takes the token; of this installation %d sandboxes run, %d may", p.console.Base, len(all), p.opt.Sandboxes)
	if ahead := time.Duration(p.ahead.Load()).Round(time.Second); ahead.Abs() > time.Minute {
		says += fmt.Sprintf("; this host's clock differs from the service's by %s, which is reckoned with", ahead.Abs())
	}
	out := []providers.Diagnosis{{
		About: "deno", Good: len(all) < p.opt.Sandboxes, Says: says,
		Remedy: "end some, or allow more with --deno-sandboxes, up to what the organization may have",
	}}
	return append(out, p.diagnoseSandboxes(ctx), p.diagnoseRoot(ctx), p.diagnoseVolumes(ctx))
}

// away returns the finding for an API that answered with an error.
func (p *api) away(about string, base *url.URL, err error) providers.Diagnosis {
	err = explain("ask", err)
	if schemas.CodeOf(err) == schemas.Denied {
		return providers.Diagnosis{About: about, Says: base.String() + " refuses the token",
			Remedy: "make another in the settings of console.deno.com, and set DENO_DEPLOY_TOKEN; a person's token needs DENO_DEPLOY_ORG"}
	}
	return providers.Diagnosis{About: about, Says: err.Error(), Remedy: "see whether " + base.String() + " can be reached from here"}
}

// diagnoseSandboxes checks the API of sandboxes, by a request for a sandbox that does not exist.
func (p *api) diagnoseSandboxes(ctx context.Context) providers.Diagnosis {
	const about = "deno sandboxes"
	base := p.at(p.opt.Region).Base
	_, err := p.extend(ctx, "sbx_"+p.opt.Region+"_00000000000000000000", time.Minute)
	if err == nil || cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusGone {
		return providers.Diagnosis{About: about, Good: true, Says: fmt.Sprintf("%s takes the token; they have %d MiB", base, p.opt.Memory)}
	}
	return p.away(about, base, err)
}

// diagnoseRoot checks that the snapshot for the root of sandboxes exists, if one is named.
func (p *api) diagnoseRoot(ctx context.Context) providers.Diagnosis {
	const about = "deno root"
	if p.opt.Root == "" {
		return providers.Diagnosis{About: about, Good: true, Says: "the service's own image"}
	}
	var v volume
	err := p.ask(ctx, p.console, cloud.Call{
		Method: http.MethodGet, Path: "/api/v2/snapshots/" + url.PathEscape(p.opt.Root), Route: "/api/v2/snapshots/{slug}", Into: &v,
	})
	const remedy = "make it of a bootable volume in this region, or name another with --deno-root"
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound:
		return providers.Diagnosis{About: about, Says: "there is no snapshot " + p.opt.Root, Remedy: remedy}
	case err != nil:
		return providers.Diagnosis{About: about, Says: explain("ask", err).Error(), Remedy: "try again later"}
	case !v.Bootable || v.Region != p.opt.Region:
		return providers.Diagnosis{About: about, Says: fmt.Sprintf("the snapshot %s cannot be a root here: it is in the region %q, bootable: %v",
			p.opt.Root, schemas.Quotable(v.Region), v.Bootable), Remedy: remedy}
	}
	return providers.Diagnosis{About: about, Good: true, Says: "the snapshot " + p.opt.Root + " is there"}
}

// diagnoseVolumes checks access to volumes, none of which need exist yet.
func (p *api) diagnoseVolumes(ctx context.Context) providers.Diagnosis {
	const about = "deno workspaces"
	if p.opt.NoWorkspaces {
		return providers.Diagnosis{About: about, Good: true, Says: "none: --deno-no-workspaces"}
	}
	err := p.ask(ctx, p.console, cloud.Call{Method: http.MethodGet, Path: "/api/v2/volumes", Query: url.Values{"limit": {"1"}}})
	switch code := cloud.StatusOf(err); {
	case err == nil:
		return providers.Diagnosis{About: about, Good: true, Says: "they are volumes in " + p.opt.Region + ", each in one sandbox at a time"}
	case code == http.StatusForbidden || code == http.StatusNotFound:
		return providers.Diagnosis{About: about, Says: "the organization has no volumes, which workspaces need",
			Remedy: "ask Deno for volumes, or say --deno-no-workspaces: calls with a workspace are refused then"}
	default:
		return providers.Diagnosis{About: about, Says: explain("ask", err).Error(), Remedy: "try again later"}
	}
}
