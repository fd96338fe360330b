package modal

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Diagnose checks what the provider needs of the service: whether it answers, the token, the image, and how many sandboxes run. It creates
// nothing and blocks for a few seconds, or a minute if the service does not answer.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	p, err := Open(o)
	if err != nil {
		return []providers.Diagnosis{{About: "modal", Says: err.Error(),
			Remedy: "for --provider modal only: make a token in the settings of Modal, and set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"}}
	}
	defer p.Close() //nolint:errcheck // nothing was begun
	all, err := p.modal.list(ctx, nil)
	if err != nil {
		d := providers.Diagnosis{About: "modal", Says: explain("ask", err).Error(),
			Remedy: "see whether " + p.opt.ServerURL + " can be reached from here"}
		if schemas.CodeOf(explain("ask", err)) == schemas.Denied {
			d.Says = p.opt.ServerURL + " refuses the token"
			d.Remedy = "make another in the settings of Modal, and set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
		}
		return []providers.Diagnosis{d}
	}
	return []providers.Diagnosis{{
		About: "modal", Good: len(all) < p.opt.Sandboxes,
		Says: fmt.Sprintf("%s takes the token; %d sandboxes of the app %s run, %d may run",
			p.opt.ServerURL, len(all), p.opt.App, p.opt.Sandboxes),
		Remedy: "end some, or allow more with --modal-sandboxes, up to what the workspace at Modal may have",
	}, p.diagnoseImage(ctx), p.diagnoseWorkspaces()}
}

// diagnoseImage checks that the image exists, if it is one that need not be built.
func (p *Provider) diagnoseImage(ctx context.Context) providers.Diagnosis {
	const about = "modal image"
	err := p.modal.image(ctx)
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusBadRequest:
		return providers.Diagnosis{About: about, Says: "there is no image " + p.opt.Image,
			Remedy: "name another with --modal-image: an id of Modal's, or a name in a registry"}
	case err != nil:
		return providers.Diagnosis{About: about, Says: explain("ask", err).Error(), Remedy: "try again later"}
	case strings.HasPrefix(p.opt.Image, imageID):
		return providers.Diagnosis{About: about, Good: true, Says: p.opt.Image + " is there"}
	}
	return providers.Diagnosis{About: about, Good: true, Says: "the service builds one of " + p.opt.Image + " with the first sandbox"}
}

func (p *Provider) diagnoseWorkspaces() providers.Diagnosis {
	const about = "modal workspaces"
	if p.opt.NoWorkspaces {
		return providers.Diagnosis{About: about, Good: true, Says: "none: --modal-no-workspaces"}
	}
	return providers.Diagnosis{About: about, Good: true, Says: "they are volumes, one each, which are made with the first call"}
}
